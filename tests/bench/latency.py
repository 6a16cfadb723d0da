"""From the true end of a spoken question to the first agent audio on the wire, by stage.

`python -m tests.bench.latency --spawn` speaks the questions of the test split in real time, each in a session of its
own (`--together N`: N in a row in one session, so that the history grows), and hears only as much as it needs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import numpy as np

from server.client import RATE, RealtimeClient, Received
from tests.bench.report import STAGE_HEAD, milliseconds, percentile, progress, stage_rows, table, write
from tests.bench.target import arguments, server
from tests.bench.words import word_error_rate
from tests.speech import RATE as CLIP_RATE
from tests.speech import Clip, load

AUDIBLE = 200
"""An int16 sample beyond this is taken as the agent's voice and not as its breath."""

WIRE = "first audio on the wire"
MILESTONES = {
    "x_talkover.turn_ended": "turn ended",
    "input_audio_buffer.committed": "input committed",
    "response.created": "response created",
    "response.output_audio.delta": WIRE,
}


async def ask(client: RealtimeClient, clip: Clip, settle: float) -> dict[str, float | str]:
    """Speak `clip` and wait for the first audio; returns seconds from its true end to each milestone, and the words."""
    await client.pause(settle)
    mark = len(client.events)
    utterance = client.say(clip.pcm, CLIP_RATE)
    end = await utterance.time_of(round(clip.end * RATE / CLIP_RATE))

    def first_audio(event: Received) -> bool:
        """the first audio"""
        return event.type == "response.output_audio.delta" and bool(np.any(np.abs(event.pcm().astype(int)) > 0))

    audio = await client.wait_for(first_audio, after=mark)
    transcript = await client.wait_for("conversation.item.input_audio_transcription.completed", after=mark)
    found: dict[str, float | str] = {}
    for event in client.events[mark:]:
        name = MILESTONES.get(event.type, "")
        if event.type == "x_talkover.stage_reached":
            name = "engine: " + event.text("stage").replace("_", " ")
        if name and name not in found and event.at <= audio.at and (name != WIRE or event is audio):
            found[name] = event.at - end
    found["first audible"] = await _audible(client, mark, end)
    found["heard"] = transcript.text("transcript")
    return found


async def _audible(client: RealtimeClient, mark: int, end: float) -> float:
    """When a player that starts with the first delta reaches the first sample that can be heard, from `end`."""

    def audible(event: Received) -> bool:
        """audible audio"""
        return event.type == "response.output_audio.delta" and bool(np.any(np.abs(event.pcm().astype(int)) > AUDIBLE))

    loud = await client.wait_for(audible, after=mark)
    before = 0
    begun: float | None = None
    for event in client.of("response.output_audio.delta", after=mark):
        begun = event.at if begun is None else begun
        pcm = event.pcm()
        if event is loud:
            return begun + (before + int(np.argmax(np.abs(pcm.astype(int)) > AUDIBLE))) / RATE - end
        before += len(pcm)
    return float("nan")


async def measure(url: str, clips: list[Clip], kind: str, together: int) -> list[dict[str, float | str]]:
    session = {
        "type": "realtime",
        "audio": {"input": {"turn_detection": {"type": kind}, "transcription": {"model": "default"}}},
        "x_talkover": {"notices": True},
    }
    results = []
    for start in range(0, len(clips), together):
        async with RealtimeClient(url, session) as client:
            client.open_microphone()
            for clip in clips[start : start + together]:
                mark = len(client.events)
                result = await ask(client, clip, settle=0.6)
                results.append(result | {"clip": clip.name, "text": clip.text})
                progress(f"{len(results)}/{len(clips)} {float(result[WIRE]) * 1000:5.0f} ms  {result['heard']}")
                if together > 1:
                    await client.wait_for("response.done", after=mark, within=60)
                    await client.pause(1.0)
    return results


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--detection", choices=("server_vad", "semantic_vad"), default="server_vad")
    parser.add_argument("--together", type=int, default=1, metavar="N", help="questions per session (default: 1)")
    options = parser.parse_args()
    clips = list(load("questions", "test"))[: options.limit]
    with server(options, "embedded", None) as target:
        results = asyncio.run(measure(target.url, clips, options.detection, options.together))
    return show(results, options)


def show(results: list[dict[str, float | str]], options: argparse.Namespace) -> int:
    """Print the table and write the figures."""
    names: dict[str, list[float]] = {}
    for result in results:
        for name, value in result.items():
            if isinstance(value, float):
                names.setdefault(name, []).append(value)
    ordered = dict(sorted(names.items(), key=lambda item: percentile(item[1], 0.5)))
    print(f"\nfrom the true end of speech ({options.detection}, {len(results)} questions):")
    print(table(stage_rows(ordered), STAGE_HEAD))
    steps = _steps(results, list(ordered))
    print("\nby stage (from the milestone before):")
    print(table(stage_rows(steps), STAGE_HEAD))
    rate = word_error_rate([str(one["text"]) for one in results], [str(one["heard"]) for one in results])
    print(f"\nword error rate of the user's transcripts: {rate:.1%}")
    figures = {
        "bench": "latency",
        "detection": options.detection,
        "from_true_end": {name: milliseconds(values) for name, values in ordered.items()},
        "by_stage": {name: milliseconds(values) for name, values in steps.items()},
        "user_wer": round(rate, 4),
        "questions": results,
    }
    write(figures, options.json)
    return 0


def _steps(results: list[dict[str, float | str]], ordered: list[str]) -> dict[str, list[float]]:
    """What each milestone took from the one before it, in the order of their medians."""
    steps: dict[str, list[float]] = {}
    for before, name in zip(["", *ordered], ordered, strict=False):
        for result in results:
            value, earlier = result.get(name), result.get(before, 0.0)
            if isinstance(value, float) and isinstance(earlier, float):
                steps.setdefault(name, []).append(value - earlier)
    return steps


if __name__ == "__main__":
    sys.exit(main())
