"""Run the engine of a recorded session again on what it heard, and compare what it says.

For engines that own their turns and draw from the session's seed: the same input gives the same frames, the same text
and the same codes, where they were recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ..codes_track import FILE, CodedPcm, Codes, CodesTrackError, read_codes
from ..core.effects import AdvanceEpoch, AppendInput, OpenEngine
from ..core.events import AudioArrived, DuplexFrame, EngineFailed, Event
from ..core.timeline import TICK_RATE, Ticks
from ..ports import EnginePort, Repeats, Rewinds
from ..recording.format import JournalError
from ..tracks import silence
from .reader import Manifest, Recording, Samples, Step

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
    """`frames` were made again, of which `coded` had codes to compare; `difference` says where the first one differs,
    "" where none does. `lost`: frames that were on their way from a worker at a cut, which nobody has heard or kept."""

    frames: int = 0
    coded: int = 0
    lost: int = 0
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
    check_repeatable(recording.manifest)
    if not any(isinstance(step.event, DuplexFrame) for step in steps):
        raise JournalError(f"{folder} holds no frames of an engine that owns its turns: there is nothing to compare")
    _check_origin(recording.manifest, engine)
    run = _Run(recording, engine, steps)
    try:
        result = run.run()
        result.furthest, result.coded = run.furthest, run.coded
        return result
    finally:
        engine.close(recording.manifest.session)


def check_repeatable(manifest: Manifest) -> None:
    """Raises JournalError for a session of an engine that cannot be run again, with what can be done instead."""
    if not manifest.abilities.engine_turns:
        named = (manifest.engine or {}).get("engine")
        raise JournalError(
            f"{manifest.session} was answered by {f'the engine {named}' if named else 'an engine'} that answers text "
            "and draws what it says anew; run the session again without --engine (every effect is compared), or its "
            "perception with --from user_in"
        )


def _check_origin(manifest: Manifest, engine: SteppedEngine) -> None:
    """Raises JournalError where the engine would draw or be treated otherwise than the recorded one."""
    told, own = manifest.engine or {}, engine.origin(manifest.session) if isinstance(engine, Repeats) else {}
    for name in ("seed", "policy"):
        if name in told and name in own and told[name] != own[name]:
            raise JournalError(
                f"{manifest.session} was recorded with {name} {told[name]!r} of its engine, and this one has "
                f"{own[name]!r}; run it with the recorded one"
            )


def _codes_by_place(recording: Recording) -> dict[Ticks, Codes]:
    """The codes of each frame by where its samples lie on `agent_generated`; none where there are none to be read."""
    try:
        recorded = read_codes(recording.folder / FILE)
    except (OSError, CodesTrackError):
        return {}
    length = recorded.codec.frame_ticks
    return {
        piece.at + offset: stream.frames[(piece.offset + offset) // length]
        for stream in recorded.streams
        for piece in stream.pieces
        for offset in range(0, piece.length, length)
    }


class _Run:
    def __init__(self, recording: Recording, engine: SteppedEngine, steps: list[Step]) -> None:
        self._recording = recording
        self._engine = engine
        self._steps = steps
        self._made: list[tuple[DuplexFrame, Samples, Codes | None]] = []
        self._codes = _codes_by_place(recording)
        self._holes = self._lost_at_cuts()
        self.coded = 0
        self._failure = ""
        self._rates = {name: track.rate for name, track in recording.tracks().items()}
        self._compared = 0
        self.furthest = 0

    def _emit(self, event: Event, pcm: bytes | None = None) -> None:
        if isinstance(event, DuplexFrame):
            codes = pcm.span.frames[0] if isinstance(pcm, CodedPcm) else None
            self._made.append((event, np.frombuffer(pcm or b"", "<i2"), codes))
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
                result.frames += step.number not in self._holes
        result.lost = len(self._holes)
        return result

    def _lost_at_cuts(self) -> dict[int, int]:
        """Steps with the silence that stands for frames that were on their way from a worker at a cut, and its epoch.

        What a worker made before it learned of a cut is dropped where it arrives; a hole is filled when the next frame
        comes, which is of the new epoch.
        """
        holes: dict[int, int] = {}
        epoch = -1
        for step in self._steps:
            event = step.event
            if isinstance(event, DuplexFrame) and event.fence.epoch == epoch:
                if self._is_hole(step, event):
                    holes[step.number] = epoch
                else:
                    epoch = -1
            for effect in step.effects:
                if isinstance(effect, AdvanceEpoch):
                    epoch = effect.fence.epoch
        return holes

    def _is_hole(self, step: Step, frame: DuplexFrame) -> bool:
        """Whether a frame that speaks has neither codes, where others have, nor text nor sound."""
        at = step.at or 0
        if not frame.speaking or frame.text or not self._codes or at in self._codes:
            return False
        return not self._recording.samples("agent_generated", at, at + frame.end - frame.start).any()

    def _apply(self, effect: object, step: Step, frames: list[Step]) -> None:
        engine, session = self._engine, self._recording.manifest.session
        if isinstance(effect, OpenEngine):
            engine.open(effect.fence, effect.config, self._emit)
        elif isinstance(effect, AppendInput):
            pcm, rate = self._heard(step)
            engine.append(session, effect.start, pcm, rate)
        elif isinstance(effect, AdvanceEpoch):
            # What it had made before it learned of the cut may have been told later, or not at all.
            epoch = effect.fence.epoch
            earlier = sum(isinstance(one.event, DuplexFrame) and one.event.fence.epoch < epoch for one in frames)
            earlier += sum(own == epoch for own in self._holes.values())
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
        made, pcm, codes = self._made[index]
        if (made.start, made.end) != (recorded.start, recorded.end):
            return f"{place}: the frame that comes in its place is the one at {made.start / TICK_RATE:.2f} s"
        if step.number in self._holes:
            return ""
        if (made.speaking, made.text) != (recorded.speaking, recorded.text):
            was_said, is_said = (recorded.speaking, recorded.text), (made.speaking, made.text)
            return f"{place}: speaking and text were {was_said} and are {is_said}"
        before = self._codes.get(step.at or 0)
        if before is not None and codes is not None:
            self.coded += 1
            if before != codes:
                which = next(book for book, pair in enumerate(zip(before, codes, strict=False)) if pair[0] != pair[1])
                return f"{place}: the code of codebook {which} was {before[which]} and is {codes[which]}"
        was = self._recording.samples("agent_generated", step.at or 0, (step.at or 0) + recorded.end - recorded.start)
        apart = np.abs(pcm.astype(np.int32) - was) if len(pcm) == len(was) else np.full(1, 1 << 16)
        self.furthest = max(self.furthest, int(apart.max(initial=0)))
        if self.furthest > ROUNDING:
            return f"{place}: sample {int(apart.argmax())} is another one, by {int(apart.max())}"
        return ""
