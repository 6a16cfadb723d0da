"""How fast the agent falls silent when it is interrupted, and whether anything stale is heard afterwards.

`python -m tests.bench.bargein --spawn` interrupts one reply after the other with the commands of the test split, in
real time. Each scripted reply has its own tone, so a sample says itself which reply it belongs to: what arrives after
the commit (`speech_started`) with a tone of before is stale. `--engine embedded` interrupts spoken replies while the
models still compute them; there response ids tell old from new.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from server.client import RATE, ClientError, RealtimeClient, Received
from tests.bench.report import STAGE_HEAD, milliseconds, percentile, progress, stage_rows, table, write
from tests.bench.target import arguments, server
from tests.bench.tones import TONES, script, tones_in
from tests.speech import RATE as CLIP_RATE
from tests.speech import Clip, load

DELTA = "response.output_audio.delta"
STARTED = "input_audio_buffer.speech_started"
HELD = "x_talkover.held"

PATIENCE = 2.0
"""Seconds after the end of a command until it counts as missed."""

PER_SESSION = 8
"""Commands in one session: fewer than there are tones, so no tone comes back."""

STORY = "Tell me a long story about a ship that sails around the world."


@dataclass(frozen=True, slots=True)
class Interruption:
    """One command over one reply; times in seconds from the true onset, None where it did not come to that."""

    clip: str
    text: str
    seconds: float
    held: float | None
    """The server said that it holds."""
    hold: float | None
    """The last audio of the interrupted reply arrived."""
    commit: float | None
    """`speech_started` arrived."""
    onset_error_ms: float | None
    """`audio_start_ms` less the true onset on the input track; negative: it lies before the onset."""


@dataclass(slots=True)
class Outcome:
    """All interruptions of a run, and what went by besides."""

    interruptions: list[Interruption]
    stale_by_tone: int | None = 0
    """None where the replies carry no tones."""
    stale_by_response: int = 0
    false_holds: int = 0
    """Holds while the agent spoke and the user was silent."""
    quiet_seconds: float = 0.0
    """How long the agent spoke and the user was silent."""

    def add(self, other: Outcome) -> None:
        self.interruptions += other.interruptions
        if self.stale_by_tone is not None and other.stale_by_tone is not None:
            self.stale_by_tone += other.stale_by_tone
        else:
            self.stale_by_tone = None
        self.stale_by_response += other.stale_by_response
        self.false_holds += other.false_holds
        self.quiet_seconds += other.quiet_seconds


def session_for(kind: str, commit_ms: int | None, *, create_response: bool) -> dict[str, object]:
    """The session that the benchmarks of interruptions ask for."""
    detection: dict[str, object] = {"type": kind, "create_response": create_response}
    if commit_ms is not None:
        detection["x_commit_ms"] = commit_ms
    return {
        "type": "realtime",
        "audio": {"input": {"turn_detection": detection}},
        "x_talkover": {"notices": True},
    }


async def request_reply(client: RealtimeClient) -> None:
    """Ask for a reply by text, as a client without a microphone would."""
    content = [{"type": "input_text", "text": STORY}]
    await client.send(
        {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}
    )
    await client.send({"type": "response.create"})


def done(client: RealtimeClient, response: str) -> bool:
    return any(event.response == response for event in client.of("response.done"))


async def interrupt(client: RealtimeClient, clip: Clip, old: str) -> Interruption:
    """Speak `clip` over response `old` and see what becomes of it."""
    mark = len(client.events)
    utterance = client.say(clip.pcm, CLIP_RATE)
    onset = await utterance.time_of(round(clip.onset * RATE / CLIP_RATE))
    try:
        started = await client.wait_for(STARTED, after=mark, within=onset - client.now + clip.seconds + PATIENCE)
    except ClientError:
        started = None
    until = client.now if started is None else started.at
    held = next((event.at - onset for event in client.of(HELD, after=mark) if onset <= event.at <= until), None)
    if started is None:
        return Interruption(clip.name, clip.text, clip.seconds, held, None, None, None)
    sent = [event.at for event in client.of(DELTA, after=mark) if event.response == old and event.at <= started.at]
    reported = started.number("audio_start_ms")
    true_ms = (onset - client.microphone_began) * 1000
    error = None if reported is None else reported - true_ms
    last = max(0.0, max(sent, default=onset) - onset)
    return Interruption(clip.name, clip.text, clip.seconds, held, last, started.at - onset, error)


async def one_session(
    url: str, clips: Sequence[Clip], session: Mapping[str, object], offset: float, prompted: bool
) -> Outcome:
    """Interrupt reply after reply with `clips`, `offset` seconds (and a little more each time) after its first audio.

    `prompted`: each reply is asked for by text; else the next reply is the answer to the interruption.
    """
    outcome = Outcome([], stale_by_tone=None if prompted else 0)
    async with RealtimeClient(url, session) as client:
        client.open_microphone()
        await client.pause(0.5)
        await request_reply(client)
        audio = await client.wait_for(DELTA)
        for index, clip in enumerate(clips):
            await client.pause(offset + 0.037 * (index % 7))
            quiet = client.now
            outcome.quiet_seconds += quiet - audio.at
            outcome.false_holds += sum(1 for event in client.of(HELD) if audio.at <= event.at <= quiet)
            mark = len(client.events)
            result = await interrupt(client, clip, audio.response)
            outcome.interruptions.append(result)
            said = "missed" if result.commit is None else f"{result.commit * 1000:4.0f} ms"
            progress(f"{said:>8}  {clip.text} ({clip.voice})")
            if clip is clips[-1]:
                await client.pause(1.0)
                break
            audio = await next_reply(client, audio, mark, committed=result.commit is not None, prompted=prompted)
        judge(client.events, outcome)
    return outcome


async def next_reply(
    client: RealtimeClient, audio: Received, mark: int, *, committed: bool, prompted: bool
) -> Received:
    """The first audio of the reply to interrupt next: the running one after a miss, else the one that comes."""
    if not committed and not done(client, audio.response):
        return Received(client.now, audio.body)
    if prompted or not committed:
        if committed:
            await client.wait_for("input_audio_buffer.committed", after=mark)
        await request_reply(client)

    def another(event: Received) -> bool:
        """the first audio of the next reply"""
        return event.type == DELTA and event.response != audio.response

    try:
        return await client.wait_for(another, after=mark, within=8)
    except ClientError:
        # The words after the commit were not taken for a turn; a conversation would go on by itself, a benchmark asks.
        await request_reply(client)
        return await client.wait_for(another, after=mark)


def judge(events: Sequence[Received], outcome: Outcome) -> None:
    """Count what arrived after a commit and belongs to before it, by response id and by the tone that it carries."""
    old_responses: set[str] = set()
    old_tones: set[int] = set()
    sounding: set[int] = set()
    responses: set[str] = set()
    for event in events:
        if event.type == STARTED:
            old_responses |= responses
            old_tones |= sounding
        elif event.type == DELTA:
            pcm = event.pcm()
            if event.response in old_responses:
                outcome.stale_by_response += len(pcm)
            responses.add(event.response)
            if outcome.stale_by_tone is None:
                continue
            for tone, samples in tones_in(pcm):
                if tone in old_tones:
                    outcome.stale_by_tone += samples
                sounding.add(tone)


async def measure(
    url: str, clips: Sequence[Clip], session: Mapping[str, object], *, offset: float, prompted: bool, parallel: int
) -> Outcome:
    """Interrupt with all `clips`, `PER_SESSION` in a session, `parallel` sessions at a time."""
    outcome = Outcome([])
    groups = [clips[start : start + PER_SESSION] for start in range(0, len(clips), PER_SESSION)]
    for start in range(0, len(groups), parallel):
        runs = [one_session(url, group, session, offset, prompted) for group in groups[start : start + parallel]]
        for part in await asyncio.gather(*runs):
            outcome.add(part)
    return outcome


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median and greatest of `values`; NaN for none."""
    return {
        "min": round(min(values, default=math.nan), 1),
        "median": round(percentile(values, 0.5), 1),
        "max": round(max(values, default=math.nan), 1),
    }


