"""Whether the agent tells a listener's "mm-hmm" from a wish to speak, and goes on without a word lost or repeated.

`python -m tests.bench.backchannels --spawn` puts the backchannels and noises of the test split over a long reply whose
every sample is known, and then the commands of the test split over other replies. `--curve 120,200,300,…` does both for
each commit duration and prints what one rate costs of the other.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import wave
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from server.client import RATE, ClientError, Pcm, RealtimeClient, play_out
from tests.bench import bargein, tones
from tests.bench.report import progress, table, write
from tests.bench.target import arguments, server
from tests.speech import RATE as CLIP_RATE
from tests.speech import Clip, load

REPLY_SECONDS = 90
PER_SESSION = 12
SETTLE = 1.4
"""Seconds after a backchannel in which a commit would still be its doing."""


@dataclass(frozen=True, slots=True)
class Backchannel:
    """One backchannel over the reply."""

    clip: str
    text: str
    kind: str
    seconds: float
    held: bool
    committed: bool
    commit: float | None
    """Seconds from the true onset, where it was taken for an interruption."""
    understood: str
    """What the server took the sound for, as far as it told."""
    pause: float
    """Seconds for which nothing was sent."""


@dataclass(frozen=True, slots=True)
class Continuity:
    """A reply as it arrived, against the reference. `breaks`: places where samples were lost, repeated or changed."""

    samples: int
    breaks: int


def reference() -> Pcm:
    """A reply in which no stretch is like another: a slow sweep under a noise, 24 kHz int16."""
    t = np.arange(REPLY_SECONDS * RATE) / RATE
    sweep = np.sin(2 * np.pi * (200 * t + 8 * t**2))
    noise = np.random.default_rng(4).normal(size=len(t))
    return np.round(6000 * sweep + 800 * noise).astype("<i2")


def script(folder: Path, pcm: Pcm) -> str:
    """Write the reply as a WAV file; returns the script that plays it."""
    path = folder / "reply.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(pcm.tobytes())
    return f'[[reply]]\nwav = "{path}"\n'


def compare(received: Pcm, expected: Pcm, tolerance: int = 2) -> Continuity:
    """Where `received` departs from the beginning of `expected`: every place from which another offset holds."""
    position, breaks, offset = 0, 0, 0
    window = RATE // 50
    while position < len(received):
        piece = received[position : position + window].astype(int)
        there = expected[position + offset : position + offset + len(piece)].astype(int)
        if len(there) == len(piece) and np.abs(piece - there).max() <= tolerance:
            position += window
            continue
        breaks += 1
        # The break may lie inside this window; look for where the next whole one comes from.
        position += window
        probe = received[position : position + window].astype(float)
        if len(probe) < window:
            break
        nearby = range(max(0, position + offset - 5 * RATE), min(len(expected) - window, position + offset + 5 * RATE))
        block = expected[nearby.start : nearby.stop + window].astype(float)
        found = int(np.argmax(np.correlate(block, probe, "valid"))) + nearby.start
        offset = found - position
    return Continuity(len(received), breaks)


async def one_session(
    url: str, clips: Sequence[Clip], session: Mapping[str, object], expected: Pcm
) -> tuple[list[Backchannel], list[Continuity]]:
    """Put `clips` over the reply one after the other; a reply that is cut is followed by another."""
    results: list[Backchannel] = []
    async with RealtimeClient(url, session) as client:
        client.open_microphone()
        await client.pause(0.5)
        await bargein.request_reply(client)
        audio = await client.wait_for(bargein.DELTA)
        for index, clip in enumerate(clips):
            await client.pause(0.7 + 0.037 * (index % 7))
            mark = len(client.events)
            utterance = client.say(clip.pcm, CLIP_RATE)
            onset = await utterance.time_of(round(clip.onset * RATE / CLIP_RATE))
            within = onset - client.now + clip.seconds + SETTLE
            try:
                commit = (await client.wait_for(bargein.STARTED, after=mark, within=within)).at - onset
            except ClientError:
                commit = None
            committed = commit is not None
            told = client.of("x_talkover.input_transcript_hypothesis", "x_talkover.resumed", after=mark)
            understood = " | ".join(text for event in told if (text := event.text("text") or event.text("words")))
            sent = [event.at for event in client.of(bargein.DELTA, after=mark)]
            pause = max((b - a for a, b in itertools.pairwise(sent)), default=0.0)
            held = bool(client.of(bargein.HELD, after=mark))
            one = Backchannel(clip.name, clip.text, clip.kind, clip.seconds, held, committed, commit, understood, pause)
            results.append(one)
            verdict = "COMMIT" if committed else "held" if held else "passed"
            progress(f"{verdict:>8}  {clip.text} ({clip.voice})")
            if clip is not clips[-1] and (committed or bargein.done(client, audio.response)):
                audio = await bargein.next_reply(client, audio, mark, committed=committed, prompted=False)
        await client.pause(0.3)
        heard = play_out(client.events)
    return results, [compare(pcm, expected) for pcm in heard.pcm.values()]


async def measure(
    url: str, clips: Sequence[Clip], session: Mapping[str, object], expected: Pcm, parallel: int
) -> tuple[list[Backchannel], list[Continuity]]:
    results: list[Backchannel] = []
    replies: list[Continuity] = []
    groups = [clips[start : start + PER_SESSION] for start in range(0, len(clips), PER_SESSION)]
    for start in range(0, len(groups), parallel):
        runs = [one_session(url, group, session, expected) for group in groups[start : start + parallel]]
        for some, more in await asyncio.gather(*runs):
            results += some
            replies += more
    return results, replies


def summary(
    results: Sequence[Backchannel], replies: Sequence[Continuity], interruptions: bargein.Outcome
) -> dict[str, object]:
    committed = [one for one in results if one.committed]
    return {
        "backchannels": len(results),
        "false_commits": len(committed),
        "false_commit_rate": round(len(committed) / max(1, len(results)), 4),
        "held": sum(one.held for one in results),
        "replies": len(replies),
        "samples_compared": sum(reply.samples for reply in replies),
        "breaks": sum(reply.breaks for reply in replies),
        **{f"commands_{key}": value for key, value in bargein.summary(interruptions).items()},
        "missed_rate": round(
            sum(one.commit is None for one in interruptions.interruptions) / max(1, len(interruptions.interruptions)), 4
        ),
    }


def show(results: Sequence[Backchannel], replies: Sequence[Continuity], title: str) -> None:
    print(f"\n{title}: {sum(one.committed for one in results)} false commits of {len(results)}")
    for one in results:
        if one.committed:
            after = "" if one.commit is None else f", committed after {one.commit * 1000:.0f} ms"
            print(f"  {one.text} ({one.clip}, {one.seconds * 1000:.0f} ms){after}: {one.understood or 'no words'}")
    samples, breaks = sum(reply.samples for reply in replies), sum(reply.breaks for reply in replies)
    print(f"replies: {samples} samples in {len(replies)} replies compared with the reference, {breaks} breaks")


async def run(
    url: str, tone_url: str, options: argparse.Namespace, expected: Pcm, commit_ms: int | None
) -> dict[str, object]:
    """Both sets at one commit duration."""
    session = bargein.session_for(options.detection, commit_ms, create_response=True)
    clips = load("backchannels", options.split)[: options.limit]
    results, replies = await measure(url, clips, session, expected, options.parallel)
    commands = load("commands", options.split)[: options.limit]
    interruptions = await bargein.measure(
        tone_url, commands, session, offset=0.8, prompted=False, parallel=options.parallel
    )
    title = f"{options.detection}, commit after {commit_ms if commit_ms is not None else 'the default'} ms"
    show(results, replies, title)
    bargein.show(interruptions, title)
    figures = summary(results, replies, interruptions)
    return {"commit_ms": commit_ms, **figures, "each": [asdict(one) for one in results]}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--detection", choices=("server_vad", "semantic_vad"), default="server_vad")
    parser.add_argument("--split", choices=("tune", "test"), default="test")
    parser.add_argument("--curve", metavar="MS,MS,…", help="commit durations to compare (default: the server's own)")
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="sessions at a time (default: 1)")
    options = parser.parse_args()
    if options.url:
        parser.error("this benchmark needs scripted replies of its own; use --spawn")
    durations = [int(part) for part in options.curve.split(",")] if options.curve else [None]
    expected = reference()
    points = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        server(options, "scripted", script(Path(scratch), expected)) as target,
        server(options, "scripted", tones.script(60.0)) as toned,
    ):
        for commit_ms in durations:
            points.append(asyncio.run(run(target.url, toned.url, options, expected, commit_ms)))
    rows = [
        [
            str(point["commit_ms"]),
            point["false_commits"],
            point["backchannels"],
            point["commands_missed"],
            point["commands_interruptions"],
        ]
        for point in points
    ]
    print("\ntrade-off:")
    print(table(rows, ("commit ms", "false commits", "of", "missed interruptions", "of")))
    write(
        {"bench": "backchannels", "detection": options.detection, "split": options.split, "points": points},
        options.json,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
