"""The slot engine: sessions come and go, the batch stays; one step per tick for all of them.

Commands come from any thread and take effect at the next tick; `tick` is called by one thread, which alone touches the
model. A session whose audio is late misses the tick, and catches up in extra steps of the same tick in which the others
rest, so many and no more. A session whose numbers are no longer finite is ended by itself.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from .model import SlotModel, StepInput, StepOutput
from .table import Lease, SlotTable

Stamp = TypeVar("Stamp")
Policy = Literal["keep", "annotate", "rewind"]
Pcm = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SlotOutput(Generic[Stamp]):
    """One frame of one session.

    `stamp` is what was set when the frame was begun, `lease` whose frame it is: whoever lets it out compares both.
    """

    lease: Lease
    stamp: Stamp
    number: int
    """The user's frame that it answers, from 0."""
    pcm: Pcm
    """float32 [hop] in -1..1"""
    text: int
    """Token of the inner text stream; -1: none."""
    said: tuple[int, ...]
    """The agent's codes; -1 where the model has not begun."""
    hushed: bool
    """The agent was made to be silent."""
    lost: bool = False
    """The user's frame was thrown away unheard, and the model made none; `pcm` is silence."""
    fault: Literal["", "not_finite"] = ""
    """Why this is the session's last output."""


@dataclass(frozen=True, slots=True)
class Forced:
    """One frame of a prompt: what both speakers and the inner text are given in it. Codes of each codebook."""

    text: int
    said: tuple[int, ...]
    heard: tuple[int, ...]


class PromptRefused(ValueError):
    """A session cannot be prepared as it is configured. `code` is what its client is told."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True, kw_only=True)
class SlotOptions:
    """How the engine treats late audio and interruptions. Lengths in frames."""

    policy: Policy = "keep"
    """After an interruption. "keep": the model believes that all was heard. "annotate": it hears itself fall silent.
    "rewind": it goes back to what was heard and is then given the user's later frames again, silent itself."""
    hush: int = 6
    """How long an agent that was cut is kept silent (not with "keep")."""
    catch_up: int = 3
    """Extra steps per tick at most."""
    waiting: int = 25
    """Frames of a session that may wait; the oldest beyond are not listened to."""
    prompting: int = 12
    """Extra steps per tick at most, while there is time, for sessions that are being prepared."""


@dataclass(slots=True)
class _Seat(Generic[Stamp]):
    lease: Lease
    stamp: Stamp
    seed: int
    waiting: deque[Pcm] = field(default_factory=deque)
    lost: int = 0
    """Frames that were thrown away unheard and are still to be answered with silence."""
    number: int = 0
    heard: deque[tuple[int, ...]] = field(default_factory=deque)
    replay: deque[tuple[int, ...]] = field(default_factory=deque)
    prompt: deque[Forced] = field(default_factory=deque)
    """What is left to be given before it listens."""
    anew: bool = False
    """It begins from its prompt again with the next tick."""
    hush: int = 0
    cut: int | None = None
    """Frame from which on nothing was heard, until the next tick has acted on it."""
    ready: bool = False
    """The slot has been zeroed for this session."""

    @property
    def has_work(self) -> bool:
        # What came while a tick was running waits for the next, which prepares the slot for it.
        return self.ready and self.cut is None and bool(self.prompt or self.replay or self.waiting)


