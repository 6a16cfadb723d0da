"""Recorded speech as the real speech detection hears it on a telephone, for simulated people to say."""

from __future__ import annotations

import base64
import queue
from collections.abc import Mapping, Sequence

from codec import g711
from loadtest.served import SameWords
from loadtest.simulation.speech import ALIGNMENTS, WINDOW, Speech, Trace, Window
from loadtest.voice import Utterance, Voice
from models import assets
from models.perception.perception import EmbeddedPerception
from models.perception.vad import SpeechDetector
from sessions.core.effects import OpenPerception
from sessions.core.events import Event, SpeechProbability
from sessions.core.fence import Fence
from sessions.core.timeline import TICK_RATE, Ticks, from_ms

FRAME: Ticks = from_ms(20)
BEFORE = 56
"""Frames of a room's noise ahead of what is said: whole windows, and time enough for the detector to settle."""
BEHIND = 30
UNHEARD = 10
"""Frames at the end that need not have been heard: some of them are held back for resampling."""
ALOUD = 0.35
"""Probability from which a window behind the sound still belongs to it."""
PATIENCE = 60.0


class _NoTurns:
    def probability(self, turn: object) -> float:
        """Never asked."""
        return 0.0


def heard(utterances: Mapping[str, Sequence[Utterance]], voice: Voice) -> tuple[dict[str, tuple[Speech, ...]], Window]:
    """`utterances` (µ-law) by kind over the noise of `voice`, each at all places where it may begin inside a window;
    and the noise by itself.

    Raises what `models.assets` raises where the detector's file is not there. Takes seconds.
    """
    detector = SpeechDetector(assets.ensure(("silero-vad",))["silero-vad"])
    perception = EmbeddedPerception(detector, _NoTurns(), SameWords())
    try:
        said = {kind: tuple(_speech(perception, one, voice) for one in some) for kind, some in utterances.items()}
        return said, _room(perception, voice)
    finally:
        perception.stop()


def _room(perception: EmbeddedPerception, voice: Voice) -> Window:
    """A window of its noise, in the middle of all."""
    windows = _windows(perception, [base64.b64decode(one) for one in voice.noise])
    chance, level, hiss = (sorted(values)[len(windows) // 2] for values in zip(*windows, strict=True))
    return chance, level, hiss


def _speech(perception: EmbeddedPerception, said: Utterance, voice: Voice) -> Speech:
    traces: dict[int, Trace] = {}
    for number in range(ALIGNMENTS):
        before = BEFORE + number
        noise = [voice.noise[at % len(voice.noise)] for at in range(before + BEHIND)]
        frames = [*noise[:before], *said.frames, *noise[before:]]
        begin = before * FRAME
        windows = _windows(perception, [base64.b64decode(one) for one in frames])
        first = begin // WINDOW
        kept = windows[first:]
        last = max((at for at, (chance, *_) in enumerate(kept) if chance >= ALOUD), default=0)
        traces[begin % WINDOW] = Trace.of(kept[: last + 1])
    return Speech(
        round(said.onset * TICK_RATE), round(said.end * TICK_RATE), tuple(traces[at] for at in sorted(traces))
    )


def _windows(perception: EmbeddedPerception, frames: Sequence[bytes]) -> list[Window]:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    request = OpenPerception(speech=True, language="en")
    perception.open(Fence("heard", 1, 0), request, lambda event, pcm=None: events.put(event))
    for number, frame in enumerate(frames):
        perception.feed("heard", number * FRAME, g711.decode(frame, "ulaw"), 8000)
    found: list[Window] = []
    while len(found) < (len(frames) - UNHEARD) * FRAME // WINDOW:
        event = events.get(timeout=PATIENCE)
        if isinstance(event, SpeechProbability):
            found.append((event.probability, event.level, event.hiss))
    perception.close("heard")
    return found
