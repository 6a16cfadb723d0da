"""The agent's side: one owner of the output lane, from a response's start to the end of its last sample."""

from __future__ import annotations

from typing import Literal

from . import counters
from .config import SessionConfig
from .context import ContextEntry
from .conversation import Item
from .effects import (
    AdmitFrame,
    AdvanceEpoch,
    CancelResponse,
    Count,
    DropAudio,
    Effect,
    FlushCarrier,
    GrantCredit,
    HoldCarrier,
    Notify,
    ReleaseTrack,
    ResumeCarrier,
    SetTimer,
    StartResponse,
    TellEngine,
)
from .events import (
    DuplexFrame,
    EngineAudio,
    EngineDone,
    EngineDraft,
    EngineFailed,
    EngineForgot,
    EngineStage,
    EngineText,
    EngineToolCall,
    EngineWords,
    PlaybackReported,
    ResponseCreate,
)
from .fence import Fence
from .notices import (
    CommandFailed,
    EpochBegan,
    HeardBy,
    ItemStatus,
    Notice,
    OutputClosed,
    OutputDraft,
    OutputOpened,
    OutputText,
    PlaybackAcknowledged,
    PlaybackCleared,
    PlaybackStarted,
    PlaybackStopped,
    ResponseClosed,
    ResponseOpened,
    ResponseStatus,
    ResponseView,
    StageReached,
)
from .playback import Track
from .state import Response, Sounding, State
from .timeline import Span, Ticks, Word, from_ms

Cause = Literal["barge_in", "key_pressed", "withdrawn", "client_cancel", "client_clear", "detached", "superseded"]

PLAYED_GRACE = from_ms(1000)
"""How long a client that acknowledges, or stands still, may take to report the end before the rest is unknown."""
MUTE_MAX = from_ms(2000)
"""How long an engine that owns its turns stays muted after a hard interruption if it does not yield."""


def new_response(state: State, request: ResponseCreate, fence: Fence) -> Response:
    """A response as `request` wants it, the session's configuration where it says nothing."""
    config = state.config
    response = Response(
        id=state.fresh_id("resp"),
        fence=fence,
        modality=request.modality or config.modality,
        instructions=config.instructions if request.instructions is None else request.instructions,
        tool_choice=request.tool_choice or config.tool_choice,
        max_output_tokens=request.max_output_tokens or config.max_output_tokens,
        metadata=request.metadata,
        tools=config.tools if request.tools is None else request.tools,
        voice=request.voice or config.voice,
        asked=state.now,
    )
    response.source = response.id
    return response


def start_effect(response: Response, config: SessionConfig, context: tuple[ContextEntry, ...]) -> StartResponse:
    """The engine's order for `response`."""
    return StartResponse(
        fence=response.fence,
        response=response.id,
        context=context,
        instructions=response.instructions,
        modality=response.modality,
        voice=response.voice,
        speed=config.speed,
        tools=response.tools,
        tool_choice=response.tool_choice,
        max_output_tokens=response.max_output_tokens,
        temperature=config.temperature,
        credit=response.credit,
    )


