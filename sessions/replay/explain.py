"""An account of a session in words, for people."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.timeline import TICK_RATE, TICKS_PER_MS, Ticks
from .account import SPOKEN_OVER, Account, Answer, Interruption, Look, Overlap

LATE: Ticks = TICK_RATE * 8 // 10
"""An answer that takes longer is called late."""

CAUSES = {
    "barge_in": "the user spoke over the agent",
    "key_pressed": "the user pressed a key",
    "withdrawn": "the user went on before anything was heard; the answer was taken back",
    "client_cancel": "the client cancelled the response",
    "client_clear": "the client cleared the output",
    "detached": "the client went away",
    "superseded": "the session ended, or another response took the floor",
}


class NoSuchInterruption(ValueError):
    """There is no interruption of that number."""


def explain(told: Account, interruption: int | None = None, late: Ticks = LATE) -> str:
    """The whole account, or that of one interruption (numbered from 1). Raises NoSuchInterruption."""
    if interruption is not None:
        for cut in told.interruptions:
            if cut.number == interruption:
                return "\n".join(_interruption(cut))
        raise NoSuchInterruption(
            f"there is no interruption {interruption}; this session has {len(told.interruptions)}, numbered from 1"
        )
    blocks: list[tuple[Ticks, list[str]]] = []
    blocks += [(cut.decided, list(_interruption(cut))) for cut in told.interruptions]
    blocks += [(overlap.held, list(_overlap(overlap))) for overlap in told.overlaps]
    for answer in told.answers:
        latency = answer.latency
        if latency is not None and latency > late and answer.heard is not None:
            blocks.append((answer.heard, list(_late(answer, latency))))
    head = [_summary(told, late)]
    return "\n\n".join("\n".join(block) for _, block in [(0, head), *sorted(blocks, key=lambda block: block[0])])


def _summary(told: Account, late: Ticks) -> str:
    spoken = [cut for cut in told.interruptions if cut.cause in SPOKEN_OVER]
    latencies = [answer.latency for answer in told.answers if answer.latency is not None]
    number_late = sum(latency > late for latency in latencies)
    parts = [
        f"{told.length / TICK_RATE:.1f} s",
        f"{len(told.answers)} answers ({number_late} later than {late // TICKS_PER_MS} ms)",
        f"{len(spoken)} interruptions by voice, {len(told.interruptions) - len(spoken)} other ends of an epoch",
        f"{len(told.overlaps)} sounds over the agent that were none",
    ]
    return "; ".join(parts)


def at(ticks: Ticks | None) -> str:
    """Session time for people, in seconds."""
    return "    -    " if ticks is None else f"{ticks / TICK_RATE:9.3f}"


def ms(ticks: Ticks) -> str:
    """A duration for people."""
    return f"{ticks / TICKS_PER_MS:.0f} ms"


def _interruption(cut: Interruption) -> Iterator[str]:
    yield f"interruption {cut.number}: {CAUSES.get(cut.cause, cut.cause)} (epoch {cut.epoch} begins)"
    if cut.onset is not None:
        yield f"{at(cut.onset)}  onset in the user's audio"
    if cut.crossed is not None:
        yield f"{at(cut.crossed)}  the detector calls it speech{_after(cut.crossed, cut.onset)}"
    if cut.held is not None:
        yield f"{at(cut.held)}  hold: nothing more is sent{_after(cut.held, cut.onset)}"
    yield from _looks(cut.looks)
    yield f"{at(cut.decided)}  decided{_after(cut.decided, cut.onset)}: {cut.why}"
    if cut.stopped is not None:
        yield f"{at(cut.stopped)}  the engine is told to stop"
    if cut.flushed is not None:
        yield f"{at(cut.flushed)}  the carrier is flushed, the gate passes epoch {cut.epoch} alone"
    if cut.stale_until is not None:
        yield f"{at(cut.stale_until)}  last stale sample from the engine ({ms(cut.stale)} dropped in all)"
    if cut.heard is None:
        yield f"{at(cut.decided)}  nothing was being heard"
        return
    by = "by the client's own reports" if cut.heard_by == "report" else "as the server's model has it"
    yield f'{at(cut.decided)}  heard: {ms(cut.heard)} of {cut.response}, {by}: "{cut.heard_text.strip()}"'
    if cut.sent_until is not None and cut.sent_until > cut.decided:
        yield f"{at(cut.sent_until)}  until here it had been sent; {ms(cut.sent_until - cut.decided)} were taken back"
    yield f'           the history keeps: "{(cut.kept or "").strip()}"'


def _after(time: Ticks, onset: Ticks | None) -> str:
    return "" if onset is None else f", {ms(time - onset)} after the onset"


def _looks(looks: list[Look]) -> Iterator[str]:
    for look in looks:
        if look.answered is None:
            yield f"{at(look.asked)}  its words are asked for; no answer came in time"
        else:
            took = ms(look.answered - look.asked)
            yield f'{at(look.answered)}  understood: "{look.words}" (asked for {took} before)'


def _overlap(overlap: Overlap) -> Iterator[str]:
    words = f'"{overlap.words}"' if overlap.words else "a sound without words"
    yield f"no interruption: {words} over the agent"
    yield f"{at(overlap.onset)}  onset in the user's audio"
    yield f"{at(overlap.held)}  hold{_after(overlap.held, overlap.onset)}"
    yield from _looks(overlap.looks)
    later = ms(overlap.resumed - overlap.held)
    yield f"{at(overlap.resumed)}  the agent goes on at the next unsent sample, {later} later"


def _late(answer: Answer, latency: Ticks) -> Iterator[str]:
    parts = answer.parts()
    slowest = max(parts, key=lambda name: parts[name])
    yield f"late answer {answer.response}: {ms(latency)} from the end of speech to the ear; most of it: {slowest}"
    if answer.user:
        yield f'           to "{answer.user.strip()}"'
    yield f"{at(answer.speech_end)}  the user stopped speaking"
    for name, when in sorted(
        [
            ("words asked for", answer.asked),
            (f"turn ended by {answer.turn_ended_by}", answer.turn_ended),
            *((stage.replace("_", " "), reached) for stage, reached in answer.stages.items()),
            ("first audio from the engine", answer.made),
            ("first frame sent", answer.admitted),
            ("heard", answer.heard),
        ],
        key=lambda pair: pair[1] or 0,
    ):
        if when is not None:
            yield f"{at(when)}  {name}"
    yield "           " + ", ".join(f"{name} {ms(length)}" for name, length in parts.items())
