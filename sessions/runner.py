"""One session at work: its core, and the hands that do what the core decides."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .core import counters
from .core.config import SessionConfig
from .core.context import ImageRef
from .core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    AppendInput,
    AssessTurn,
    CancelPerception,
    CancelResponse,
    ClearTimer,
    CloseEngine,
    Count,
    DropAudio,
    Effect,
    EndSession,
    FlushCarrier,
    ForgetInput,
    GrantCredit,
    HoldCarrier,
    Notify,
    OpenEngine,
    OpenPerception,
    ReleaseTrack,
    ResumeCarrier,
    SetTimer,
    ShowImages,
    StartResponse,
    TellEngine,
    Transcribe,
)
from .core.events import (
    AudioArrived,
    CarrierAttached,
    CarrierLost,
    Close,
    DuplexFrame,
    EngineAudio,
    Event,
    ItemCreate,
    OwnershipLost,
    OwnershipTaken,
    SpeechProbability,
    TimerDue,
)
from .core.records import Plain
from .core.session import Session
from .core.state import Abilities, State
from .core.timeline import TICK_RATE, Ticks
from .counters import Counters
from .figures import Figures
from .handle import SessionHandle
from .journal import Journal
from .keeper import Keeping
from .mailbox import Mail, Mailbox
from .own_voice import OwnVoice
from .ports import TOGETHER, Busy, CarrierPort, EnginePort, Heeds, OutputFrame, PerceptionPort, Rewinds, Sees, Told
from .tracks import OutputTrack, silence, ticks_of

if TYPE_CHECKING:
    from .manager import SessionManager

log = logging.getLogger(__name__)

AUDIO_WAITING = 60 * 48_000
"""Bytes of user audio that may wait in a mailbox (60 s at 24 kHz)."""
MAIL_WAITING = 2_000
"""Mails from which a reader is asked to wait."""
IMAGES_WAITING = 8
"""Images that may wait for their items."""
BATCH = 64
"""Mails handled before other sessions get the loop again."""
STRETCH: Ticks = TICK_RATE // 50
"""In so long at most `BATCH` events are handled as they come; who sends more waits for the session's turn."""
SHORT = 48_000
"""Bytes of audio up to which an event is handled as it comes: a second at 24 kHz."""

GRID = 0.01
"""Seconds to whose multiples on the loop's clock the waking of sessions that speak is put off, so that one waking does
for many."""
AT_EASE = 8
"""Frames of lead from which a session is woken for several frames at once: it has enough ahead of its playback."""
EASE = 3
"""For how many: what is said then lies five frames ahead of its playback at least, less half of one for `GRID`."""


def _attached(carrier: CarrierPort) -> CarrierAttached:
    can = carrier.capabilities
    return CarrierAttached(can.acknowledged, can.paced, can.delay)


