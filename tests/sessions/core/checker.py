"""An independent judge of a session: it reads events and effects, keeps its own books and names what is broken.

It shares no arithmetic with the core. The numbers of the checks are those of the invariants:

1. nothing of a dead epoch, or of a cancelled response, passes the gate; nothing passes while it is shut;
2. every generated sample ends exactly once, and the ledger balances at close;
3. sequence, epoch, content and credit only grow; heard <= sent <= generated; nothing is lost or repeated; admission is
   at most the lead ahead of playback;
4. the history holds what was heard, cut at the word, and is cut before the cancel goes out;
5. what names something finished is a no-op;
6. (equal events, equal effects: see the replay in `test_invariants`);
7. what carries another incarnation is refused;
8. after close nothing remains; whatever was opened has been closed exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sessions.core import counters
from sessions.core.config import SessionConfig
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    AppendInput,
    AssessTurn,
    CancelPerception,
    CancelResponse,
    Count,
    DropAudio,
    EndSession,
    FlushCarrier,
    ForgetInput,
    GrantCredit,
    HoldCarrier,
    Notify,
    ReleaseTrack,
    ResumeCarrier,
    SetTimer,
    StartResponse,
    Transcribe,
)
from sessions.core.events import (
    AudioArrived,
    CarrierAttached,
    CarrierBlocked,
    CarrierLost,
    CarrierReady,
    Close,
    ConfigUpdate,
    DigitPressed,
    DuplexFrame,
    EndOfTurnProbability,
    EngineAudio,
    EngineDone,
    EngineFailed,
    EngineWords,
    Event,
    InputClear,
    ItemCreate,
    ItemDelete,
    ItemTruncate,
    OutputClear,
    OwnershipLost,
    OwnershipTaken,
    PerceptionFailed,
    PlaybackReported,
    ResponseCancel,
    SpeechProbability,
    TimerDue,
    Transcript,
)
from sessions.core.fence import Fence
from sessions.core.notices import (
    EpochBegan,
    InputCleared,
    InputTimedOut,
    ItemAdded,
    ItemDeleted,
    ItemTruncated,
    ItemView,
    OutputClosed,
    OutputOpened,
    OutputText,
    PlaybackCleared,
    PlaybackStarted,
    PlaybackStopped,
    ResponseClosed,
    ResponseOpened,
    SessionConfigured,
    SpeechStarted,
    SpeechStopped,
    TurnEnded,
)
from sessions.core.session import Session
from sessions.core.timeline import Ticks, from_ms

from .checker_asides import AsideBooks
from .driver import Step
from .violations import Violation, require

GRACE: Ticks = 48_000
PATIENCE: Ticks = 16_800
"""How long what may leave at once may be kept (timers may be late)."""
HOLD_MAX: Ticks = 5 * 48_000
"""No hold stays undecided for longer, whatever the user, the perception and the input do."""
FLOOR_MAX: Ticks = 4 * 48_000
"""Without real input for this long nobody has the floor."""
LOUD = 0.3
LOUD_LEVEL = -50.0
"""Speech probability and level from which a window is not surely silence."""
IDLE_LATE: Ticks = 86_400
"""How much later than configured a silence may be taken as a turn (a sound may have to be decided first)."""


@dataclass
class Agent:
    """The checker's own book of one response."""

    id: str
    acknowledged: bool
    delay: Ticks = 0
    fence: Fence | None = None
    source: str = ""
    base: Ticks | None = None
    opened: bool = False
    closed: bool = False
    dead: bool = False
    done: bool = False
    released: bool = False
    ended: bool = False
    item: str = ""
    outputs: list[str] = field(default_factory=list)
    open_outputs: set[str] = field(default_factory=set)
    generated: Ticks = 0
    admitted: Ticks = 0
    dropped: Ticks = 0
    credit: Ticks = 0
    frames: list[tuple[Ticks, Ticks, Ticks]] = field(default_factory=list)
    reported: Ticks = 0
    reported_at: Ticks | None = None
    stands: bool = False
    told: list[str] = field(default_factory=list)
    spoken: bool = False
    limit: Ticks | None = None
    cut_at: Ticks | None = None
    deleted: bool = False

    held_at: Ticks | None = None

    def resumed(self, now: Ticks) -> None:
        """What had not left at the hold leaves so much later."""
        held, self.held_at = self.held_at, None
        if held is None:
            return
        if self.stands:
            self.stands, self.reported_at = False, now
        later = now - held
        frames: list[tuple[Ticks, Ticks, Ticks]] = []
        for start, end, at in self.frames:
            if at >= held:
                frames.append((start, end, at + later))
            elif at + end - start <= held:
                frames.append((start, end, at))
            else:
                frames += [(start, start + held - at, at), (start + held - at, end, held + later)]
        self.frames = frames

    def placed(self, now: Ticks) -> Ticks:
        """Content whose place on the timeline has come."""
        if self.held_at is not None:
            now = min(now, self.held_at)
        for start, end, at in reversed(self.frames):
            if at < now:
                return start + min(end - start, now - at)
        return 0

    def heard(self, now: Ticks) -> Ticks:
        if self.stands:
            return self.reported
        if self.reported_at is not None:
            return max(self.reported, min(self.reported + now - self.reported_at, self.placed(now)))
        return 0 if self.acknowledged else self.placed(now - self.delay)

    @property
    def heard_by(self) -> str:
        return "report" if self.acknowledged or self.reported_at is not None else "model"

    @property
    def sounding(self) -> bool:
        return self.admitted > 0 and not self.ended


