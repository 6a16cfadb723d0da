"""Run the engine of a recorded session again on what it heard, and compare what it says.

For engines that own their turns and draw from the session's seed: the same input gives the same frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ..core.effects import AdvanceEpoch, AppendInput, OpenEngine
from ..core.events import AudioArrived, DuplexFrame, EngineFailed, Event
from ..core.timeline import TICK_RATE
from ..ports import EnginePort, Rewinds
from ..recording.format import JournalError
from ..tracks import silence
from .reader import Recording, Samples, Step

FALLBACK_RATE = 24_000
ROUNDING = 3
"""Up to so much a sample of 16 bits counts as the same; another code changes a frame by hundreds."""
EMPTY_TICKS = 200
"""Ticks without a frame after which no further one will come."""


class SteppedEngine(EnginePort, Protocol):
    """An engine without a thread of its own."""

    def tick(self) -> None:
        """Compute the next frame of everyone who has input for one."""


@dataclass(slots=True)
class Regenerated:
    """`frames` were made again; `difference` says where the first one differs, "" where none does."""

    frames: int = 0
    difference: str = ""
    furthest: int = 0
    """By how much samples differ at most: sums in a batch of another size are rounded otherwise."""

    @property
    def identical(self) -> bool:
        return not self.difference


def regenerate(folder: Path, engine: SteppedEngine) -> Regenerated:
    """Run `engine`, which must be the recorded one with its seed, on the recording in `folder`.

    Raises JournalError where the recording cannot be read or holds no frames of an engine that owns its turns.
    """
    recording = Recording(folder)
    steps = list(recording.steps())
    if not any(isinstance(step.event, DuplexFrame) for step in steps):
        raise JournalError(
            f"{folder} holds no frames of an engine that owns its turns; one that answers text draws what it says anew"
        )
    run = _Run(recording, engine, steps)
    try:
        result = run.run()
        result.furthest = run.furthest
        return result
    finally:
        engine.close(recording.manifest.session)


class _Run:
    def __init__(self, recording: Recording, engine: SteppedEngine, steps: list[Step]) -> None:
        self._recording = recording
        self._engine = engine
        self._steps = steps
        self._made: list[tuple[DuplexFrame, Samples]] = []
        self._failure = ""
        self._rates = {name: track.rate for name, track in recording.tracks().items()}
        self._compared = 0
        self.furthest = 0

    def _emit(self, event: Event, pcm: bytes | None = None) -> None:
        if isinstance(event, DuplexFrame):
            self._made.append((event, np.frombuffer(pcm or b"", "<i2")))
        elif isinstance(event, EngineFailed):
            self._failure = f"{event.code}: {event.message}"

    def run(self) -> Regenerated:
        result = Regenerated()
        frames = [step for step in self._steps if isinstance(step.event, DuplexFrame)]
        for step in self._steps:
            for effect in step.effects:
                self._apply(effect, step, frames)
            if isinstance(step.event, DuplexFrame):
                result.difference = self._compare(step, step.event)
                if result.difference:
                    return result
                result.frames += 1
        return result

    def _apply(self, effect: object, step: Step, frames: list[Step]) -> None:
        engine, session = self._engine, self._recording.manifest.session
        if isinstance(effect, OpenEngine):
            engine.open(effect.fence, effect.config, self._emit)
        elif isinstance(effect, AppendInput):
            pcm, rate = self._heard(step)
            engine.append(session, effect.start, pcm, rate)
        elif isinstance(effect, AdvanceEpoch):
            # What it had made before it learned of the cut may have been told later.
            earlier = sum(
                isinstance(one.event, DuplexFrame) and one.event.fence.epoch < effect.fence.epoch for one in frames
            )
            self._tick_until(earlier)
            if effect.heard is not None and isinstance(engine, Rewinds):
                engine.rewind(effect.fence, effect.heard)
            else:
                engine.advance(effect.fence)

    def _heard(self, step: Step) -> tuple[bytes, int]:
        event = step.event
        if not isinstance(event, AudioArrived):
            return b"", FALLBACK_RATE
        if event.concealed or step.track not in self._rates:
            return silence(event.end - event.start, FALLBACK_RATE), FALLBACK_RATE
        samples = self._recording.samples(step.track or "", event.start, event.end)
        return samples.astype("<i2").tobytes(), self._rates[step.track or ""]

    def _tick_until(self, count: int) -> None:
        empty = 0
        while len(self._made) < count and empty < EMPTY_TICKS and not self._failure:
            before = len(self._made)
            self._engine.tick()
            empty = empty + 1 if len(self._made) == before else 0

    def _compare(self, step: Step, recorded: DuplexFrame) -> str:
        index = self._compared
        self._compared += 1
        self._tick_until(index + 1)
        place = f"frame {index} at {recorded.start / TICK_RATE:.2f} s of its track"
        if len(self._made) <= index:
            return f"{place} does not come{': ' + self._failure if self._failure else ''}"
        made, pcm = self._made[index]
        if (made.start, made.end) != (recorded.start, recorded.end):
            return f"{place}: the frame that comes in its place is the one at {made.start / TICK_RATE:.2f} s"
        if (made.speaking, made.text) != (recorded.speaking, recorded.text):
            was_said, is_said = (recorded.speaking, recorded.text), (made.speaking, made.text)
            return f"{place}: speaking and text were {was_said} and are {is_said}"
        was = self._recording.samples("agent_generated", step.at or 0, (step.at or 0) + recorded.end - recorded.start)
        apart = np.abs(pcm.astype(np.int32) - was) if len(pcm) == len(was) else np.full(1, 1 << 16)
        self.furthest = max(self.furthest, int(apart.max(initial=0)))
        if self.furthest > ROUNDING:
            return f"{place}: sample {int(apart.argmax())} is another one, by {int(apart.max())}"
        return ""
