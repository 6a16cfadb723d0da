"""The user's side: input track, turns, words, and the items that they become."""

from __future__ import annotations

from . import counters
from .conversation import Item
from .effects import (
    AppendInput,
    AssessTurn,
    CancelPerception,
    ClearTimer,
    Count,
    Effect,
    ForgetInput,
    Notify,
    SetTimer,
    Transcribe,
)
from .events import AudioArrived, EndOfTurnProbability, PerceptionFailed, SpeechProbability, Transcript
from .notices import (
    CommandFailed,
    Held,
    InputCommitted,
    InputTimedOut,
    InputTranscriptDone,
    InputTranscriptFailed,
    InputTranscriptHypothesis,
    ItemAdded,
    Notice,
    Resumed,
    SpeechStarted,
    SpeechStopped,
    TurnEnded,
)
from .speaking import Speaking
from .state import PerceptionRequest, State, Utterance
from .timeline import Ticks, Token, from_ms
from .turns import (
    Agent,
    Assess,
    Began,
    Closing,
    Decision,
    Ended,
    Hold,
    Interrupt,
    Look,
    Reopened,
    Resume,
)

STALL = from_ms(1500)
"""Without real input for this long, an utterance or a hold is decided with what there is."""
TRANSCRIPT_MAX = from_ms(15_000)
"""How long the words of a finished turn may take."""
LOOK_PADDING = from_ms(100)
"""Audio before the onset that a look takes along: a word cut at its first sound is misheard."""
HYPOTHESIS_EVERY = from_ms(960)
INPUT_KEPT = from_ms(90_000)
"""How much input that belongs to no item a session with turn detection keeps."""
FORGET_EVERY = from_ms(10_000)