class Checker:
    """Observer of a driver. Raises `Violation` at the first broken invariant."""

    def __init__(self, config: SessionConfig, *, incarnation: int = 1, owns_turns: bool = False) -> None:
        self.config = config
        self.owns_turns = owns_turns
        self.incarnation = incarnation
        self.epoch = 0
        self.sequence = 0
        self.clock: Ticks = 0
        self.now: Ticks = 0
        self.watermark: Ticks = 0
        self.appended: Ticks = 0
        self.forgotten: Ticks = 0
        self.attached = False
        self.acknowledged = False
        self.paced = False
        self.delay: Ticks = 0
        self.lost_at: Ticks | None = None
        self.grace: Ticks = 0
        """What the configuration said when the carrier was lost."""
        self.blocked = False
        self.held = False
        self.floor: str | None = None
        self.owing = False
        self.over = False
        self.lead = config.lead
        self.agents: dict[str, Agent] = {}
        self.order: list[Agent] = []
        self.items: dict[str, Agent] = {}
        self.lane: Agent | None = None
        self.words: dict[str, tuple[Ticks, Ticks]] = {}
        self.asked: set[int] = set()
        self.taken: set[int] = set()
        self.refused: set[int] = set()
        self.highest_request = 0
        self.calls: set[str] = set()
        self.answered: set[str] = set()
        self.call_items: dict[str, str] = {}
        self.lost = False
        self.totals = dict.fromkeys(("generated", "played", "cleared", "stale", "unknown"), 0)
        self.admitted_total = 0
        self.dropped_total = 0
        self.something = False
        self.live_at: Ticks = 0
        self.held_at: Ticks = 0
        self.starving: Ticks | None = None
        self.unanswered: Ticks | None = None
        self.finals: set[int] = set()
        self.beside = AsideBooks(incarnation, lambda: self.config.frame, lambda: self.config.credit)
        self.replied = False
        self.stirred: Ticks = 0
        self.loud_at: Ticks = 0
        self._must_end = False
        self._event: Event | None = None
        self._counted: dict[str, int] = {}
        self._stale_expected: tuple[str, Ticks, Ticks] | None = None
        self._on_event: dict[type, Callable[[Any], None]] = {
            AudioArrived: self._audio_arrived,
            CarrierAttached: self._carrier_attached,
            CarrierLost: self._carrier_lost,
            CarrierBlocked: self._carrier_blocked,
            CarrierReady: self._carrier_ready,
            ConfigUpdate: self._config_update,
            EngineAudio: self._engine_audio,
            EngineWords: self._engine_words,
            EngineDone: self._engine_done,
            DuplexFrame: self._duplex_frame,
            PlaybackReported: self._playback_reported,
            Transcript: self._answer,
            EndOfTurnProbability: self._answer,
            PerceptionFailed: self._answer,
            ItemCreate: self._item_create,
            OwnershipTaken: self._ownership_taken,
        }
        self._on_effect: dict[type, Callable[[Any], None]] = {
            AdmitFrame: self._admit_frame,
            AdvanceEpoch: self._advance_epoch,
            FlushCarrier: self._flush,
            HoldCarrier: self._hold,
            ResumeCarrier: self._resume,
            StartResponse: self._start_response,
            CancelResponse: self._cancel_response,
            GrantCredit: self._grant,
            DropAudio: self._drop,
            ReleaseTrack: self._release,
            Transcribe: self._transcribe,
            AssessTurn: self._assess,
            CancelPerception: self._cancel_perception,
            ForgetInput: self._forget_input,
            AppendInput: self._append_input,
            SetTimer: self._set_timer,
        }
        self._on_notice: dict[type, Callable[[Any], None]] = {
            SpeechStarted: self._speech_started,
            SpeechStopped: self._speech_stopped,
            InputCleared: self._input_cleared,
            TurnEnded: self._turn_ended,
            ResponseOpened: self._response_opened,
            ResponseClosed: self._response_closed,
            OutputOpened: self._output_opened,
            OutputText: self._output_text,
            OutputClosed: self._output_closed,
            PlaybackStarted: self._playback_started,
            PlaybackStopped: self._playback_stopped,
            PlaybackCleared: self._playback_cleared,
            ItemAdded: self._item_added,
            ItemDeleted: self._item_deleted,
            ItemTruncated: self._item_truncated,
            EpochBegan: self._epoch_began,
            InputTimedOut: self._timed_out,
        }

    # --- the steps -------------------------------------------------------------------------------------------------

    def before(self, session: Session, event: Event, now: Ticks) -> None:
        """Nothing: everything that is judged is in the step."""

    def after(self, session: Session, step: Step) -> None:
        event, effects = step.event, step.effects
        self.now = step.now
        if self.over:
            require(effects == [Count(counters.AFTER_CLOSE)], "8", lambda: f"after close {event} made {effects}")
            return
        self._event = event
        counted: dict[str, int] = {}
        self._counted = counted
        for effect in effects:
            if type(effect) is Count:
                counted[effect.name] = counted.get(effect.name, 0) + effect.by
        self._stale_expected = None
        self._must_end = False
        self.lead = self.config.lead
        self.something = self.owing or self.lane is not None or any(agent.sounding for agent in self.order)
        self.lost = isinstance(event, CarrierLost | CarrierAttached | OwnershipLost | OwnershipTaken)
        self.lost = self.lost or (isinstance(event, Close) and not self.attached)
        if isinstance(event, ConfigUpdate) and any(
            type(e) is Notify and type(e.notice) is SessionConfigured for e in effects
        ):
            self.lead = max(self.lead, event.config.lead)
        aside = self.beside.event(event, step.now, counted, effects)
        run = self._on_event.get(type(event))
        if run is not None and not aside:
            run(event)
        flushed: Fence | None = None
        for effect in effects:
            if self.over:
                raise Violation("8", f"{effect} after the end")
            if self.beside.effect(effect, self.sequence, self.attached and not self.blocked):
                require(flushed is None, "1", "an epoch's edge without a flush")
                self.sequence += isinstance(effect, AdmitFrame)
                if isinstance(effect, StartResponse) and not self.beside.books[effect.response].own:
                    self._history(effect)
                continue
            if isinstance(effect, Notify):
                tell = self._on_notice.get(type(effect.notice))
                if tell is not None:
                    tell(effect.notice)
                continue
            if flushed is not None:
                require(
                    isinstance(effect, FlushCarrier) and effect.fence == flushed, "1", "an epoch's edge without a flush"
                )
                flushed = None
            do = self._on_effect.get(type(effect))
            if do is not None:
                do(effect)
            if isinstance(effect, AdvanceEpoch):
                flushed = effect.fence
            elif isinstance(effect, EndSession):
                self._end(session)
        require(flushed is None, "1", "an epoch's edge without a flush")
        self._settle_step(event, effects)

    def _settle_step(self, event: Event, effects: list[Any]) -> None:
        require(not self._must_end, "1", lambda: f"{event} began no epoch")
        if isinstance(event, OwnershipTaken) and event.incarnation == self.incarnation:
            answers = self._counted.get(counters.OLD_OWNER) or not self.asked
            require(answers, "alive", lambda: f"a perception that is gone is asked for {self.asked}")
        if self._stale_expected is not None:
            raise Violation("7", f"{event} is nobody's and was not dropped")
        require(not self._counted.get(counters.LEDGER_FAULT), "2", "the core itself found its ledger wrong")
        if self._counted.get(counters.REJECTED):
            require(
                not any(type(e) in (AdvanceEpoch, FlushCarrier, CancelResponse, StartResponse) for e in effects),
                "5",
                lambda: f"{event} was refused and still had effects",
            )
        lane = self.lane
        if lane is not None and lane.told and lane.spoken:
            start, _ = self.words.get(lane.told[-1], (0, 0))
            if lane.base is not None:
                start -= lane.base
            require(start < lane.admitted, "3", lambda: f"{lane.told[-1]!r} was told before its audio was sent")
        if not self.over:
            self.beside.settle(self.attached and not self.blocked)
            self._alive()
            self._rest(event)

    def _alive(self) -> None:
        """Nothing that could go on stands still."""
        now, lane = self.now, self.lane
        stuck = False
        if lane is not None and self.attached and not self.blocked and not self.held and self._first_allowed(lane):
            left = lane.generated - lane.admitted
            stuck = self.clock <= now and left >= (1 if lane.done else self.config.frame)
            stuck = stuck or (lane.done and left == 0)
        self.starving = (now if self.starving is None else self.starving) if stuck else None
        waited = 0 if self.starving is None else now - self.starving
        require(waited <= PATIENCE, "alive", lambda: f"{lane} could go on for {waited} ticks")
        if self._counted.get(counters.EMPTY_TURNS):
            self.owing = False
        owes = self.owing and lane is None and not self.asked & self.finals
        self.unanswered = (now if self.unanswered is None else self.unanswered) if owes else None
        waited = 0 if self.unanswered is None else now - self.unanswered
        require(waited <= PATIENCE, "alive", lambda: f"a turn was not answered for {waited} ticks")
        require(not self.held or now - self.held_at <= HOLD_MAX, "alive", "a hold was never decided")
        quiet = now - self.live_at
        require(
            self.floor is None or quiet <= FLOOR_MAX, "alive", lambda: f"{self.floor} is open without input for {quiet}"
        )
        alone = 0 if self.lost_at is None else now - self.lost_at
        require(alone <= self.grace + PATIENCE, "alive", lambda: f"without a carrier for {alone} ticks")

    def _rest(self, event: Event) -> None:
        """A user who says nothing after a reply is taken at their silence in time, and never before."""
        sounding = any(agent.sounding for agent in self.order)
        if self.lane is not None or sounding or self.floor is not None or self.owing or not self.replied:
            self.stirred = self.now
        loud = isinstance(event, SpeechProbability) and (event.probability >= LOUD or event.level >= LOUD_LEVEL)
        if loud or isinstance(event, ConfigUpdate):
            self.loud_at = self.now
        turns = self.config.turns
        if turns is None or turns.idle_timeout_ms is None or self.asked or self.owns_turns:
            self.loud_at = self.now
        else:
            waited = self.now - max(self.stirred, self.loud_at)
            late = from_ms(turns.idle_timeout_ms) + IDLE_LATE
            require(waited <= late, "alive", lambda: f"the user's silence has lasted {waited} ticks")

    def _timed_out(self, notice: InputTimedOut) -> None:
        turns = self.config.turns
        require(isinstance(self._event, TimerDue), "5", lambda: f"{notice} by {self._event}")
        require(turns is not None and turns.idle_timeout_ms is not None, "5", lambda: f"{notice}, but silence may last")
        require(self.floor is None and self.lane is None, "floor", lambda: f"{notice} while somebody has the floor")
        if turns is not None and turns.idle_timeout_ms is not None:
            waited = self.now - self.stirred
            require(waited >= from_ms(turns.idle_timeout_ms), "5", lambda: f"{notice} after {waited} ticks of silence")
        require(notice.start <= notice.end <= self.watermark, "3", lambda: f"{notice} at watermark {self.watermark}")
        self.replied = False

    # --- events ----------------------------------------------------------------------------------------------------

    def _audio_arrived(self, event: AudioArrived) -> None:
        if event.end <= self.watermark:
            require(self._counted.get(counters.LATE_AUDIO, 0) == 1, "5", "late audio was taken")
        elif not event.concealed:
            self.live_at = self.now
        self.watermark = max(self.watermark, event.end)

    def _item_create(self, event: ItemCreate) -> None:
        if event.audio is not None and not self._counted.get(counters.REJECTED):
            self.watermark = max(self.watermark, event.audio.end)
            self.live_at = self.now

    def _carrier_attached(self, event: CarrierAttached) -> None:
        if self.attached:
            self.floor = None
            self._must_end = True
        self.attached, self.blocked, self.acknowledged = True, False, event.acknowledged
        self.paced, self.delay = event.paced, event.delay
        self.lost_at = None

    def _carrier_lost(self, event: CarrierLost) -> None:
        if self.attached:
            self.floor = None
            self._must_end = True
            self.lost_at, self.grace = self.now, self.config.grace
        self.attached = False

    def _ownership_taken(self, event: OwnershipTaken) -> None:
        if event.incarnation <= self.incarnation:
            require(self._counted.get(counters.OLD_OWNER, 0) == 1, "7", lambda: f"{event} was not refused")
            return
        self.incarnation = self.beside.incarnation = event.incarnation
        self.sequence = 0
        self.floor = None
        self.starving = None
        self.attached = False
        self.appended = self.watermark
        self._must_end = True
        self.lost_at, self.grace = self.now, self.config.grace

    def _carrier_blocked(self, event: CarrierBlocked) -> None:
        self.blocked = True

    def _carrier_ready(self, event: CarrierReady) -> None:
        self.blocked = False

    def _config_update(self, event: ConfigUpdate) -> None:
        if self._counted.get(counters.REJECTED):
            return
        if (event.config.turns is None) != (self.config.turns is None):
            self.floor = None
        self.config = event.config

    def _live(self, fence: Fence, response: str) -> Agent | None:
        agent = self.agents.get(response)
        if agent is None or agent.dead or agent.fence != fence or fence.epoch != self.epoch:
            return None
        return agent if fence.incarnation == self.incarnation else None

    def _engine_audio(self, event: EngineAudio) -> None:
        agent = self._live(event.fence, event.response)
        length = event.end - event.start
        faults = self._counted.get(counters.ENGINE_FAULT, 0)
        if agent is None:
            require(self._counted.get(counters.STALE_AUDIO, 0) == 1, "7", lambda: f"{event} was not refused")
            self._stale_expected = (event.response, event.start, event.end)
            self.totals["generated"] += length
            self.totals["stale"] += length
        elif agent.done or event.start != agent.generated or length <= 0:
            require(faults == 1, "3", lambda: f"{event} breaks the content of {agent.id} and was taken")
        else:
            require(faults == 0, "3", lambda: f"{event} was not taken")
            agent.generated = event.end
            self.totals["generated"] += length

    def _engine_words(self, event: EngineWords) -> None:
        agent = self._live(event.fence, event.response)
        if agent is not None and not agent.done:
            for word in event.words:
                self.words[word.text] = (word.start, word.end)

    def _engine_done(self, event: EngineDone) -> None:
        agent = self._live(event.fence, event.response)
        if agent is not None:
            agent.done = True

    def _duplex_frame(self, event: DuplexFrame) -> None:
        length = event.end - event.start
        self.totals["generated"] += length
        if event.fence.order != (self.incarnation, self.epoch):
            require(self._counted.get(counters.STALE_AUDIO, 0) == 1, "7", lambda: f"{event} was not refused")
            self._stale_expected = ("duplex", event.start, event.end)
            self.totals["stale"] += length
        elif event.text:
            self.words[event.text] = (event.start, event.end)

    def _playback_reported(self, event: PlaybackReported) -> None:
        agent = self.agents.get(event.response)
        bad = self._counted.get(counters.BAD_REPORT, 0)
        if agent is None or agent.ended or not agent.reported <= event.position <= agent.admitted:
            require(bad == 1, "3", lambda: f"{event} cannot be true and was taken")
            return
        require(bad == 0, "3", lambda: f"{event} was not taken")
        if agent.reported_at is None or event.position > agent.reported:
            agent.reported, agent.reported_at, agent.stands = event.position, self.now, False
        elif self.now - agent.reported_at >= from_ms(20):
            agent.stands = True

    def _answer(self, event: Transcript | EndOfTurnProbability | PerceptionFailed) -> None:
        if event.request in self.asked:
            self.asked.remove(event.request)
            self.taken.add(event.request)
        else:
            require(self._counted.get(counters.LATE_ANSWER, 0) == 1, "5", lambda: f"nobody waits for {event}")
            self.refused.add(event.request)

    # --- the gate --------------------------------------------------------------------------------------------------

    def _admit_frame(self, frame: AdmitFrame) -> None:
        require(frame.fence.order == (self.incarnation, self.epoch), "1", lambda: f"{frame} under epoch {self.epoch}")
        agent = self.agents.get(frame.response)
        if agent is None:
            raise Violation("1", f"{frame} of a response that nobody began")
        require(not agent.dead, "1", lambda: f"{frame} of a response that is over")
        require(agent.opened, "1", lambda: f"{frame} of a response that nobody was told of")
        require(agent.fence is None or agent.fence == frame.fence, "1", lambda: f"{frame} re-labels {agent.fence}")
        require(not self.held, "hold", lambda: f"{frame} on hold")
        require(self.attached and not self.blocked, "1", lambda: f"{frame} to a carrier that does not take it")
        require(self._first_allowed(agent), "floor", lambda: f"{frame} while the user has the floor")
        require(frame.sequence == self.sequence, "3", lambda: f"sequence {frame.sequence} after {self.sequence - 1}")
        require(frame.start == agent.admitted < frame.end, "3", lambda: f"{frame} after content {agent.admitted}")
        require(frame.end - frame.start <= self.config.frame, "3", lambda: f"{frame} is longer than a frame")
        if not self.owns_turns:
            require(frame.end <= agent.generated, "3", lambda: f"{frame} of {agent.generated} generated")
            require(
                (frame.source, frame.source_start) == (agent.id, frame.start),
                "3",
                lambda: f"{frame} from a wrong place",
            )
        elif agent.base is None:
            agent.base = frame.source_start - frame.start
        else:
            require(agent.base == frame.source_start - frame.start, "3", lambda: f"{frame} jumps on the engine's track")
        require(not agent.released, "2", lambda: f"{frame} of a released track")
        require(frame.item == agent.item, "3", lambda: f"{frame} of another item than {agent.item}")
        require(
            frame.placed_at == max(self.now, self.clock), "3", lambda: f"{frame} belongs at {max(self.now, self.clock)}"
        )
        length = frame.end - frame.start
        require(
            frame.placed_at + length <= self.now + self.lead, "3", lambda: f"{frame} is ahead of the lead at {self.now}"
        )
        self.sequence += 1
        self.clock = frame.placed_at + length
        agent.admitted = frame.end
        agent.frames.append((frame.start, frame.end, frame.placed_at))
        self.admitted_total += length

    def _first_allowed(self, agent: Agent) -> bool:
        turns = self.config.turns
        yields = turns is not None and turns.interrupt_response and not self.owns_turns
        return not (yields and self.floor is not None and agent.admitted == 0)

    def _advance_epoch(self, effect: AdvanceEpoch) -> None:
        require(effect.fence.incarnation == self.incarnation, "7", "the incarnation changed under way")
        require(effect.fence.epoch == self.epoch + 1, "3", lambda: f"epoch {effect.fence.epoch} after {self.epoch}")
        self.epoch = effect.fence.epoch
        self._must_end = False
        event = self._event
        ends = isinstance(event, Close | OwnershipLost | OwnershipTaken | CarrierLost | CarrierAttached | EngineFailed)
        if isinstance(event, TimerDue) and event.name == "grace":
            ends = self.lost_at is not None and self.now - self.lost_at >= self.grace
        require(ends or self.something, "5", lambda: f"{event} began epoch {self.epoch} with nothing to interrupt")
        if isinstance(event, ResponseCancel) and event.response is not None:
            named = self.lane is not None and self.lane.id == event.response
            require(named, "5", lambda: f"{event} names something finished")
        require(
            not isinstance(event, PlaybackReported | ItemDelete | InputClear), "5", lambda: f"{event} began an epoch"
        )

    def _flush(self, effect: FlushCarrier) -> None:
        require(effect.fence.order == (self.incarnation, self.epoch), "1", lambda: f"a flush to {effect.fence}")
        self.held = False
        if not isinstance(self._event, CarrierLost | CarrierAttached | OwnershipTaken | ItemTruncate):
            self.owing = False  # whoever was interrupted, or cancelled, gets no answer; a lost carrier may come back
        self.clock = min(self.clock, self.now)

    def _hold(self, effect: HoldCarrier) -> None:
        require(not self.held, "hold", "held twice")
        self.held = True
        self.held_at = self.now
        for agent in self.order:
            if self.paced and not agent.ended:
                agent.held_at = self.now

    def _resume(self, effect: ResumeCarrier) -> None:
        require(self.held, "hold", "resumed without a hold")
        self.held = False
        if self.paced and self.clock > self.held_at:
            self.clock += self.now - self.held_at
        for agent in self.order:
            agent.resumed(self.now)

    # --- the engine ------------------------------------------------------------------------------------------------

    def _begin(self, response: str) -> Agent:
        require(response not in self.agents, "3", lambda: f"{response} began twice")
        agent = self.agents[response] = Agent(response, self.acknowledged, self.delay)
        self.order.append(agent)
        return agent

    def _start_response(self, effect: StartResponse) -> None:
        require(self.config.responses, "8", lambda: f"{effect.response} in a session that only listens")
        require(
            effect.fence.order == (self.incarnation, self.epoch), "1", lambda: f"{effect.response} under {effect.fence}"
        )
        agent = self.agents.get(effect.response) or self._begin(effect.response)
        require(agent.fence is None and not agent.dead, "3", lambda: f"{effect.response} was started twice")
        agent.fence = effect.fence
        agent.credit = effect.credit
        self._history(effect)

    def _history(self, effect: StartResponse) -> None:
        told = [e.text for e in effect.context if e.role == "assistant" and e.kind == "message" and "w" in e.text]
        expected = [text for agent in self.order if not agent.deleted and (text := self.kept(agent))]
        require(told == expected, "4", lambda: f"the history says {told}, heard was {expected}")
        asked = [
            word
            for e in effect.context
            if e.kind == "message" and e.role == "user"
            for word in e.text.split()
            if word.isdigit()
        ]
        require(len(set(asked)) == len(asked), "4", lambda: f"words of the user twice in {asked}")
        late = (self.refused - self.taken).intersection(map(int, asked))
        require(not late, "4", lambda: f"words {late} came after they had been given up")
        calls = {e.call for e in effect.context if e.kind != "message"}
        require(calls <= self.answered, "8", lambda: f"calls without an answer in the history: {calls - self.answered}")

    def kept(self, agent: Agent) -> str:
        """What the history must hold of a response."""
        text = "".join(word for word in agent.told if not agent.spoken or self._within(agent, word))
        return text if agent.limit is None else text.strip()

    def _within(self, agent: Agent, word: str) -> bool:
        if agent.limit is None:
            return True
        _, end = self.words[word]
        return end - (agent.base or 0) <= agent.limit

    def _cancel_response(self, effect: CancelResponse) -> None:
        agent = self.agents.get(effect.response)
        if agent is None:
            raise Violation("5", f"{effect} names what was never begun")
        require(not agent.dead and not agent.done, "5", lambda: f"{effect} names something finished")
        require(agent.fence == effect.fence, "1", lambda: f"{effect} for {agent.fence}")
        agent.dead = True

    def _grant(self, effect: GrantCredit) -> None:
        agent = self.agents.get(effect.response)
        if agent is None or agent.dead:
            raise Violation("5", f"{effect} for something finished")
        require(effect.fence == agent.fence, "1", lambda: f"{effect} for {agent.fence}")
        require(effect.until > agent.credit, "3", lambda: f"{effect} after {agent.credit}")
        require(
            effect.until - agent.admitted <= self.config.credit, "3", lambda: f"{effect} with {agent.admitted} admitted"
        )
        agent.credit = effect.until

    def _drop(self, effect: DropAudio) -> None:
        length = effect.end - effect.start
        self.dropped_total += length
        if effect.why == "stale":
            require(
                self._stale_expected == (effect.source, effect.start, effect.end), "2", lambda: f"{effect} is not stale"
            )
            self._stale_expected = None
            return
        if self.owns_turns:
            return
        agent = self.agents.get(effect.source)
        if agent is None:
            raise Violation("2", f"{effect} of nothing")
        require(agent.dropped == 0, "2", lambda: f"{effect} twice")
        require(
            (effect.start, effect.end) == (agent.admitted, agent.generated),
            "2",
            lambda: f"{effect} is not what was left",
        )
        agent.dropped = length

    def _release(self, effect: ReleaseTrack) -> None:
        agent = self.agents.get(effect.source)
        if agent is None:
            raise Violation("2", f"{effect} of nothing")
        require(not agent.released, "8", lambda: f"{effect} twice")
        require(agent.generated == agent.admitted + agent.dropped, "2", lambda: f"{effect} with samples in it")
        agent.released = True
        if not agent.ended and agent.admitted == 0:
            self._book(agent, 0, lost=False)
        if not agent.opened:
            agent.dead = agent.ended = True

    def _book(self, agent: Agent, heard: Ticks, lost: bool) -> None:
        """The samples of `agent` have come to their ends."""
        require(not agent.ended, "2", lambda: f"{agent.id} ended twice")
        require(0 <= heard <= agent.admitted, "3", lambda: f"{agent.id} heard {heard} of {agent.admitted}")
        agent.ended = True
        self.totals["played"] += heard
        self.totals["unknown" if lost else "cleared"] += agent.admitted - heard
        if not self.owns_turns:
            self.totals["cleared"] += agent.generated - agent.admitted

    # --- perception ------------------------------------------------------------------------------------------------

    def _transcribe(self, effect: Transcribe) -> None:
        self._ask(effect.request)
        if effect.final:
            self.finals.add(effect.request)
        require(effect.start < effect.end <= self.watermark, "3", lambda: f"{effect} at watermark {self.watermark}")
        require(
            effect.start >= self.forgotten, "2", lambda: f"{effect} asks for what was forgotten before {self.forgotten}"
        )

    def _assess(self, effect: AssessTurn) -> None:
        self._ask(effect.request)
        require(effect.start < effect.at <= self.watermark, "3", lambda: f"{effect} at watermark {self.watermark}")

    def _ask(self, request: int) -> None:
        require(request > self.highest_request, "3", lambda: f"request {request} after {self.highest_request}")
        self.highest_request = request
        self.asked.add(request)

    def _cancel_perception(self, effect: CancelPerception) -> None:
        require(effect.request in self.asked, "5", lambda: f"{effect} names what nobody owes")
        self.asked.remove(effect.request)

    def _forget_input(self, effect: ForgetInput) -> None:
        require(effect.before >= self.forgotten, "3", lambda: f"{effect} after {self.forgotten}")
        self.forgotten = effect.before

    def _append_input(self, effect: AppendInput) -> None:
        require(effect.start == self.appended < effect.end, "3", lambda: f"{effect} after {self.appended}")
        self.appended = effect.end

    def _set_timer(self, effect: SetTimer) -> None:
        require(effect.due >= self.now, "3", lambda: f"{effect} lies in the past of {self.now}")

    # --- what the client is told -----------------------------------------------------------------------------------

    def _speech_started(self, notice: SpeechStarted) -> None:
        require(not self.held, "hold", "speech was told of before the hold was decided")
        require(self.floor is None, "8", lambda: f"{notice} while {self.floor} is open")
        self.floor = notice.item
        self.replied = False

    def _speech_stopped(self, notice: SpeechStopped) -> None:
        require(self.floor == notice.item, "8", lambda: f"{notice}, but {self.floor} is open")
        self.floor = None

    def _input_cleared(self, notice: InputCleared) -> None:
        self.floor = None

    def _turn_ended(self, notice: TurnEnded) -> None:
        turns = self.config.turns
        if turns is not None and turns.create_response and not self.owns_turns and self.config.responses:
            self.owing = True

    def _response_opened(self, notice: ResponseOpened) -> None:
        response = notice.response.id
        require(self.lane is None, "8", lambda: f"{response} opened beside {self.lane}")
        agent = self.agents.get(response) or self._begin(response)
        require(not agent.opened and not agent.dead, "8", lambda: f"{response} opened twice")
        agent.opened = True
        self.lane = agent
        self.owing = False

    def _of(self, response: str) -> Agent:
        agent = self.agents.get(response)
        if agent is None or not agent.opened:
            raise Violation("8", f"{response} was never opened")
        return agent

    def _open(self, response: str) -> Agent:
        agent = self._of(response)
        require(not agent.closed, "8", lambda: f"{response} is closed")
        return agent

    def _response_closed(self, notice: ResponseClosed) -> None:
        agent = self._open(notice.response.id)
        require(not agent.open_outputs, "8", lambda: f"{agent.id} closed with {agent.open_outputs} open")
        agent.closed = agent.dead = True
        self.lane = None
        self.replied = notice.response.status != "cancelled"
        if self.owns_turns and agent.admitted == 0 and not agent.ended:
            self._book(agent, 0, lost=False)

    def _output_opened(self, notice: OutputOpened) -> None:
        agent = self._open(notice.response)
        require(
            self._first_allowed(agent) or bool(agent.outputs), "floor", lambda: f"{notice} while the user has the floor"
        )
        require(notice.index == len(agent.outputs), "8", lambda: f"{notice} after {len(agent.outputs)} outputs")
        agent.outputs.append(notice.item.id)
        agent.open_outputs.add(notice.item.id)
        if notice.item.kind == "message":
            require(not agent.item, "8", lambda: f"a second message in {agent.id}")
            agent.item = notice.item.id
            agent.spoken = notice.item.spoken
            self.items[agent.item] = agent
        else:
            self._called(notice.item)

    def _output_text(self, notice: OutputText) -> None:
        agent = self._open(notice.response)
        require(notice.item == agent.item and notice.spoken == agent.spoken, "8", lambda: f"{notice} of another item")
        require(not self.held, "hold", lambda: f"{notice} on hold")
        for word in [f" {name}" for name in notice.text.split(" ")[1:]]:
            if agent.told and int(word[2:]) <= int(agent.told[-1][2:]):
                raise Violation("3", f"{word!r} after {agent.told[-1]}")
            agent.told.append(word)

    def _output_closed(self, notice: OutputClosed) -> None:
        agent = self._open(notice.response)
        require(notice.item.id in agent.open_outputs, "8", lambda: f"{notice.item.id} is not open")
        agent.open_outputs.remove(notice.item.id)
        if notice.item.kind == "message" and agent.limit is not None:
            require(
                notice.item.text == self.kept(agent), "4", lambda: f"{notice.item} but heard was {self.kept(agent)!r}"
            )
            require(notice.item.heard == agent.limit, "4", lambda: f"{notice.item} but {agent.limit} was heard")
        elif notice.item.kind == "message" and notice.item.status == "incomplete" and agent.spoken:
            self._incomplete(agent, notice)

    def _incomplete(self, agent: Agent, notice: OutputClosed) -> None:
        """The engine gave up, or its limit was reached: of a word that was sent in part nothing is kept."""
        if notice.item.heard is not None:
            require(notice.item.heard == agent.admitted, "4", lambda: f"{notice.item} but {agent.admitted} was sent")
            agent.limit = notice.item.heard
        require(
            notice.item.text.strip() == self.kept(agent).strip(),
            "4",
            lambda: f"{notice.item} but sent was {self.kept(agent)!r}",
        )
        kept = notice.item.text.split()
        base = agent.base or 0
        cut_short = [w for w in agent.told if agent.admitted < self.words[w][1] - base and w.strip() in kept]
        require(not cut_short, "4", lambda: f"{cut_short} were not sent to their end")

    def _playback_started(self, notice: PlaybackStarted) -> None:
        agent = self._open(notice.response)
        require(agent.admitted == 0, "8", lambda: f"{notice} in the middle")

    def _playback_stopped(self, notice: PlaybackStopped) -> None:
        agent = self._of(notice.response)
        require(agent.closed, "8", lambda: f"{notice} before the response is closed")
        heard = agent.heard(self.now)
        late = (agent.acknowledged or agent.stands) and self.now >= agent.frames[-1][2] + GRACE
        require(notice.heard_by == agent.heard_by, "3", lambda: f"{notice} rests on a {agent.heard_by}")
        require(heard == agent.admitted or late, "3", lambda: f"{notice} after {heard} of {agent.admitted}")
        self._book(agent, heard, lost=True)
        if self.owns_turns:
            return

    def _playback_cleared(self, notice: PlaybackCleared) -> None:
        agent = self._of(notice.response)
        heard = agent.reported if self.lost and agent.acknowledged else agent.heard(self.now)
        require(notice.heard == heard, "3", lambda: f"{notice}, but {heard} was heard at {self.now}")
        require(notice.heard_by == agent.heard_by, "3", lambda: f"{notice} rests on a {agent.heard_by}")
        if not agent.closed or heard < agent.admitted:
            agent.limit = heard if agent.limit is None else min(agent.limit, heard)
        if not agent.deleted:
            require(notice.text == self.kept(agent), "4", lambda: f"{notice}, but heard was {self.kept(agent)!r}")
        agent.dead = True
        self._book(agent, heard, self.lost)

    def _item_added(self, notice: ItemAdded) -> None:
        item = notice.item
        if item.kind == "function_call":
            self._called(item)
        elif item.kind == "function_call_output":
            require(item.call in self.calls, "8", lambda: f"an answer to {item.call}, which was never called")
            require(item.call not in self.answered, "8", lambda: f"call {item.call} was answered twice")
            self.answered.add(item.call)

    def _called(self, item: ItemView) -> None:
        require(item.call not in self.calls, "8", lambda: f"call {item.call} twice")
        self.calls.add(item.call)
        self.call_items[item.id] = item.call

    def _item_deleted(self, notice: ItemDeleted) -> None:
        call = self.call_items.get(notice.item)
        if call is not None and call not in self.answered:
            self.calls.remove(call)
        agent = self.items.get(notice.item)
        if agent is not None:
            require(agent.closed, "5", lambda: f"{notice} of a response in progress")
            agent.deleted = True

    def _item_truncated(self, notice: ItemTruncated) -> None:
        agent, event = self.items.get(notice.item), self._event
        if agent is None or not isinstance(event, ItemTruncate) or agent.deleted:
            raise Violation("5", f"{notice} of {event}")
        if agent.limit is not None or event.position < agent.admitted:
            agent.limit = min(event.position, agent.admitted if agent.limit is None else agent.limit)
        position = agent.admitted if agent.limit is None else agent.limit
        require(notice.position == position, "4", lambda: f"{notice}, but the history ends at {position}")
        require(notice.text == self.kept(agent), "4", lambda: f"{notice}, but heard was {self.kept(agent)!r}")

    def _epoch_began(self, notice: EpochBegan) -> None:
        require(notice.epoch == self.epoch, "3", lambda: f"{notice} in epoch {self.epoch}")
        self.replied = False
        stops: dict[str, Any] = {
            "client_cancel": ResponseCancel | ItemTruncate,
            "client_clear": OutputClear,
            "key_pressed": DigitPressed,
            "detached": CarrierLost | CarrierAttached | OwnershipTaken,
        }
        kind = stops.get(notice.cause)
        require(kind is None or isinstance(self._event, kind), "5", lambda: f"{notice} by {self._event}")
        if notice.cause in ("barge_in", "withdrawn"):
            turns = self.config.turns
            require(turns is not None and turns.interrupt_response, "5", lambda: f"{notice}, but nobody may interrupt")

    # --- the end ---------------------------------------------------------------------------------------------------

    def _end(self, session: Session) -> None:
        self.over = True
        self.beside.end()
        require(not session.state.asides, "8", "responses outside the conversation are left after close")
        require(self.lane is None, "8", lambda: f"{self.lane} is still open")
        require(not self.asked, "8", lambda: f"perception still owes {self.asked}")
        left = [agent.id for agent in self.order if agent.admitted and not agent.ended]
        require(not left, "2", lambda: f"the samples of {left} have no end")
        if not self.owns_turns:
            unreleased = [agent.id for agent in self.order if not agent.released]
            require(not unreleased, "8", lambda: f"the tracks of {unreleased} were never released")
        totals = self.totals
        generated = totals["generated"]
        by_effects = self.admitted_total + self.dropped_total
        require(generated == by_effects, "2", lambda: f"{generated} ticks were made, {by_effects} were sent or dropped")
        if self.owns_turns:
            totals["cleared"] = self.admitted_total + self.dropped_total - totals["stale"] - totals["played"]
            totals["cleared"] -= totals["unknown"]
        ledger = session.state.ledger
        booked = {name: getattr(ledger, name) for name in totals}
        require(booked == totals, "2", lambda: f"the ledger says {booked}, the checker {totals}")
        require(not ledger.tracks and not session.state.sounding, "8", "tracks are left after close")
        unanswered = len(self.calls - self.answered)
        counted = self._counted.get(counters.UNANSWERED_TOOLS, 0)
        require(counted == unanswered, "8", lambda: f"{unanswered} calls have no answer, {counted} were counted")
