"""Responses outside the conversation: a lane of their own, beside whatever is being said.

They read the conversation (or an input of their own) and leave nothing in it. The client decides what becomes of their
output, so their audio is admitted as it is made (or, while the peer does not read, as soon as it reads again), is on no
playback ledger, and no interruption concerns it.
"""

from __future__ import annotations

from . import counters
from .context import ContextEntry
from .conversation import Item
from .effects import AdmitFrame, CancelResponse, Count, DropAudio, Effect, GrantCredit, Notify, ReleaseTrack
from .events import (
    EngineAudio,
    EngineDone,
    EngineDraft,
    EngineFailed,
    EngineStage,
    EngineText,
    EngineToolCall,
    EngineWords,
    ResponseCreate,
)
from .fence import OUT_OF_BAND, Fence
from .notices import (
    CommandFailed,
    Notice,
    OutputClosed,
    OutputOpened,
    OutputText,
    ResponseClosed,
    ResponseOpened,
    ResponseStatus,
    ResponseView,
)
from .speaking import new_response, start_effect
from .state import Aside, State

EngineEvent = (
    EngineAudio | EngineWords | EngineText | EngineDraft | EngineToolCall | EngineStage | EngineDone | EngineFailed
)


class Asides:
    """Effects of the responses outside the conversation."""

    def __init__(self, state: State, out: list[Effect]) -> None:
        self._s = state
        self._out = out

    def _notify(self, notice: Notice) -> None:
        self._out.append(Notify(notice))

    def begin(self, request: ResponseCreate, given: tuple[ContextEntry, ...] | None) -> None:
        """Start one. `given`: what it reads instead of the conversation."""
        s = self._s
        response = new_response(s, request, Fence(s.session, s.incarnation, OUT_OF_BAND))
        response.announced = response.started = True
        response.credit = s.config.credit
        aside = s.asides[response.id] = Aside(response)
        self._notify(ResponseOpened(self._view(aside, "in_progress")))
        context = s.conversation.context(hears=s.abilities.hears_turns) if given is None else given
        self._out.append(start_effect(response, s.config, context))

    def take(self, event: EngineEvent) -> None:
        """What the engine made for one of them; `event.response` is in `State.asides`."""
        aside = self._s.asides[event.response]
        if event.fence != aside.response.fence:
            self._stale(event)
            return
        match event:
            case EngineStage() | EngineDraft():
                pass
            case EngineFailed():
                self._notify(CommandFailed(event.code, event.message, kind="server_error"))
                self._close(aside, "failed", event.code, event.message)
            case _ if aside.response.done:
                self._out.append(Count(counters.ENGINE_FAULT))
            case EngineAudio():
                self._audio(aside, event)
            case EngineWords() | EngineText() if isinstance(event, EngineText) != (aside.response.modality == "text"):
                self._out.append(Count(counters.ENGINE_FAULT))
            case EngineWords():
                item = self._message(aside, spoken=True)
                item.words.extend(event.words)
                self._say(aside, item, "".join(word.text for word in event.words), spoken=True)
            case EngineText():
                self._say(aside, self._message(aside, spoken=False), event.text, spoken=False)
            case EngineToolCall():
                self._call(aside, event)
            case EngineDone():
                aside.response.done = True
                aside.response.reason = event.reason
                aside.response.input_tokens = event.input_tokens
                aside.response.output_tokens = event.output_tokens
                self._let_out(aside)

    def _stale(self, event: EngineEvent) -> None:
        if not isinstance(event, EngineAudio):
            self._out.append(Count(counters.STALE_EVENT))
            return
        self._s.ledger.drop_stale(max(0, event.end - event.start))
        self._out.append(Count(counters.STALE_AUDIO))
        self._out.append(DropAudio(event.response, event.start, event.end, "stale"))

    def pump(self) -> None:
        """The carrier takes audio again: let out what waited for it."""
        for aside in list(self._s.asides.values()):
            self._let_out(aside)

    def cancel(self, response: str, why: str) -> None:
        """Stop one."""
        aside = self._s.asides[response]
        if not aside.response.done:
            self._out.append(CancelResponse(aside.response.fence, response))
        self._close(aside, "cancelled", why)

    def close(self) -> None:
        """Stop them all: the session is over, or nobody is there to take their output."""
        for response in list(self._s.asides):
            self.cancel(response, "superseded")

    # --- output ----------------------------------------------------------------------------------------------------

    def _message(self, aside: Aside, spoken: bool) -> Item:
        for item in aside.items:
            if item.id == aside.response.item:
                return item
        item = Item(self._s.fresh_id("item"), "assistant", status="in_progress", spoken=spoken)
        aside.response.item = item.id
        self._open(aside, item)
        return item

    def _open(self, aside: Aside, item: Item) -> None:
        aside.items.append(item)
        aside.response.outputs.append(item.id)
        self._notify(OutputOpened(aside.response.id, len(aside.items) - 1, item.view(), None, True))

    def _say(self, aside: Aside, item: Item, text: str, spoken: bool) -> None:
        item.text += text
        self._notify(OutputText(aside.response.id, aside.items.index(item), item.id, text, spoken))

    def _call(self, aside: Aside, event: EngineToolCall) -> None:
        item = Item(
            self._s.fresh_id("item"), "assistant", "function_call", "in_progress", call=event.call, name=event.name
        )
        self._open(aside, item)
        item.text = event.arguments
        self._done(aside, item)

    def _audio(self, aside: Aside, event: EngineAudio) -> None:
        if event.start != aside.generated or event.end <= event.start or aside.response.modality == "text":
            self._out.append(Count(counters.ENGINE_FAULT))
            return
        aside.generated = event.end
        self._let_out(aside)

    def _let_out(self, aside: Aside) -> None:
        """Admit what was made, unless nobody takes it now; an aside whose work is done and sent is closed."""
        s, response = self._s, aside.response
        if not s.attached or s.blocked:
            return
        if aside.admitted < aside.generated:
            item = self._message(aside, spoken=True)
            while aside.admitted < aside.generated:
                start, end = aside.admitted, min(aside.generated, aside.admitted + s.config.frame)
                self._out.append(
                    AdmitFrame(response.fence, s.sequence, response.id, item.id, start, end, s.now, response.id, start)
                )
                s.sequence += 1
                item.sent = aside.admitted = end
        if response.done:
            complete = response.reason == "completed"
            self._close(aside, "completed" if complete else "incomplete", "" if complete else response.reason)
        elif response.credit - aside.admitted < s.config.credit // 2:
            response.credit = aside.admitted + s.config.credit
            self._out.append(GrantCredit(response.fence, response.id, response.credit))

    # --- ending ----------------------------------------------------------------------------------------------------

    def _done(self, aside: Aside, item: Item, complete: bool = True) -> None:
        item.status = "completed" if complete else "incomplete"
        self._notify(OutputClosed(aside.response.id, aside.items.index(item), item.view(), None, True))

    def _close(self, aside: Aside, status: ResponseStatus, detail: str = "", message: str = "") -> None:
        if aside.admitted < aside.generated:
            self._out.append(DropAudio(aside.response.id, aside.admitted, aside.generated, "cleared"))
        for item in aside.items:
            if item.status == "in_progress":
                self._done(aside, item, status == "completed")
        del self._s.asides[aside.response.id]
        self._notify(ResponseClosed(self._view(aside, status, detail, message)))
        self._out.append(ReleaseTrack(aside.response.id))

    def _view(self, aside: Aside, status: ResponseStatus, detail: str = "", message: str = "") -> ResponseView:
        response = aside.response
        return ResponseView(
            response.id,
            status,
            response.modality,
            tuple(item.view() for item in aside.items),
            detail,
            message,
            response.metadata,
            response.max_output_tokens,
            response.input_tokens,
            response.output_tokens,
            True,
        )