class Listening:
    """Effects of everything that the user does with their voice."""

    def __init__(self, state: State, out: list[Effect], speaking: Speaking) -> None:
        self._s = state
        self._out = out
        self._speaking = speaking

    def _notify(self, notice: Notice) -> None:
        self._out.append(Notify(notice))

    def _count(self, name: str) -> None:
        self._out.append(Count(name))

    # --- the track -------------------------------------------------------------------------------------------------

    def arrived(self, event: AudioArrived) -> None:
        s = self._s
        new = s.input.arrive(event.start, event.end, event.concealed, s.now)
        if new is None:
            self._count(counters.LATE_AUDIO)
            return
        if s.abilities.engine_listens and s.config.responses:
            self._out.append(AppendInput(new.start, new.end))
        if s.utterance is None:
            if s.config.turns is not None:
                s.input.buffer_start = max(s.input.buffer_start, new.end - INPUT_KEPT)
            if new.start // FORGET_EVERY != new.end // FORGET_EVERY:
                self._out.append(ForgetInput(s.input.buffer_start))

    def speech(self, event: SpeechProbability) -> None:
        s = self._s
        turns = s.config.turns
        if turns is None or event.end <= s.input.buffer_start:
            return  # speech in what is an item already, or was cleared, opens no turn
        policy = s.policy
        idle = policy.phase == "idle"
        agent = self._agent()
        echo = event.echo >= turns.echo
        if echo and agent == "busy":
            self._count(counters.ECHOES)
        decisions = policy.window(
            event.start, event.end, event.probability, agent, turns, event.level, echo, event.hiss
        )
        if idle and policy.phase != "idle":
            self._watch_stall()
        if decisions:
            self._decide(decisions)
        elif policy.phase == "speech":
            self._look_ahead(event.end)
        if s.abilities.engine_turns:
            self._guard()

    def _agent(self) -> Agent:
        s = self._s
        turns = s.config.turns
        if s.abilities.engine_turns or turns is None or not turns.interrupt_response:
            return "silent"
        if s.respond or (s.active is not None and s.active.announced):
            return "busy"
        if not s.sounding:
            return "silent"  # the client may have said so before the model does
        if s.ledger.silent_from > s.now or (s.acknowledged and s.ledger.sounding(s.now)):
            return "busy"
        return "silent"

    def _guard(self) -> None:
        """An engine that owns its turns is not held; but if it talks on over long speech it is cut and muted."""
        s = self._s
        turns = s.config.turns
        if turns is None or not turns.interrupt_response or s.active is None or s.policy.phase != "speech":
            return
        overlap = s.policy.voiced_until - max(s.policy.start, s.active.base)
        if overlap >= from_ms(turns.semantic_commit_ms):
            self._count(counters.INTERRUPTIONS)
            self._speaking.cut("barge_in", s.policy.start)
            self._speaking.mute()

    def _look_ahead(self, position: Ticks) -> None:
        """While the user talks on, ask now and then what has been said so far (captions before the end)."""
        s = self._s
        utterance = s.utterance
        if utterance is None or not s.config.transcribe_input or not s.abilities.transcripts:
            return
        if position - max(s.hypothesis_until, s.policy.start) >= HYPOTHESIS_EVERY:
            s.hypothesis_until = position
            request = s.fresh_request("partial", utterance.item, position)
            self._out.append(Transcribe(request, utterance.start, position, final=False))

    def _watch_stall(self) -> None:
        s = self._s
        if s.stall_due is None:
            s.stall_due = s.now + STALL
            self._out.append(SetTimer("stall", s.stall_due))

    def stall(self) -> None:
        """Timer "stall": has the input stopped in the middle of something?"""
        s = self._s
        s.stall_due = None
        if s.policy.phase == "idle":
            return
        quiet = s.now - s.input.live_at
        if quiet >= STALL:
            self._decide(s.policy.stalled())
            if s.policy.open:
                self._watch_stall()
        else:
            s.stall_due = s.input.live_at + STALL
            self._out.append(SetTimer("stall", s.stall_due))

    def rest(self) -> None:
        """Count how long nobody has said anything, from the end of the last reply's playback."""
        s = self._s
        turns = s.config.turns
        timeout = None if turns is None or not s.config.responses else turns.idle_timeout_ms
        busy = s.active is not None or s.respond or s.awaiting or s.sounding or s.utterance is not None
        if timeout is None or busy or not s.replied or s.policy.phase != "idle" or s.abilities.engine_turns:
            self.stir()
        elif s.idle_due is None:
            s.idle_due = s.now + from_ms(timeout)
            self._out.append(SetTimer("idle", s.idle_due))

    def stir(self) -> None:
        """Something goes on, or another time-out holds: the idle time counts anew."""
        if self._s.idle_due is not None:
            self._s.idle_due = None
            self._out.append(ClearTimer("idle"))

    def idle(self) -> None:
        """Timer "idle": the user has said nothing for the configured time; the agent takes the silence as a turn."""
        s = self._s
        turns = s.config.turns
        if s.idle_due is None or s.now < s.idle_due or turns is None or turns.idle_timeout_ms is None:
            return
        s.idle_due = None
        s.replied = False
        item = Item(s.fresh_id("item"), "user", spoken=True, start=s.input.buffer_start, end=s.input.watermark)
        s.input.buffer_start = s.input.watermark
        self._out.append(ForgetInput(s.input.watermark))
        self._notify(InputTimedOut(item.id, item.start, item.end))
        previous = s.conversation.append(item)
        self._notify(InputCommitted(item.id, previous))
        self._notify(ItemAdded(item.view(), previous))
        self._speaking.begin()

    # --- decisions -------------------------------------------------------------------------------------------------

    def _decide(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Hold(at):
                    self._count(counters.HOLDS)
                    self._speaking.hold()
                    self._notify(Held(at))
                case Resume(words):
                    self._count(counters.RESUMES)
                    self.drop("look")
                    self._notify(Resumed(words))
                    self._speaking.release()
                case Interrupt(at):
                    if self._agent() == "busy":
                        self._interrupt(at)
                    else:  # what was spoken over has ended, or may no longer be interrupted
                        self._decide([Resume(self._s.policy.words), Began(at)])
                case Look(start, end):
                    request = self._s.fresh_request("look", "", end)
                    start = max(self._s.input.buffer_start, start - LOOK_PADDING)
                    self._out.append(Transcribe(request, start, end, final=False))
                case Began(at):
                    self._open(at)
                case Closing(speech_end=speech_end):
                    self._closing(speech_end)
                case Assess(start, at):
                    request = self._s.fresh_request("assess", "", at)
                    self._out.append(AssessTurn(request, start, at))
                case Reopened():
                    self._reopened()
                case Ended():
                    self._ended(decision)

    def drop(self, *kinds: str) -> None:
        """What perception was asked of these kinds is no longer wanted."""
        for request in [number for number, owed in self._s.requests.items() if owed.kind in kinds]:
            self.cancel(request)

    def cancel(self, request: int) -> None:
        """The answer to `request` is no longer wanted."""
        del self._s.requests[request]
        self._out.append(CancelPerception(request))

    def _interrupt(self, at: Ticks) -> None:
        s = self._s
        self.drop("look")
        s.respond = False
        s.awaiting.clear()
        self._out.append(ClearTimer("transcript"))
        heard = self._speaking.heard_anything
        self._count(counters.INTERRUPTIONS if heard else counters.WITHDRAWN)
        started = self._new_utterance(at)
        self._speaking.cut("barge_in" if heard else "withdrawn", at, started)

    def _open(self, at: Ticks) -> None:
        self._notify(self._new_utterance(at))

    def _new_utterance(self, at: Ticks) -> SpeechStarted:
        s = self._s
        padding = from_ms(s.config.turns.prefix_padding_ms) if s.config.turns is not None else 0
        start = max(s.input.buffer_start, at - padding)
        s.utterance = Utterance(s.fresh_id("item"), start)
        s.replied = False
        s.hypothesis_until = 0
        return SpeechStarted(s.utterance.item, max(at, start))

    def _closing(self, speech_end: Ticks) -> None:
        """Look up the words while the silence lasts; most of the time the turn is over."""
        s = self._s
        s.turn_over = self._when(speech_end)
        utterance = s.utterance
        if utterance is None or not s.abilities.transcripts:
            return
        utterance.request = s.fresh_request("turn", utterance.item, s.policy.position)
        self._out.append(Transcribe(utterance.request, utterance.start, s.policy.position))

    def _reopened(self) -> None:
        s = self._s
        utterance = s.utterance
        if utterance is None:
            return
        if utterance.request is not None and utterance.request in s.requests:
            self.cancel(utterance.request)
        utterance.request = None
        utterance.text = None
        self._speaking.retract()

    def _ended(self, ended: Ended) -> None:
        s = self._s
        utterance = s.utterance
        if utterance is None:
            return
        self._notify(SpeechStopped(utterance.item, ended.speech_end))
        self.commit(utterance, min(ended.decided_at, s.input.watermark), ended)
        if s.answers:
            self.answer(ended.speech_end)
        else:
            self.respond()

    def _when(self, position: Ticks) -> Ticks:
        """When an input position came in, in session time."""
        return self._s.now - (self._s.input.watermark - position)

    # --- from an utterance to an item ------------------------------------------------------------------------------

    def commit(self, utterance: Utterance, end: Ticks, ended: Ended | None = None) -> None:
        """The utterance becomes an item; its words are known already or awaited."""
        s = self._s
        s.utterance = None
        self.drop("partial", "assess")
        item = Item(utterance.item, "user", spoken=True, start=utterance.start, end=end)
        previous = s.conversation.append(item)
        s.input.buffer_start = end
        self._out.append(ForgetInput(max(0, utterance.start)))
        self._notify(InputCommitted(item.id, previous))
        if ended is not None:
            self._notify(TurnEnded(item.id, ended.speech_end, ended.decided_at, ended.by))
        if utterance.text is not None:
            item.text = utterance.text
            item.transcript = "done"
            self._notify(ItemAdded(item.view(), previous))
            self._tell_words(item, utterance.tokens)
            return
        self._notify(ItemAdded(item.view(), previous))
        if s.abilities.transcripts:
            self.await_words(item, utterance.request)

    def await_words(self, item: Item, request: int | None = None) -> None:
        """Ask for the words of a spoken item, unless `request` is already under way."""
        s = self._s
        item.transcript = "pending"
        s.awaiting.append(item.id)
        if request is None or request not in s.requests:
            request = s.fresh_request("turn", item.id, item.end)
            self._out.append(Transcribe(request, item.start, item.end))
        self._out.append(SetTimer("transcript", s.now + TRANSCRIPT_MAX))

    def _tell_words(self, item: Item, tokens: tuple[Token, ...]) -> None:
        if self._s.config.transcribe_input:
            told = tokens if self._s.config.transcript_logprobs else ()
            self._notify(InputTranscriptDone(item.id, item.text, item.end - item.start, told))

    def answer(self, over: Ticks) -> None:
        """A turn of the user is to be answered, which was over at input position `over`."""
        self._s.respond, self._s.turn_over = True, self._when(over)
        self.respond()

    def respond(self) -> None:
        """Answer the ended turn once its words are known and the lane is free."""
        s = self._s
        if s.active is not None and s.active.announced and not s.active.started and not s.awaiting:
            self._speaking.start()
        if not s.respond or s.awaiting:
            return
        if s.active is not None and s.active.announced:
            return
        s.respond = False
        last = s.conversation.items[-1] if s.conversation.items else None
        if last is not None and last.role == "user" and last.spoken and not last.text and s.abilities.transcripts:
            self._speaking.retract()
            self._count(counters.EMPTY_TURNS)
            return
        if s.active is not None:
            self._speaking.announce()
            self._speaking.pump()
        else:
            self._speaking.begin(asked=s.turn_over)

    # --- answers of perception -------------------------------------------------------------------------------------

    def _owed(self, request: int) -> PerceptionRequest | None:
        owed = self._s.requests.pop(request, None)
        if owed is None:
            self._count(counters.LATE_ANSWER)
        return owed

    def transcript(self, event: Transcript) -> None:
        s = self._s
        owed = self._owed(event.request)
        if owed is None:
            return
        turns = s.config.turns
        text = event.text.strip()
        if owed.kind == "look":
            self._notify(InputTranscriptHypothesis(owed.item, text))
            if turns is not None:
                self._decide(s.policy.looked(owed.end, text, turns))
        elif owed.kind == "partial":
            if s.utterance is not None and s.utterance.item == owed.item and text:
                self._notify(InputTranscriptHypothesis(owed.item, text))
        elif s.utterance is not None and s.utterance.item == owed.item:
            s.utterance.text = text
            s.utterance.tokens = event.tokens
            self._speculate(text)
            if turns is not None:
                self._decide(s.policy.worded(text, turns))
        else:
            self._settle_words(owed.item, text, event.tokens)

    def _speculate(self, text: str) -> None:
        """The turn is closing and its words are known: begin to think, unheard, before it is over."""
        s = self._s
        if not text or not s.answers:
            return
        if s.active is None and not s.respond and not s.awaiting and s.policy.phase == "closing":
            self._speaking.begin(spoken=text, announced=False, asked=s.turn_over)

    def _settle_words(self, item_id: str, text: str, tokens: tuple[Token, ...]) -> None:
        s = self._s
        item = s.conversation.find(item_id)
        if item is not None and item.transcript == "pending":
            item.text = text
            item.transcript = "done"
            self._tell_words(item, tokens)
        self._no_longer_awaited(item_id)

    def _no_longer_awaited(self, item_id: str) -> None:
        s = self._s
        if item_id in s.awaiting:
            s.awaiting.remove(item_id)
        if not s.awaiting:
            self._out.append(ClearTimer("transcript"))
            self.respond()

    def end_of_turn(self, event: EndOfTurnProbability) -> None:
        turns = self._s.config.turns
        if self._owed(event.request) is not None and turns is not None:
            self._decide(self._s.policy.assessed(event.at, event.probability, turns))

    def failed(self, event: PerceptionFailed) -> None:
        """A question to perception has no answer: the turn goes on without it."""
        s = self._s
        owed = self._owed(event.request)
        if owed is None:
            return
        if owed.kind == "look":
            s.policy.looking = False
        elif owed.kind == "turn":
            if s.utterance is not None and s.utterance.item == owed.item:
                s.utterance.request = None
            else:
                self._no_words(owed.item, event.code, event.message)

    def words_timed_out(self) -> None:
        """Timer "transcript": the words of a finished turn never came."""
        self._give_up("transcription_timeout", "the words of this turn could not be recognised in time")

    def abandon(self) -> None:
        """Whoever was asked is gone with its process: no answer comes any more, and finished turns go without."""
        self._give_up("perception_lost", "the words of this turn were lost with the server that heard it")

    def _give_up(self, code: str, message: str) -> None:
        self.drop("turn")
        for item_id in list(self._s.awaiting):
            self._no_words(item_id, code, message)

    def _no_words(self, item_id: str, code: str, message: str) -> None:
        s = self._s
        item = s.conversation.find(item_id)
        if item is not None:
            item.transcript = "failed"
        if s.config.transcribe_input:
            self._notify(InputTranscriptFailed(item_id, code, message))
        else:
            self._notify(CommandFailed(code, message, kind="server_error"))
        self._no_longer_awaited(item_id)

    def forget(self) -> None:
        """Drop what was said but not committed: turn detection begins anew."""
        s = self._s
        if s.utterance is not None:
            for request in [number for number, owed in s.requests.items() if owed.item == s.utterance.item]:
                self.cancel(request)
            s.utterance = None
            self._speaking.retract()
        self.drop("look", "partial", "assess")
        s.policy.reset()
        s.input.buffer_start = s.input.watermark
        self._speaking.release()

    def close(self) -> None:
        """The session ends: nothing is asked of perception any more."""
        self.forget()
        self.drop("turn")
