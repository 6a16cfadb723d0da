"""The checker's books of responses outside the conversation.

They share the sequence numbers of the frames and nothing else with the conversation: no interruption, no hold and no
lead concerns them, and what they do leaves no trace in it. Each that is opened is closed exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sessions.core import counters
from sessions.core.context import ContextEntry
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    CancelResponse,
    DropAudio,
    Effect,
    GrantCredit,
    Notify,
    ReleaseTrack,
    StartResponse,
)
from sessions.core.events import (
    ENGINE_EVENTS,
    CarrierAttached,
    CarrierLost,
    Close,
    EngineAudio,
    EngineDone,
    EngineFailed,
    EngineText,
    EngineToolCall,
    EngineWords,
    Event,
    OwnershipLost,
    OwnershipTaken,
    ResponseCancel,
    ResponseCreate,
    TimerDue,
)
from sessions.core.fence import OUT_OF_BAND, Fence
from sessions.core.notices import OutputClosed, OutputOpened, OutputText, ResponseClosed, ResponseOpened
from sessions.core.timeline import Ticks

from .violations import Violation, require


@dataclass
class Beside:
    """One response outside the conversation."""

    id: str
    modality: str
    own: bool
    fence: Fence | None = None
    credit: Ticks = 0
    generated: Ticks = 0
    admitted: Ticks = 0
    dropped: Ticks = 0
    done: bool = False
    failed: bool = False
    cancelled: bool = False
    closed: bool = False
    released: bool = False
    item: str = ""
    made: str = ""
    told: str = ""
    outputs: list[str] = field(default_factory=list)
    open_outputs: set[str] = field(default_factory=set)
    calls: int = 0
    called: int = 0


class AsideBooks:
    """Judges everything that concerns a response outside the conversation. `sequence` is the whole session's."""

    def __init__(self, incarnation: int, frame: Callable[[], Ticks], credit: Callable[[], Ticks]) -> None:
        self.books: dict[str, Beside] = {}
        self.incarnation = incarnation
        self._frame = frame
        self._credit = credit
        self._wanted = 0
        self._do: dict[type, Callable[[Beside, Any], None]] = {
            AdmitFrame: self._admit,
            StartResponse: self._start,
            CancelResponse: self._cancel,
            GrantCredit: self._grant,
            DropAudio: self._drop,
            ReleaseTrack: self._release,
            OutputOpened: self._output_opened,
            OutputText: self._text,
            OutputClosed: self._output_closed,
            ResponseClosed: self._response_closed,
        }
        self._event: Event | None = None
        self._now: Ticks = 0

    @property
    def open(self) -> list[Beside]:
        return [book for book in self.books.values() if not book.closed]

    # --- events ----------------------------------------------------------------------------------------------------

    def event(self, event: Event, now: Ticks, counted: dict[str, int], effects: list[Effect]) -> bool:
        """Note an event; whether it belongs to an open response of ours and is booked here alone."""
        self._event, self._now = event, now
        refused = counted.get(counters.REJECTED, 0)
        self._wanted = int(isinstance(event, ResponseCreate) and event.aside and not refused)
        named = event.response if isinstance(event, (ResponseCancel, *ENGINE_EVENTS)) else None
        book = self.books.get(named) if named else None
        if book is None or book.closed:
            return False
        advanced = any(isinstance(effect, AdvanceEpoch) for effect in effects)
        require(not advanced, "5", lambda: f"{event} of a response outside the conversation began an epoch")
        if isinstance(event, ResponseCancel):
            require(not refused, "5", lambda: f"{event} names what is in progress and was refused")
            return True
        if event.fence != book.fence:  # type: ignore[union-attr]
            return False
        faults = counted.get(counters.ENGINE_FAULT, 0)
        if isinstance(event, EngineFailed):
            book.failed = True
        elif book.done:
            return True
        elif isinstance(event, EngineAudio):
            fits = event.start == book.generated < event.end and book.modality == "audio"
            require(faults == (0 if fits else 1), "3", lambda: f"{event} of {book}: {faults} faults")
            book.generated = event.end if fits else book.generated
        elif isinstance(event, EngineWords):
            book.made += "".join(word.text for word in event.words) if book.modality == "audio" else ""
        elif isinstance(event, EngineText):
            book.made += event.text if book.modality == "text" else ""
        elif isinstance(event, EngineToolCall):
            book.calls += 1
        elif isinstance(event, EngineDone):
            book.done = True
        return True

    # --- effects ---------------------------------------------------------------------------------------------------

    def effect(self, effect: Effect, sequence: int, takes: bool) -> bool:
        """Judge an effect; whether it concerns one of ours. `takes`: whether the carrier takes audio now."""
        what: Any = effect.notice if isinstance(effect, Notify) else effect
        if isinstance(what, ResponseOpened):
            return self._opened(what)
        name = getattr(what, "response", getattr(what, "source", None))
        book = self.books.get(str(what.response.id if isinstance(what, ResponseClosed) else name))
        do = self._do.get(type(what))
        if book is None or do is None or (isinstance(what, DropAudio) and what.why == "stale"):
            return False
        if isinstance(what, AdmitFrame):
            require(what.sequence == sequence, "3", lambda: f"sequence {what.sequence} after {sequence - 1}")
            require(takes, "1", lambda: f"{what} to a carrier that does not take it")
        do(book, what)
        return True

    def _opened(self, notice: ResponseOpened) -> bool:
        if not notice.response.aside:
            return False
        event = self._event
        require(self._wanted == 1, "8", lambda: f"{notice} by {event}")
        assert isinstance(event, ResponseCreate)
        self._wanted = 0
        id = notice.response.id
        require(id not in self.books, "8", lambda: f"{id} opened twice")
        require(notice.response.metadata == event.metadata, "8", lambda: f"{notice} of {event}")
        self.books[id] = Beside(id, notice.response.modality, event.input is not None)
        return True

    def _start(self, book: Beside, effect: StartResponse) -> None:
        fence = effect.fence
        require(book.fence is None and not book.closed, "3", lambda: f"{book.id} was started twice")
        require(fence.order == (self.incarnation, OUT_OF_BAND), "1", lambda: f"{book.id} under {fence}")
        given = self._event.input if isinstance(self._event, ResponseCreate) else None
        if given is not None and all(isinstance(entry, ContextEntry) for entry in given):
            require(effect.context == given, "4", lambda: f"{book.id} reads {effect.context} instead of {given}")
        book.fence, book.credit = fence, effect.credit

    def _live(self, book: Beside, what: object) -> None:
        require(not book.closed, "8", lambda: f"{what} after {book.id} was closed")

    def _admit(self, book: Beside, frame: AdmitFrame) -> None:
        self._live(book, frame)
        require(frame.fence == book.fence, "1", lambda: f"{frame} re-labels {book.fence}")
        require(frame.item == book.item, "3", lambda: f"{frame} of another item than {book.item}")
        require(frame.start == book.admitted < frame.end <= book.generated, "3", lambda: f"{frame} of {book}")
        require(frame.end - frame.start <= self._frame(), "3", lambda: f"{frame} is longer than a frame")
        require(
            (frame.source, frame.source_start) == (book.id, frame.start), "3", lambda: f"{frame} from a wrong place"
        )
        require(frame.placed_at == self._now, "3", lambda: f"{frame} at {self._now}")
        book.admitted = frame.end

    def _cancel(self, book: Beside, effect: CancelResponse) -> None:
        self._live(book, effect)
        require(not book.done and not book.cancelled, "5", lambda: f"{effect} names something finished")
        require(effect.fence == book.fence, "1", lambda: f"{effect} for {book.fence}")
        book.cancelled = True

    def _grant(self, book: Beside, effect: GrantCredit) -> None:
        self._live(book, effect)
        require(effect.fence == book.fence, "1", lambda: f"{effect} for {book.fence}")
        require(effect.until > book.credit, "3", lambda: f"{effect} after {book.credit}")
        require(effect.until - book.admitted <= self._credit(), "3", lambda: f"{effect} with {book.admitted} admitted")
        book.credit = effect.until

    def _drop(self, book: Beside, effect: DropAudio) -> None:
        require(book.dropped == 0, "2", lambda: f"{effect} twice")
        require(
            (effect.start, effect.end) == (book.admitted, book.generated), "2", lambda: f"{effect} is not what was left"
        )
        book.dropped = effect.end - effect.start

    def _release(self, book: Beside, effect: ReleaseTrack) -> None:
        require(book.closed and not book.released, "8", lambda: f"{effect} of {book}")
        require(book.generated == book.admitted + book.dropped, "2", lambda: f"{effect} with samples in it")
        book.released = True

    # --- what the client is told -----------------------------------------------------------------------------------

    def _output_opened(self, book: Beside, notice: OutputOpened) -> None:
        self._live(book, notice)
        require(notice.aside and notice.previous is None, "4", lambda: f"{notice} stands in the conversation")
        require(notice.index == len(book.outputs), "8", lambda: f"{notice} after {len(book.outputs)} outputs")
        book.outputs.append(notice.item.id)
        book.open_outputs.add(notice.item.id)
        if notice.item.kind == "message":
            require(not book.item, "8", lambda: f"a second message in {book.id}")
            require(
                notice.item.spoken == (book.modality == "audio"), "8", lambda: f"{notice} of a {book.modality} response"
            )
            book.item = notice.item.id
        else:
            book.called += 1

    def _text(self, book: Beside, notice: OutputText) -> None:
        self._live(book, notice)
        require(
            notice.item == book.item and notice.spoken == (book.modality == "audio"), "8", lambda: f"{notice} of {book}"
        )
        book.told += notice.text
        require(book.made.startswith(book.told), "3", lambda: f"{book.id} told {book.told!r} of {book.made!r}")

    def _output_closed(self, book: Beside, notice: OutputClosed) -> None:
        self._live(book, notice)
        require(notice.aside and notice.previous is None, "4", lambda: f"{notice} stands in the conversation")
        require(notice.item.id in book.open_outputs, "8", lambda: f"{notice.item.id} is not open")
        book.open_outputs.remove(notice.item.id)

    def _response_closed(self, book: Beside, notice: ResponseClosed) -> None:
        self._live(book, notice)
        event, status = self._event, notice.response.status
        require(notice.response.aside, "8", lambda: f"{notice} is not said to be outside the conversation")
        require(not book.open_outputs, "8", lambda: f"{book.id} closed with {book.open_outputs} open")
        require([item.id for item in notice.response.items] == book.outputs, "8", lambda: f"{notice} of {book.outputs}")
        if status == "cancelled":
            ends = isinstance(event, CarrierLost | CarrierAttached | Close | OwnershipLost | OwnershipTaken | TimerDue)
            ends = ends or (isinstance(event, EngineFailed) and not event.response)
            ends = ends or (isinstance(event, ResponseCancel) and event.response == book.id)
            require(ends, "5", lambda: f"{event} ended {book.id}, which it does not concern")
            require(book.cancelled or book.done, "8", lambda: f"{book.id} was cancelled and the engine not told")
        elif status == "failed":
            require(book.failed, "8", lambda: f"{notice} without a failure")
        else:
            require(book.done, "8", lambda: f"{notice} before the engine was done")
            require(book.admitted == book.generated, "3", lambda: f"{book} closed with audio to come")
            require(book.told == book.made, "3", lambda: f"{book.id} told {book.told!r} of {book.made!r}")
            require(book.called == book.calls, "3", lambda: f"{book.id} told of {book.called} of {book.calls} calls")
        book.closed = True

    # --- ends ------------------------------------------------------------------------------------------------------

    def settle(self, takes: bool) -> None:
        """After each step: nothing stands still that could go on, and what was asked for has been opened."""
        require(self._wanted == 0, "8", lambda: f"{self._event} opened nothing")
        for book in self.books.values():
            self._settled(book, takes)

    def _settled(self, book: Beside, takes: bool) -> None:
        require(book.fence is not None, "alive", lambda: f"{book.id} was never started")
        require(book.released == book.closed, "8", lambda: f"the track of {book.id} was not released with its end")
        if takes and not book.closed:
            require(book.admitted == book.generated, "alive", lambda: f"{book} could go on")
            require(not book.done and not book.failed, "alive", lambda: f"{book} is done and open")

    def end(self) -> None:
        left = [book.id for book in self.open]
        if left:
            raise Violation("8", f"responses {left} outside the conversation are open after the end")