class SlotEngine(Generic[Stamp]):
    """Sessions in the slots of `model`. `now`: seconds on any clock that only grows.

    `counters`: "sessions_refused", "frames_lost", "frames_unready", "frames_stale", "slots_failed", "frames_replayed",
    "frames_prompted", "steps", "steps_extra".
    """

    def __init__(self, model: SlotModel, options: SlotOptions | None = None, *, now: Callable[[], float]) -> None:
        self.model = model
        self.options = options or SlotOptions()
        if self.options.policy == "rewind" and model.margin < 1:
            raise ValueError("policy 'rewind' needs a model with a margin; give it one, or choose 'annotate'")
        self._now = now
        self._lock = threading.Lock()
        self._table = SlotTable(model.batch, tick=model.hop / model.sample_rate)
        self._seats: dict[Lease, _Seat[Stamp]] = {}
        self._counters: Counter[str] = Counter()
        self._given = _inputs(model)
        g = self._given
        # The same memory, for filling it row by row: an assignment to an array costs a fraction of one to a tensor.
        self._rows = [part.numpy() for part in (g.run, g.hears, g.hush, g.forced, g.pcm, g.codes, g.text, g.said)]

    # --- from any thread ---------------------------------------------------------------------------------------------

    @property
    def counters(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counters)

    @property
    def taken(self) -> int:
        """Slots that are let."""
        with self._lock:
            return self._table.taken

    def admit(self, stamp: Stamp, seed: int, prompt: Sequence[Forced] = ()) -> Lease:
        """Let a slot. Raises Busy at once where none is free. `seed`: 0..2**31-1, what the session draws from.

        Until the model has been given all of `prompt`, the session does not listen: frames are answered with silence.
        """
        if not 0 <= seed < 1 << 31:
            raise ValueError(f"seed {seed} is outside 0..2**31-1")
        with self._lock:
            try:
                lease = self._table.admit(self._now())
            except Exception:
                self._counters["sessions_refused"] += 1
                raise
            self._seats[lease] = _Seat(lease, stamp, seed, prompt=deque(prompt))
            return lease

    def restart(self, lease: Lease, prompt: Sequence[Forced]) -> None:
        """Forget all that was said and begin with `prompt`; frames go on being counted."""
        with self._lock:
            seat = self._seats.get(lease)
            if seat is not None:
                self._table.soil(lease)
                seat.prompt = deque(prompt)
                seat.anew = True
                seat.lost += len(seat.waiting)
                self._counters["frames_unready"] += len(seat.waiting)
                seat.waiting.clear()

    def release(self, lease: Lease) -> None:
        """Give a slot back; it can be let at once. An old lease is a finished one."""
        with self._lock:
            self._table.release(lease, self._now())
            self._seats.pop(lease, None)

    def holds(self, lease: Lease) -> bool:
        """Whether the session still has its slot."""
        with self._lock:
            return self._table.holds(lease)

    def feed(self, lease: Lease, pcm: Pcm) -> None:
        """The next frame of a session's user, float32 [hop]. Raises ValueError for another length or odd numbers."""
        if pcm.shape != (self.model.hop,):
            raise ValueError(f"pcm has shape {list(pcm.shape)}; a frame has [{self.model.hop}] samples")
        if not np.isfinite(pcm).all():
            raise ValueError("pcm holds numbers that are not finite; give samples in -1..1")
        with self._lock:
            seat = self._seats.get(lease)
            if seat is None:
                return
            if seat.prompt:
                seat.lost += 1
                self._counters["frames_unready"] += 1
                return
            seat.waiting.append(pcm)
            if len(seat.waiting) > self.options.waiting:
                seat.waiting.popleft()
                seat.lost += 1
                self._counters["frames_lost"] += 1

    def cut(self, lease: Lease, stamp: Stamp, heard: int) -> None:
        """The agent was interrupted; its frames before number `heard` were heard. From now on output has `stamp`."""
        with self._lock:
            seat = self._seats.get(lease)
            if seat is not None:
                seat.stamp = stamp
                # An interruption before the last one was acted on can only have heard less.
                seat.cut = heard if seat.cut is None else min(seat.cut, heard)

    def restamp(self, lease: Lease, stamp: Stamp) -> None:
        """Output carries `stamp` from now on; nothing was interrupted."""
        with self._lock:
            seat = self._seats.get(lease)
            if seat is not None:
                seat.stamp = stamp

    # --- from the thread of the model --------------------------------------------------------------------------------

    def tick(self, until: float | None = None) -> list[SlotOutput[Stamp]]:
        """Step every session that has audio; then, while the clock is before `until`, those that are behind."""
        out: list[SlotOutput[Stamp]] = []
        self._prepare(out)
        # Whoever is being prepared must not make the others late, so a step is only begun that will end in time.
        longest, began = 0.0, self._now()
        for turn in range(1 + max(self.options.catch_up, self.options.prompting)):
            if turn:
                longest, began = max(longest, self._now() - began), self._now()
            if turn and until is not None and began + longest >= until:
                break
            with self._lock:
                seats = [
                    seat
                    for seat in self._seats.values()
                    if seat.has_work and turn <= (self.options.prompting if seat.prompt else self.options.catch_up)
                ]
                if not seats:
                    break
                work = [self._take(seat) for seat in seats]
                self._counters["steps_extra" if turn else "steps"] += 1
            out += self._step(work)
        return out

    def _prepare(self, out: list[SlotOutput[Stamp]]) -> None:
        """Zero the slots that changed hands, act on cuts, answer what was lost."""
        seeds, back = [0] * self.model.batch, [0] * self.model.batch
        with self._lock:
            unclean = self._table.clean()
            for seat in self._seats.values():
                seat.ready = True
                if seat.anew:
                    seat.anew, seat.cut, seat.hush = False, None, 0
                    seat.heard.clear()
                    seat.replay.clear()
                seeds[seat.lease.slot] = seat.seed
                back[seat.lease.slot] = self._cut(seat)
                while seat.lost:
                    seat.lost -= 1
                    out.append(self._silence(seat))
        if unclean:
            mask = torch.zeros(self.model.batch, dtype=torch.bool)
            mask[list(unclean)] = True
            self.model.reset(mask, torch.tensor(seeds))
        if any(back):
            self.model.rewind(torch.tensor(back))

    def _cut(self, seat: _Seat[Stamp]) -> int:
        """Frames by which the model has to go back for `seat`."""
        heard, seat.cut = seat.cut, None
        if heard is None or self.options.policy == "keep":
            return 0
        seat.hush = self.options.hush
        if self.options.policy == "annotate":
            return 0
        # What waits to be replayed is in the future already; the model stands before it.
        done = len(seat.replay)
        back = max(0, min(seat.number - done - heard, len(seat.heard) - done))
        for _ in range(back):
            seat.replay.appendleft(seat.heard[-len(seat.replay) - 1])
        return back

    def _silence(self, seat: _Seat[Stamp]) -> SlotOutput[Stamp]:
        nothing = (-1,) * self.model.codebooks
        number, seat.number = seat.number, seat.number + 1
        return SlotOutput(
            seat.lease, seat.stamp, number, np.zeros(self.model.hop, np.float32), -1, nothing, hushed=False, lost=True
        )

    def _take(self, seat: _Seat[Stamp]) -> _Work[Stamp]:
        if seat.prompt:
            self._counters["frames_prompted"] += 1
            forced = seat.prompt.popleft()
            return _Work(seat, seat.stamp, -1, None, forced.heard, False, forced)
        hushed = bool(seat.replay) or seat.hush > 0
        if seat.replay:
            self._counters["frames_replayed"] += 1
            return _Work(seat, seat.stamp, -1, None, seat.replay.popleft(), hushed)
        seat.hush = max(0, seat.hush - 1)
        number, seat.number = seat.number, seat.number + 1
        return _Work(seat, seat.stamp, number, seat.waiting.popleft(), None, hushed)

    def _step(self, work: list[_Work[Stamp]]) -> list[SlotOutput[Stamp]]:
        result = self.model.step(self._gather(work))
        pcm = result.pcm.float().cpu().numpy()
        text, heard, said, finite = (
            part.cpu().tolist() for part in (result.text, result.heard, result.said, result.finite)
        )
        out = []
        with self._lock:
            for job in work:
                seat, slot = job.seat, job.seat.lease.slot
                if not self._table.holds(seat.lease):
                    self._counters["frames_stale"] += 1
                    continue
                fault: Literal["", "not_finite"] = "" if finite[slot] else "not_finite"
                if fault:
                    self._counters["slots_failed"] += 1
                    self._table.release(seat.lease, self._now())
                    self._seats.pop(seat.lease)
                elif job.pcm is not None:
                    seat.heard.append(tuple(heard[slot]))
                    if len(seat.heard) > self.model.margin:
                        seat.heard.popleft()
                if job.pcm is None and not fault:
                    continue
                samples = np.zeros_like(pcm[slot]) if fault else pcm[slot].copy()
                codes = tuple(said[slot])
                out.append(
                    SlotOutput(seat.lease, job.stamp, job.number, samples, text[slot], codes, job.hushed, fault=fault)
                )
        return out

    def _gather(self, work: list[_Work[Stamp]]) -> StepInput:
        given = self._given
        for mask in (given.run, given.hears, given.hush, given.forced):
            mask.fill_(False)
        run, hears, hush, forced, pcm, codes, text, said = self._rows
        for job in work:
            slot = job.seat.lease.slot
            run[slot] = True
            hush[slot] = job.hushed
            if job.pcm is not None:
                hears[slot] = True
                pcm[slot] = job.pcm
            elif job.codes is not None:
                codes[slot] = job.codes
            if job.forced is not None:
                forced[slot], text[slot], said[slot] = True, job.forced.text, job.forced.said
        return given


def _inputs(model: SlotModel) -> StepInput:
    """One step's inputs, filled anew for each."""
    codes = torch.zeros(model.batch, model.codebooks, dtype=torch.int64)
    run, hears, hush, forced = (torch.zeros(model.batch, dtype=torch.bool) for _ in range(4))
    text = torch.zeros(model.batch, dtype=torch.int64)
    return StepInput(run, hears, torch.zeros(model.batch, model.hop), codes, hush, forced, text, codes.clone())


@dataclass(frozen=True, slots=True)
class _Work(Generic[Stamp]):
    """What one seat does in one step: hear a frame, replay one, or be given one."""

    seat: _Seat[Stamp]
    stamp: Stamp
    number: int
    pcm: Pcm | None
    codes: tuple[int, ...] | None
    hushed: bool
    forced: Forced | None = None


__all__ = ["Forced", "Policy", "PromptRefused", "SlotEngine", "SlotOptions", "SlotOutput", "StepOutput"]