def summary(outcome: Outcome) -> dict[str, object]:
    """The figures of a run."""
    hit = [one for one in outcome.interruptions if one.commit is not None]
    return {
        "interruptions": len(outcome.interruptions),
        "missed": len(outcome.interruptions) - len(hit),
        "hold": milliseconds([one.hold for one in hit if one.hold is not None]),
        "commit": milliseconds([one.commit for one in hit if one.commit is not None]),
        "audio_start_less_onset_ms": spread([one.onset_error_ms for one in hit if one.onset_error_ms is not None]),
        "stale_samples_by_tone": outcome.stale_by_tone,
        "stale_samples_by_response": outcome.stale_by_response,
        "false_holds": outcome.false_holds,
        "quiet_agent_seconds": round(outcome.quiet_seconds, 1),
    }


def show(outcome: Outcome, title: str) -> None:
    hit = [one for one in outcome.interruptions if one.commit is not None]
    stages = {
        "hold (last audio sent)": [one.hold for one in hit if one.hold is not None],
        "hold (server says so)": [one.held for one in outcome.interruptions if one.held is not None],
        "commit (speech_started)": [one.commit for one in hit if one.commit is not None],
    }
    print(f"\n{title}, from the true onset:")
    print(table(stage_rows(stages), STAGE_HEAD))
    off = spread([one.onset_error_ms for one in hit if one.onset_error_ms is not None])
    print(f"audio_start_ms less the true onset: {off['min']} to {off['max']} ms, median {off['median']} ms")
    missed = [one for one in outcome.interruptions if one.commit is None]
    print(
        f"missed: {len(missed)} of {len(outcome.interruptions)}",
        *(f"  {one.text} ({one.clip})" for one in missed),
        sep="\n",
    )
    by_tone = "" if outcome.stale_by_tone is None else f"{outcome.stale_by_tone} by tone, "
    print(f"stale samples after a commit: {by_tone}{outcome.stale_by_response} by response id")
    print(f"false holds: {outcome.false_holds} in {outcome.quiet_seconds:.0f} s of agent speech with a silent user")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--detection", choices=("server_vad", "semantic_vad"), default="server_vad")
    parser.add_argument("--engine", choices=("scripted", "embedded"), default="scripted")
    parser.add_argument("--commit-ms", type=int, metavar="MS", help="speech over the agent that interrupts by duration")
    parser.add_argument(
        "--offset", type=float, metavar="S", help="agent speech before each command (default: 0.8; embedded: 0.2)"
    )
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="sessions at a time (default: 1)")
    options = parser.parse_args()
    clips = load("commands", "test")[: options.limit]
    embedded = options.engine == "embedded"
    session = session_for(options.detection, options.commit_ms, create_response=not embedded)
    offset = options.offset if options.offset is not None else 0.2 if embedded else 0.8
    assert len(TONES) > 2 * PER_SESSION, "a tone must not come back within a session"
    with server(options, options.engine, None if embedded else script(60.0)) as target:
        outcome = asyncio.run(
            measure(target.url, clips, session, offset=offset, prompted=embedded, parallel=options.parallel)
        )
    show(outcome, f"{options.detection}, {options.engine} engine")
    figures = {"bench": "bargein", "detection": options.detection, "engine": options.engine, **summary(outcome)}
    write({**figures, "each": [asdict(one) for one in outcome.interruptions]}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