class Runner:
    """One session: mailbox, task, timers, output tracks, and the hands of its core."""

    def __init__(
        self,
        manager: SessionManager,
        session: str,
        carrier: CarrierPort,
        config: SessionConfig,
        core: Session | None = None,
    ) -> None:
        """`core`: of a session that is taken over, as its former owner left it."""
        self._manager = manager
        self._engine: EnginePort = manager.engine
        self._perception: PerceptionPort = manager.perception
        self.counters: Counters = manager.counters
        self._carrier: CarrierPort = carrier
        self.session: str = session
        self.attachment = 1
        self.token = secrets.token_urlsafe(24)
        can, hears = manager.engine.capabilities, manager.perception.capabilities
        self._core: Session = core or Session(
            session,
            manager.incarnation,
            config,
            Abilities(
                can.turns == "engine",
                can.listens == "audio",
                hears.transcripts,
                can.voices,
                hears.noise_reduction,
                hears.logprobs,
                can.images,
                can.told,
            ),
        )
        self._state: State = self._core.state
        self._rate = can.output_rate
        self._heeds = manager.perception if isinstance(manager.perception, Heeds) else None
        self._floor_taken = False
        self._own_voice = OwnVoice(session, manager.perception, can.output_rate)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._began = self._loop.time() - self._state.now / TICK_RATE
        self.mailbox = Mailbox(AUDIO_WAITING)
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._handling = False
        self._fault: Exception | None = None
        self._at_once = 0
        """Events handled as they came, in the stretch that ends at `_stretch_end`."""
        self._stretch_end: Ticks = 0
        self._partings: deque[asyncio.Event] = deque()
        self.done = asyncio.Event()
        self._tracks: dict[str, OutputTrack] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.input_end: Ticks = self._state.input.watermark
        self._images: dict[str, bytes] = {}
        self._pcm: bytes | None = None
        self._pcm_rate = 0
        self._keeping: Keeping | None = None
        self._lost_to: int | None = None
        """The incarnation that owns the session now, where that is another process's."""
        self._figures = Figures() if manager.observer is not None else None
        self._journal: Journal | None = None if core is not None else self._record(manager.incarnation)

    # --- in ----------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Attach the carrier at once, so that a refusal (`Busy`) reaches the caller and nothing stays behind."""
        try:
            self._handle(_attached(self._carrier), self._now())
        except Busy:
            self._discard()
            raise
        self._task = self._loop.create_task(self._run(), name=self.session)

    def _record(self, incarnation: int, state: Plain = None) -> Journal | None:
        """`state`: of a core that another process's session was restored to."""
        recorder = self._manager.recorder
        if recorder is None:
            return None
        known = self._state
        return recorder.open(
            self.session,
            incarnation,
            known.config,
            known.abilities,
            self._rate,
            self._manager.engine_told(self.session),
            state if isinstance(state, dict) else None,
        )

    def _discard(self) -> None:
        self._close_ports()
        if self._journal is not None:
            self._journal.discard()

    def keep(self, keeping: Keeping) -> None:
        """From here on the directory of sessions knows what happens."""
        self._keeping = keeping

    def note(self, note: Callable[[], Plain]) -> None:
        """See `Keeping.note`."""
        if self._keeping is not None:
            self._keeping.note(note)

    def go_on(self, incarnation: int, token: str) -> None:
        """Take over, as `incarnation`, what the core was restored from, with the carrier that was given."""
        self.token = token
        self._journal = self._record(incarnation, self._core.snapshot())
        try:
            self._handle(OwnershipTaken(incarnation), self._now())
        except Busy:
            self._discard()
            raise
        self.begin()

    def join(self, carrier: CarrierPort) -> None:
        """Another carrier; from here on nothing is taken from the one before."""
        self.attachment += 1
        former, self.token = self.token, secrets.token_urlsafe(24)
        if self._keeping is not None:
            self._keeping.offer(self.token, former)
        self.put(Mail(_attached(carrier), carrier=carrier))

    def handle(self) -> SessionHandle:
        """For the carrier that was given last, once."""
        parted = asyncio.Event()
        self._partings.append(parted)
        return SessionHandle(self, self.attachment, self.token, parted)

    def emit(self, event: Event, pcm: bytes | None = None) -> None:
        """`Emit` of the ports: from any thread."""
        mail = Mail(event, pcm, self._rate)
        if threading.get_ident() == self._thread:
            self.put(mail)
        else:
            self._manager.crossing.put(self, mail)

    def arrive(self, event: Event, pcm: bytes | None = None, rate: int = 0) -> None:
        """Handle `event` at once, where nothing is ahead of it; a task's turn would cost more than most events.

        Only for callers whom it does not disturb that the session acts before they go on.
        """
        now = self._now()
        if self._handling or len(self.mailbox) or not self._may_at_once(now, pcm):
            self.put(Mail(event, pcm, rate))
            return
        try:
            self._handle(event, now, pcm, rate)
        except Exception as error:
            self._fault = error
        if self._fault is not None or self._state.closed:
            self._wake.set()

    def _may_at_once(self, now: Ticks, pcm: bytes | None) -> bool:
        if pcm is not None and len(pcm) > SHORT:
            return False
        if now >= self._stretch_end:
            self._stretch_end = now + STRETCH
            self._at_once = 0
        self._at_once += 1
        free = self._at_once <= BATCH and self._manager.keeper.fresh
        return free and self._fault is None and self._lost_to is None and not self._state.closed

    def put(self, mail: Mail) -> None:
        """Add to the mailbox; the session's task comes to it."""
        lost = self.mailbox.put(mail)
        if lost:
            self.counters.add("input_overflow", lost)
        if len(self.mailbox) > MAIL_WAITING:
            self._room.clear()
        self._wake.set()

    def audio(self, pcm: bytes, rate: int, concealed: bool = False) -> None:
        start = self.input_end
        self.input_end += ticks_of(pcm, rate)
        if self.input_end > start:
            self.arrive(AudioArrived(start, self.input_end, concealed), pcm, rate)

    def item(self, create: ItemCreate, pcm: bytes, rate: int) -> None:
        start = self.input_end
        self.input_end += ticks_of(pcm, rate)
        self.put(Mail(replace(create, audio=AudioArrived(start, self.input_end)), pcm, rate))

    def image(self, image: ImageRef, data: bytes) -> None:
        """Keep the file of an image until the core has said what becomes of the item that names it."""
        self._images[image.digest] = data
        while len(self._images) > IMAGES_WAITING:
            del self._images[next(iter(self._images))]

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def room(self) -> None:
        await self._room.wait()

    # --- its owner (`keeper.Kept`) -----------------------------------------------------------------------------------

    def plain(self) -> Plain:
        return self._core.snapshot()

    def owned_by_another(self, incarnation: int) -> None:
        self._keeping = None
        self._lost_to = incarnation
        self._wake.set()

    def refused(self, why: Busy) -> None:
        self._keeping = None
        self.put(Mail(Close("too_many_sessions")))

    # --- the task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._state.closed:
                await self._wake.wait()
                self._wake.clear()
                if self._fault is not None:
                    raise self._fault
                if not self._manager.keeper.fresh:
                    await self._manager.keeper.ask()
                if self._lost_to is not None:
                    self._handle(OwnershipLost(self._lost_to), self._now())  # ahead of everything that waits
                handled = 0
                while not self._state.closed and (mail := self.mailbox.take()) is not None:
                    self._handle(mail.event, self._now(), mail.pcm, mail.rate, mail.carrier)
                    handled += 1
                    if handled % BATCH == 0:
                        await asyncio.sleep(0)
                self._room.set()
        except Exception:
            # A fault of ours in one session must not take the others along, nor leave anything of it behind.
            log.exception("session %s failed", self.session)
            self.counters.add(counters.SESSION_FAULT)
            self._close_ports()
            self._end(EndSession("internal_error"))
        finally:
            self._manager.forget(self.session)
            while (mail := self.mailbox.take()) is not None:
                if mail.carrier is not None:
                    mail.carrier.end("session_over")
            for parted in self._partings:
                parted.set()
            self.done.set()
            self._let_go()

    def _let_go(self) -> None:
        """Nothing is asked of the carrier and the keeper any more. They hold the session too, and such rings stay until
        the garbage collector comes by: hundreds of sessions later, with every buffer that they have."""
        del self._carrier
        self._keeping = None
        self._fault = None  # its traceback holds the session as well

    @property
    def now(self) -> Ticks:
        """Session time."""
        return self._now()

    @property
    def tenant(self) -> str:
        """Whose session it is."""
        return self._state.config.tenant

    @property
    def heard(self) -> Ticks:
        """User audio so far."""
        return self._state.input.watermark

    def post(self, event: Event) -> None:
        """Have the session handle `event` in its turn."""
        self.put(Mail(event))

    def _now(self) -> Ticks:
        return max(self._state.now, round((self._loop.time() - self._began) * TICK_RATE))

    def _handle(
        self, event: Event, now: Ticks, pcm: bytes | None = None, rate: int = 0, carrier: CarrierPort | None = None
    ) -> None:
        """Let the core decide about `event` and do what it says. See `Mail`."""
        self._handling = True
        try:
            if self._journal is not None:
                self._journal.event(event, now, pcm, rate)
            kind = type(event)
            if kind is AudioArrived:
                self._hear(event, pcm, rate, now)  # type: ignore[arg-type]
            elif pcm is not None:
                self._keep(event, pcm, rate)
            effects = self._core.handle(event, now)
            if kind is SpeechProbability:
                self._tell_floor()
            if carrier is not None:
                self._replace(carrier)
            elif kind is CarrierLost:
                self._partings[0].set()
                if self._keeping is not None:
                    self._keeping.settled()
            if self._journal is not None:
                self._journal.effects(effects)
            if self._keeping is not None:
                self._keeping.event(event, now)
            if self._figures is not None and effects:
                self._tell_figures(effects, now)
            if effects:
                self._carry_out(effects)
        finally:
            self._handling = False

    def _carry_out(self, effects: list[Effect]) -> None:
        """Frames with nothing between them go to the carrier together: to write costs more than to make one."""
        frames: list[OutputFrame] = []
        for effect in effects:
            kind = type(effect)
            if kind is AdmitFrame:
                frames.append(self._frame(effect))  # type: ignore[arg-type]
                continue
            self._let_out(frames)
            _HANDS[kind](self, effect)
        self._let_out(frames)

    def _let_out(self, frames: list[OutputFrame]) -> None:
        for at in range(0, len(frames), TOGETHER):
            self._carrier.admit(*frames[at : at + TOGETHER])
        frames.clear()

    def _hear(self, event: AudioArrived, pcm: bytes | None, rate: int, now: Ticks) -> None:
        if pcm is None:
            pcm, rate = silence(event.end - event.start, 24_000), 24_000
        self._pcm, self._pcm_rate = pcm, rate
        self._perception.feed(self.session, event.start, pcm, rate)
        self._own_voice.arrived(event.start, event.end, now)

    def _tell_floor(self) -> None:
        taken = self._state.policy.phase == "speech"
        if taken != self._floor_taken and self._heeds is not None:
            self._floor_taken = taken
            self._heeds.floor(self.session, taken)

    def _tell_figures(self, effects: list[Effect], now: Ticks) -> None:
        observer = self._manager.observer
        if self._figures is not None and observer is not None:
            seen = self._figures.take(effects, now, self._state.input.watermark)
            if seen:
                observer.figures(self.session, seen)

    def _replace(self, carrier: CarrierPort) -> None:
        """The core has taken another carrier: what the one before still had to say belongs to a dead epoch."""
        self._carrier.flush(self._core.fence)
        self._carrier.end("replaced")
        self._carrier = carrier
        self._partings.popleft().set()

    def _feed_item(self, start: Ticks, pcm: bytes, rate: int) -> None:
        """Audio of an item is only listened to on request: no speech is reported in it."""
        listening = OpenPerception.of(self._state.config)
        aloof = replace(listening, speech=False)
        self._perception.open(self._core.fence, aloof, self.emit)
        self._perception.feed(self.session, start, pcm, rate)
        self._perception.open(self._core.fence, listening, self.emit)

    def _keep(self, event: Event, pcm: bytes, rate: int) -> None:
        """Hold engine audio until the core admits or drops it, and let perception have the audio of an item."""
        if isinstance(event, ItemCreate):
            if event.audio is not None:
                self._pcm, self._pcm_rate = pcm, rate
                self._feed_item(event.audio.start, pcm, rate)
            return
        if isinstance(event, EngineAudio):
            source = event.response
            state = self._state
            if source not in state.asides and (state.active is None or state.active.id != source):
                return
        elif isinstance(event, DuplexFrame):
            source = "duplex"
        else:
            return
        track = self._tracks.get(source)
        if track is None:
            track = self._tracks[source] = OutputTrack(self._rate, event.start)
        if not track.append(event.start, pcm) and source == "duplex":
            track = self._tracks[source] = OutputTrack(self._rate, event.start)
            track.append(event.start, pcm)

    # --- hands -------------------------------------------------------------------------------------------------------

    def _append_input(self, effect: AppendInput) -> None:
        if self._pcm is not None:
            self._engine.append(self.session, effect.start, self._pcm, self._pcm_rate)

    def _show(self, effect: ShowImages) -> None:
        for image in effect.images:
            data = self._images.pop(image.digest, None)
            if data is not None and isinstance(self._engine, Sees):
                self._engine.see(self.session, image, data)

    def _tell(self, effect: TellEngine) -> None:
        if isinstance(self._engine, Told):
            self._engine.tell(effect.fence, effect.entries, effect.anew)

    def _advance(self, effect: AdvanceEpoch) -> None:
        if effect.heard is not None and isinstance(self._engine, Rewinds):
            self._engine.rewind(effect.fence, effect.heard)
        else:
            self._engine.advance(effect.fence)

    def _frame(self, effect: AdmitFrame) -> OutputFrame:
        """The audio of a frame that may leave; perception is told of it."""
        start = effect.source_start
        run, at, size = self._tracks[effect.source].cut_run(start, start + effect.end - effect.start)
        pcm = run[at : at + size]
        if self._journal is not None:
            self._journal.sent(effect, pcm)
        frame = OutputFrame(
            effect.fence,
            effect.sequence,
            effect.response,
            effect.item,
            effect.start,
            effect.end,
            effect.placed_at,
            pcm,
            self._rate,
            run,
            at,
        )
        if self._state.config.turns is not None:
            self._own_voice.play(frame.placed_at, pcm, self._state.now)
        return frame

    def _hold(self, effect: HoldCarrier) -> None:
        self._carrier.hold()
        if self._carrier.capabilities.paced:
            self._own_voice.hold(self._state.now)

    def _resume(self, effect: ResumeCarrier) -> None:
        self._carrier.resume()
        self._own_voice.resume(self._state.now)

    def _flush(self, effect: FlushCarrier) -> None:
        self._carrier.flush(effect.fence)
        self._own_voice.flush(self._state.now)

    def _drop(self, effect: DropAudio) -> None:
        self.counters.add(f"dropped_ticks_{effect.why}", effect.end - effect.start)
        track = self._tracks.get(effect.source)
        if track is not None and effect.source == "duplex" and self._state.active is None:
            track.drop_before(effect.end)

    def _release(self, effect: ReleaseTrack) -> None:
        self._tracks.pop(effect.source, None)

    def _set_timer(self, effect: SetTimer) -> None:
        self._clear_timer(effect)
        due = self._began + effect.due / TICK_RATE
        if effect.name == "pump":
            due = self._at_ease(due)
        self._timers[effect.name] = self._loop.call_at(due, self._timer_due, effect.name)

    def _at_ease(self, due: float) -> float:
        """When to wake the session for a frame that may leave at `due`: so late that others may, too."""
        config = self._state.config
        if config.lead < AT_EASE * config.frame:
            return due
        return math.ceil((due + (EASE - 1) * config.frame / TICK_RATE) / GRID) * GRID

    def _clear_timer(self, effect: SetTimer | ClearTimer) -> None:
        timer = self._timers.pop(effect.name, None)
        if timer is not None:
            timer.cancel()

    def _timer_due(self, name: str) -> None:
        self._timers.pop(name, None)
        self.arrive(TimerDue(name))

    def _close_ports(self) -> None:
        self._engine.close(self.session)
        self._perception.close(self.session)

    def _end(self, effect: EndSession) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._tracks.clear()
        if self._journal is not None:
            self._journal.close(effect.reason)
        self._carrier.end(effect.reason)