class Speaking:
    """Effects of everything that the agent does. Appends to `out`, which `Session.handle` collects."""

    def __init__(self, state: State, out: list[Effect]) -> None:
        self._s = state
        self._out = out

    def _notify(self, notice: Notice) -> None:
        self._out.append(Notify(notice))

    def _count(self, name: str, by: int = 1) -> None:
        self._out.append(Count(name, by))

    # --- beginning -------------------------------------------------------------------------------------------------

    def begin(
        self,
        request: ResponseCreate | None = None,
        spoken: str = "",
        announced: bool = True,
        given: tuple[ContextEntry, ...] | None = None,
        asked: Ticks | None = None,
    ) -> None:
        """Take the output lane with a new response.

        `spoken`: words of the user that are not in the conversation yet (a turn that is still closing). `given`: what
        the response reads instead of the conversation. `asked`: since when it is waited for; None: from now on.
        """
        s = self._s
        response = new_response(s, request or ResponseCreate(), s.fence)
        response.input = given
        if asked is not None:
            response.asked = asked
        s.active = response
        s.ledger.open(response.id, s.acknowledged)
        if announced:
            self.announce()
        else:
            self._count(counters.SPECULATED)
        if not s.awaiting:
            self.start(spoken)

    def start(self, spoken: str = "") -> None:
        """Set the engine to work on the active response: every word that it answers is known now."""
        s = self._s
        response = s.active
        if response is None or response.started or response.owned:
            return
        response.started = True
        response.credit = s.config.credit
        self._notify(StageReached(response.id, "words", s.now - response.asked))
        context = response.input
        if context is None:
            heard = None if s.utterance is None else Span(s.utterance.start, s.input.watermark)
            context = s.conversation.context(spoken, s.abilities.hears_turns, heard)
        self._out.append(start_effect(response, s.config, context))

    def announce(self) -> None:
        """Tell the client of the active response; from here on it may be heard."""
        response = self._s.active
        if response is None or response.announced:
            return
        response.announced = True
        self._notify(ResponseOpened(self._view(response, "in_progress")))
        self._tell_draft(response)

    def retract(self) -> None:
        """Throw away a response that nobody was told of."""
        s = self._s
        response = s.active
        if response is None or response.announced:
            return
        s.active = None
        self._count(counters.RETRACTED)
        if response.started and not response.done:
            self._out.append(CancelResponse(response.fence, response.id))
        track = s.ledger.tracks[response.id]
        track.freeze(s.now)
        self._discard(response.source, response.base, track)

    # --- what the engine makes -------------------------------------------------------------------------------------

    def _live(
        self,
        event: EngineAudio | EngineWords | EngineText | EngineDraft | EngineToolCall | EngineStage | EngineDone,
    ) -> bool:
        response = self._s.active
        if response is not None and response.id == event.response and response.fence == event.fence:
            if not response.done:
                return True
            self._count(counters.ENGINE_FAULT)
        else:
            self._count(counters.STALE_EVENT)
        return False

    def audio(self, event: EngineAudio) -> None:
        s = self._s
        response = s.active
        if response is None or response.id != event.response or response.fence != event.fence:
            self._stale_audio(event)
            return
        track = s.ledger.tracks[response.id]
        out_of_order = event.start != track.generated or event.end <= event.start
        if out_of_order or response.done or response.modality == "text":
            self._count(counters.ENGINE_FAULT)
            return
        track.generated = event.end
        self.pump()

    def _stale_audio(self, event: EngineAudio) -> None:
        length = max(0, event.end - event.start)
        track = self._s.ledger.tracks.get(event.response)
        if track is not None and track.closed:
            track.drop_stale(length)
        else:
            self._s.ledger.drop_stale(length)
        self._count(counters.STALE_AUDIO)
        self._out.append(DropAudio(event.response, event.start, event.end, "stale"))

    def words(self, event: EngineWords) -> None:
        if self._live(event) and self._s.active is not None:
            self._s.active.words.extend(event.words)

    def text(self, event: EngineText) -> None:
        response = self._s.active
        if not self._live(event) or response is None:
            return
        if response.modality == "audio":
            self._count(counters.ENGINE_FAULT)
            return
        response.texts.append(event.text)
        self.pump()

    def tool_call(self, event: EngineToolCall) -> None:
        if not event.response and self._s.abilities.engine_turns:
            self._owned_call(event)
        elif self._live(event) and self._s.active is not None:
            self._s.active.calls.append(event)
            self.pump()

    def draft(self, event: EngineDraft) -> None:
        """Text ahead of its sound; of a response that nobody was told of it waits."""
        response = self._s.active
        if not self._live(event) or response is None:
            return
        response.drafted += event.text
        self._tell_draft(response)

    def _tell_draft(self, response: Response) -> None:
        if response.announced and response.drafted:
            self._notify(OutputDraft(response.id, response.drafted))
            response.drafted = ""

    def stage(self, event: EngineStage) -> None:
        response = self._s.active
        if not event.response and event.fence.incarnation == self._s.incarnation:
            self._notify(StageReached("", event.stage))
        elif self._live(event) and response is not None:
            self._notify(StageReached(event.response, event.stage, self._s.now - response.asked))

    def done(self, event: EngineDone) -> None:
        response = self._s.active
        if not self._live(event) or response is None:
            return
        response.done = True
        response.reason = event.reason
        response.input_tokens = event.input_tokens
        response.output_tokens = event.output_tokens
        self.pump()

    def failed(self, event: EngineFailed) -> None:
        """The engine gave up: what was sent may be heard to its end, nothing more comes.

        A response that nobody was told of is thrown away; the end of the turn asks again.
        """
        s = self._s
        response = s.active
        if response is None or response.id != event.response or response.fence != event.fence:
            self._count(counters.STALE_EVENT)
            return
        if not response.announced:
            self.retract()
            return
        response.done = True
        self._notify(CommandFailed(event.code, event.message, kind="server_error"))
        self._finish(response, "failed", event.code, event.message)

    # --- letting it out --------------------------------------------------------------------------------------------

    @property
    def gated(self) -> bool:
        """Whether nothing may leave now: on hold, nobody there, or the user has the floor before the first sample."""
        s = self._s
        if s.held or not s.attached or s.blocked:
            return True
        response = s.active
        if response is None or not response.announced:
            return True
        turns = s.config.turns
        yields = turns is not None and turns.interrupt_response and not s.abilities.engine_turns
        return yields and s.policy.open and not response.outputs

    def pump(self) -> None:
        """Let out what may leave now: text at once, audio up to the lead ahead of playback."""
        s = self._s
        response = s.active
        if response is None or self.gated:
            return
        for text in response.texts:
            item = self._message(response, spoken=False)
            item.text += text
            self._notify(OutputText(response.id, response.outputs.index(item.id), item.id, text, False))
        response.texts.clear()
        for call in response.calls:
            self._emit_call(response, call)
        response.calls.clear()
        track = s.ledger.tracks[response.id]
        if track.generated > track.admitted:
            self._admit(response, track)
        if response.done and track.admitted == track.generated:
            if response.reason == "completed":
                self._finish(response, "completed")
            else:
                self._finish(response, "incomplete", response.reason)

    def _admit(self, response: Response, track: Track) -> None:
        s = self._s
        now = s.now
        frame = s.config.frame
        lead = max(s.config.lead, frame)
        horizon = now + lead
        fence = s.fence
        clock = s.ledger.clock
        while (available := track.generated - track.admitted) > 0:
            length = min(frame, available)
            if length < frame and not response.done and clock > now:
                break
            if max(now, clock) + length > horizon:
                self._wake(clock + length - lead)
                break
            start = track.admitted
            item = self._message(response, spoken=True)
            if start == 0:
                self._notify(PlaybackStarted(response.id))
                s.spoke = True
            placed_at = s.ledger.place(track, length, now)
            clock = s.ledger.clock
            item.sent = track.admitted
            if response.words and response.words[0].start < track.admitted:
                self._caption(response, item, track.admitted)
            self._out.append(
                AdmitFrame(
                    fence,
                    s.sequence,
                    response.id,
                    item.id,
                    start,
                    track.admitted,
                    placed_at,
                    response.source,
                    response.base + start,
                )
            )
            s.sequence += 1
        if response.credit - track.admitted < s.config.credit // 2 and not response.done and response.started:
            response.credit = track.admitted + s.config.credit
            self._out.append(GrantCredit(response.fence, response.id, response.credit))

    def _wake(self, due: Ticks) -> None:
        if self._s.pump_due != due:
            self._s.pump_due = due
            self._out.append(SetTimer("pump", due))

    def _caption(self, response: Response, item: Item, admitted: Ticks) -> None:
        """Words whose audio has begun to leave."""
        spoken: list[Word] = []
        while response.words and response.words[0].start < admitted:
            spoken.append(response.words.pop(0))
        item.words.extend(spoken)
        text = "".join(word.text for word in spoken)
        item.text += text
        self._notify(OutputText(response.id, response.outputs.index(item.id), item.id, text, True))

    def _message(self, response: Response, spoken: bool) -> Item:
        """The message item of a response, opened on first use."""
        s = self._s
        if response.item:
            item = s.conversation.find(response.item)
            if item is not None:
                return item
        item = Item(s.fresh_id("item"), "assistant", status="in_progress", spoken=spoken, response=response.id)
        response.item = item.id
        self._open_output(response, item)
        if spoken:
            s.sounding.append(Sounding(response.id, item.id))
        return item

    def _open_output(self, response: Response, item: Item) -> None:
        previous = self._s.conversation.append(item)
        response.outputs.append(item.id)
        self._notify(OutputOpened(response.id, len(response.outputs) - 1, item.view(), previous))

    def _emit_call(self, response: Response, call: EngineToolCall) -> None:
        conversation = self._s.conversation
        if call.call in conversation.open_calls or call.call in conversation.answered_calls:
            self._count(counters.ENGINE_FAULT)
            return
        item = Item(
            self._s.fresh_id("item"),
            "assistant",
            "function_call",
            status="in_progress",
            text="",
            call=call.call,
            name=call.name,
            response=response.id,
        )
        self._open_output(response, item)
        item.text = call.arguments
        conversation.open_calls.append(call.call)
        self._close_output(response, item, "completed")

    # --- ending ----------------------------------------------------------------------------------------------------

    def _close_output(self, response: Response, item: Item, status: ItemStatus) -> None:
        item.status = status
        previous = self._s.conversation.previous_of(item.id)
        self._notify(OutputClosed(response.id, response.outputs.index(item.id), item.view(), previous))

    def _finish(self, response: Response, status: ResponseStatus, detail: str = "", message: str = "") -> None:
        """Close the active response; its audio may still be playing. What was not sent of it never is."""
        s = self._s
        s.active = None
        s.replied = True
        track = s.ledger.tracks[response.id]
        item = s.conversation.find(response.item) if response.item else None
        if track.generated > track.admitted:
            start = response.base + track.admitted
            self._out.append(DropAudio(response.source, start, response.base + track.generated, "cleared"))
        if item is not None:
            if status != "completed" and item.words and item.words[-1].end > track.admitted:
                item.cut(track.admitted)
            if response.words and item.spoken and status == "completed":
                self._caption_rest(response, item)
            self._close_output(response, item, "completed" if status == "completed" else "incomplete")
        self._notify(ResponseClosed(self._view(response, status, detail, message)))
        if not response.owned:
            self._out.append(ReleaseTrack(response.source))
        if track.admitted == 0:
            track.settle(s.now)
            s.ledger.fold(response.id)
        else:
            self._look_for_end()

    def _caption_rest(self, response: Response, item: Item) -> None:
        """Words that the engine placed at or behind the last sample."""
        end = self._s.ledger.tracks[response.id].admitted
        rest = [Word(word.text, min(word.start, end), end) for word in response.words]
        response.words.clear()
        item.words.extend(rest)
        text = "".join(word.text for word in rest)
        item.text += text
        self._notify(OutputText(response.id, response.outputs.index(item.id), item.id, text, True))

    def _look_for_end(self) -> None:
        """When all that was admitted has been heard, as the model has it."""
        self._out.append(SetTimer("played", max(self._s.ledger.silent_from, self._s.now)))

    def settle(self) -> None:
        """Timer "played": close the tracks whose end has been reached."""
        s = self._s
        for sounding in list(s.sounding):
            track = s.ledger.tracks[sounding.response]
            if s.active is not None and s.active.id == sounding.response:
                continue
            ended = track.heard(s.now) >= track.admitted
            ends = s.ledger.silent_from
            waits = track.acknowledged or track.standing
            if not ended and not (waits and s.now >= ends + PLAYED_GRACE):
                if waits:
                    self._out.append(SetTimer("played", ends + PLAYED_GRACE))
                elif track.held_at is None:  # else it is looked at again when the carrier goes on
                    self._out.append(SetTimer("played", max(ends, track.heard_out)))
                continue
            track.settle(s.now)
            s.sounding.remove(sounding)
            s.ledger.fold(sounding.response)
            self._notify(PlaybackStopped(sounding.response, track.heard_by))

    def report(self, event: PlaybackReported) -> None:
        s = self._s
        track = s.ledger.tracks.get(event.response)
        accepted = track is not None and track.report(event.position, s.now)
        if track is not None and s.config.acknowledge_playback:
            heard = track.heard(s.now)
            self._notify(PlaybackAcknowledged(track.response, track.generated, track.admitted, heard, accepted))
        if track is None or not accepted:
            self._count(counters.BAD_REPORT)
            return
        if track.reported == track.admitted and self._s.sounding:
            self.settle()

    # --- interruption ----------------------------------------------------------------------------------------------

    def hold(self) -> None:
        if not self._s.held:
            self._s.held = True
            self._s.ledger.hold(self._s.now)
            self._out.append(HoldCarrier())

    def release(self) -> None:
        if self._s.held:
            self._s.held = False
            self._s.ledger.resume(self._s.now)
            self._out.append(ResumeCarrier())
            active = None if self._s.active is None else self._s.active.id
            if any(sounding.response != active for sounding in self._s.sounding):
                self._look_for_end()
            self.pump()

    @property
    def heard_anything(self) -> bool:
        """Whether any of what is being said has been heard."""
        s = self._s
        return any(s.ledger.tracks[sounding.response].heard(s.now) > 0 for sounding in s.sounding)

    def cut(self, cause: Cause, at: Ticks | None = None, first: Notice | None = None, lost: bool = False) -> None:
        """End the epoch: the only place where one ends.

        Playback is frozen and the history cut at the word before anything else can happen; then the gate moves, the
        engine stops, the carrier flushes, and only then is anyone told (`first` before the rest).
        """
        s = self._s
        self.retract()
        response = s.active
        s.active = None
        s.epoch += 1
        s.held = False
        s.replied = False
        s.pump_due = None
        fence = s.fence
        cleared: list[PlaybackCleared] = []
        for sounding in s.sounding:
            track = s.ledger.tracks[sounding.response]
            heard = track.freeze(s.now, lost)
            item = s.conversation.find(sounding.item)
            unfinished = response is not None and response.id == sounding.response
            if item is not None and (unfinished or heard < track.admitted):
                item.cut(heard)
                item.status = "incomplete"
            text = item.text if item is not None else ""
            cleared.append(PlaybackCleared(sounding.response, heard, text, track.heard_by))
        heard_of_it = self._heard_of(response) if response is not None and response.owned else None
        self._out.append(AdvanceEpoch(fence, heard_of_it))
        self._out.append(FlushCarrier(fence))
        if response is not None and response.started and not response.done:
            self._out.append(CancelResponse(response.fence, response.id))
        s.ledger.cut(s.now)
        if first is not None:
            self._notify(first)
        self._notify(EpochBegan(s.epoch, cause, at))
        for notice in cleared:
            self._notify(notice)
        if response is not None:
            self._abandon(response, cause)
        for sounding in s.sounding:
            if sounding.response in s.ledger.tracks:
                s.ledger.fold(sounding.response)
        s.sounding.clear()

    def _heard_of(self, response: Response) -> Ticks:
        """The end of what was heard of a response that was just cut, on the engine's track."""
        return response.base + self._s.ledger.tracks[response.id].played

    def _abandon(self, response: Response, cause: Cause) -> None:
        s = self._s
        item = s.conversation.find(response.item) if response.item else None
        if item is not None:
            self._close_output(response, item, "incomplete")
        track = s.ledger.tracks[response.id]
        if not track.closed:
            track.freeze(s.now)
        heard_by = track.heard_by if track.admitted else None
        self._discard(response.source, response.base, track)
        self._notify(ResponseClosed(self._view(response, "cancelled", cause, heard_by=heard_by)))

    def _discard(self, source: str, base: Ticks, track: Track) -> None:
        if track.generated > track.admitted:
            self._out.append(DropAudio(source, base + track.admitted, base + track.generated, "cleared"))
        if source == track.response:
            self._out.append(ReleaseTrack(source))
        self._s.ledger.fold(track.response)

    def _view(
        self,
        response: Response,
        status: ResponseStatus,
        detail: str = "",
        message: str = "",
        heard_by: HeardBy | None = None,
    ) -> ResponseView:
        items = [self._s.conversation.find(item_id) for item_id in response.outputs]
        return ResponseView(
            response.id,
            status,
            response.modality,
            tuple(item.view() for item in items if item is not None),
            detail,
            message,
            response.metadata,
            response.max_output_tokens,
            response.input_tokens,
            response.output_tokens,
            heard_by=heard_by,
        )

    # --- engines that own their turns ------------------------------------------------------------------------------

    def duplex(self, event: DuplexFrame) -> None:
        """A frame on the engine's own endless track; a response is the stretch in which it speaks."""
        s = self._s
        if event.fence != s.fence:
            s.ledger.drop_stale(event.end - event.start)
            self._count(counters.STALE_AUDIO)
            self._out.append(DropAudio("duplex", event.start, event.end, "stale"))
            return
        if s.muted_until is not None:
            if event.speaking and s.now < s.muted_until:
                s.ledger.generated += event.end - event.start
                s.ledger.cleared += event.end - event.start
                self._out.append(DropAudio("duplex", event.start, event.end, "cleared"))
                return
            s.muted_until = None
        response = s.active
        if not event.speaking:
            s.ledger.generated += event.end - event.start
            s.ledger.cleared += event.end - event.start
            self._out.append(DropAudio("duplex", event.start, event.end, "cleared"))
            if response is not None:
                response.done = True
                self.pump()
            return
        if response is None or response.done:
            if response is not None:
                self._finish(response, "incomplete", "superseded")
            response = self.begin_owned(event.start)
        track = s.ledger.tracks[response.id]
        start = event.start - response.base
        if start != track.generated:
            self._count(counters.ENGINE_FAULT)
            return
        track.generated += event.end - event.start
        if event.text:
            response.words.append(Word(event.text, start, start + event.end - event.start))
        self.pump()

    def _owned_call(self, event: EngineToolCall) -> None:
        """A call of an engine that owns its turns: of what it is saying, or a response of its own."""
        s = self._s
        if event.fence != s.fence:
            self._count(counters.STALE_EVENT)
            return
        response = s.active
        if response is None or response.done:
            if response is not None:
                self._finish(response, "incomplete", "superseded")
            response = self.begin_owned(s.input.watermark)
            response.done = True
        response.calls.append(event)
        self.pump()

    def forgot(self, event: EngineForgot) -> None:
        """The engine has lost what it knew of the conversation: it is told what was heard, said and answered."""
        s = self._s
        entries = s.conversation.context()
        if event.fence.incarnation == s.incarnation and s.abilities.engine_told and entries:
            self._out.append(TellEngine(s.fence, entries, anew=True))

    def begin_owned(self, base: Ticks) -> Response:
        """The engine began to speak by itself."""
        s = self._s
        response = Response(s.fresh_id("resp"), s.fence, "audio", s.config.instructions, "none", None)
        response.source = "duplex"
        response.base = base
        s.active = response
        s.ledger.open(response.id, s.acknowledged)
        self.announce()
        return response

    def mute(self) -> None:
        """A hard interruption of an engine that owns its turns: silence until it yields, or for a bounded time."""
        self._s.muted_until = self._s.now + MUTE_MAX