# Not in the runner: one that held its own methods would be freed by the garbage collector alone, and all with it that
# the session had.
_HANDS: Final[dict[type, Callable[[Runner, Any], None]]] = {
    OpenPerception: lambda r, e: r._perception.open(r._core.fence, e, r.emit),
    Transcribe: lambda r, e: r._perception.transcribe(r.session, e),
    AssessTurn: lambda r, e: r._perception.assess(r.session, e),
    CancelPerception: lambda r, e: r._perception.cancel(r.session, e.request),
    ForgetInput: lambda r, e: r._perception.forget(r.session, e.before),
    OpenEngine: lambda r, e: r._engine.open(e.fence, e.config, r.emit),
    AppendInput: Runner._append_input,
    ShowImages: Runner._show,
    TellEngine: Runner._tell,
    StartResponse: lambda r, e: r._engine.start(e),
    GrantCredit: lambda r, e: r._engine.grant(e),
    CancelResponse: lambda r, e: r._engine.cancel(e.fence, e.response),
    AdvanceEpoch: Runner._advance,
    CloseEngine: lambda r, e: r._close_ports(),
    DropAudio: Runner._drop,
    ReleaseTrack: Runner._release,
    HoldCarrier: Runner._hold,
    ResumeCarrier: Runner._resume,
    FlushCarrier: Runner._flush,
    Notify: lambda r, e: r._carrier.notify(e.notice),
    SetTimer: Runner._set_timer,
    ClearTimer: Runner._clear_timer,
    Count: lambda r, e: r.counters.add(e.name, e.by),
    EndSession: Runner._end,
}
