"""A session over WebRTC: audio by a paced track, events by the data channel `oai-events`, and what was really heard.

The guarantees are those of the WebSocket: what belongs to a response goes out in the order given, everything else may
overtake held audio, and no sample of an older epoch passes the gate. Here the gate stands directly before the packet is
encoded, protected and written, all in one step, when its 20 ms have come; nothing is ever written ahead.

After a cut packets of silence go on: a browser that gets none extrapolates the old sound for a quarter of a second.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from aiortc import RTCDataChannel

from codec.opus import OpusEncoder
from server.carriers.websocket import CLEARED_AT_GATE, SLOW_CONSUMER, STALE_AT_GATE, Counts
from server.dialects.base import InputAudio, InputImage, ItemAudio
from server.dialects.realtime_track import TrackDialect
from sessions.core.context import ImageRef
from sessions.core.events import CarrierLost, CommandRejected, Event, ItemCreate
from sessions.core.fence import Fence
from sessions.core.notices import (
    Notice,
    OutputClosed,
    OutputOpened,
    OutputText,
    PlaybackStarted,
    PlaybackStopped,
    ResponseClosed,
    ResponseOpened,
)
from sessions.core.timeline import Ticks, from_ms
from sessions.ports import CarrierCapabilities, OutputFrame

from .downlink import PACKET, Downlink
from .events import EVENTS, MAX_MESSAGE, EventChannel
from .life import Life
from .pacer import Pacer
from .peer import Peer, PeerSettings
from .playback import PlaybackMap
from .reports import PLAYBACK, NoReport, PlaybackReports
from .sdp import Offer
from .uplink import Stretch, UplinkBuffer

log = logging.getLogger(__name__)

SENDING_WITHIN: Final = 1.0
"""Seconds from the connection until our packets can go, if the client takes any."""
LOSS_MOST: Final = 20
"""Per cent of lost packets that the encoder is told of at most: beyond, redundancy costs the sound too much."""
REPORT_EVERY: Final = 50
"""Packets between two RTCP reports: a second."""
DRAIN_WITHIN: Final = 2.0
"""Seconds that the last events have to leave."""
DELAY: Final[Ticks] = from_ms(60)
"""From a frame's placement to the ear as the playout model has it: half a packet until it is sent, and what a browser
adds on a good path (measured: 46 to 48 ms from sending to the audio graph)."""

LATE_PACKETS: Final = "uplink_late_packets"
LOST_PACKETS: Final = "uplink_lost_packets"
RECOVERED_PACKETS: Final = "uplink_recovered_packets"
FLOODED: Final = "flooded"
"""Counter and reason: connections given up because the peer sent more events than can be handled."""
JUNK: Final = "junk_messages"
"""Counter: messages on the playback channel that are none."""
STALLED: Final = "downlink_missed_packets"
"""Counter: packets whose time passed while the loop was late."""

_ORDERED = (OutputOpened, OutputText, OutputClosed, ResponseOpened, ResponseClosed, PlaybackStarted, PlaybackStopped)


class SessionHandle(Protocol):
    """What the carrier needs of its session."""

    @property
    def session(self) -> str: ...

    @property
    def resume_token(self) -> str: ...

    def post(self, event: Event) -> None: ...

    def audio(self, pcm: bytes, rate: int, concealed: bool = False) -> None: ...

    def item(self, create: ItemCreate, pcm: bytes, rate: int) -> None: ...

    def image(self, image: ImageRef, data: bytes) -> None: ...

    async def room(self) -> None: ...

    async def parted(self) -> None: ...


class WebRtcCarrier:
    """`CarrierPort` over one peer connection. All methods are called on the event loop."""

    capabilities = CarrierCapabilities(acknowledged=False, own_buffer=True, paced=True, delay=DELAY)

    def __init__(
        self,
        settings: PeerSettings,
        dialect: TrackDialect,
        counts: Counts,
        pacer: Pacer,
        *,
        output_rate: int,
        input_rate: int = 16_000,
    ) -> None:
        """`output_rate`: of the engine's audio, `input_rate`: in which the user's is given to the session, in Hz.

        Raises OpusUnavailable and OpusError.
        """
        self._dialect = dialect
        self._counts = counts
        self._pacer = pacer
        self._loop = asyncio.get_running_loop()
        self._encoder = OpusEncoder(output_rate, bitrate=settings.bitrate)
        self._downlink = Downlink(self._encoder, partial(counts.add, STALE_AT_GATE))
        self._uplink = UplinkBuffer(input_rate)
        self._input_rate = input_rate
        self._map = PlaybackMap(secrets.randbits(32))
        # In the lower half: a wrap soon after the start would break the decryption at some peers (RFC 3711 3.3.1).
        self._sequence = secrets.randbits(15)
        self._peer = peer = Peer(settings, self)
        self._events = EventChannel(dialect.too_large, lambda: peer.longest_message)
        self._reports = PlaybackReports(self._map)
        self._life = Life(self._loop.time())
        self._handle: SessionHandle | None = None
        self._round_trip = 0.0
        self._loss = 0.0
        self._expected_loss = 0
        self._sending = False
        self._until_report = REPORT_EVERY
        self._gone: str | None = None
        self._ending: str | None = None
        self._done = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None

    # --- the connection's life ---------------------------------------------------------------------------------------

    async def answer(self, offer: Offer) -> str:
        """The SDP answer to an offer. Raises OfferRefused."""
        return await self._peer.answer(offer)

    def begin(self, handle: SessionHandle) -> None:
        """Greet the client of `handle`'s session, and carry it from now on. What the session said before follows."""
        self._handle = handle
        self._dialect.resume_token = handle.resume_token
        self._events.greet([*self._dialect.open(handle.session), *self._dialect.missed()])
        self._pacer.add(self)

    async def run(self) -> str:
        """Until the connection and the session are both done; returns why it ended. After `begin`."""
        handle = self._handle
        if handle is None:
            raise RuntimeError("begin comes first")
        reader = self._loop.create_task(self._read(handle), name=f"{handle.session}-reader")
        try:
            await self._done.wait()
        finally:
            self._lose("cancelled")
            self._pacer.remove(self)
            tasks = [reader] if self._draining is None else [reader, self._draining]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._let_go()
        await handle.parted()
        return self._ending or self._gone or "closed"

    async def close(self) -> None:
        """Give up a connection that no session was opened for."""
        self._gone = "closed"
        await self._let_go()

    async def _let_go(self) -> None:
        await self._peer.close()
        self._uplink.close()
        self._encoder.close()

    def _lose(self, reason: str) -> None:
        """The peer is out of reach: the session, if it still lives, is told so once."""
        if self._gone is not None:
            return
        self._gone = reason
        if self._ending is None:
            self._post(CarrierLost(reason))
        self._done.set()

    def _post(self, event: Event) -> None:
        if self._handle is not None:
            self._handle.post(event)

    @property
    def waiting(self) -> int:
        """Bytes that the session handed over and the peer has not got: PCM, and events that wait for their channel."""
        return self._downlink.waiting + self._events.waiting

    # --- from the peer: media ----------------------------------------------------------------------------------------

    def started(self) -> None:
        self._sending = True
        self.connected()

    def connected(self) -> None:
        self._life.connected(self._loop.time())

    def alive(self) -> None:
        self._life.sign(self._loop.time())

    def packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        now = self._loop.time()
        self._life.flow(now)
        if self._gone is None and self._ending is None:
            self._hear(self._uplink.push(sequence, timestamp, payload, now))

    def loss(self, fraction: float, round_trip: float | None) -> None:
        if round_trip is not None:
            self._round_trip = round_trip
        # Up at once, down slowly: redundancy that comes and goes with every report helps nobody.
        self._loss = max(fraction, 0.8 * self._loss)
        expected = min(round(100 * self._loss), LOSS_MOST)
        if expected != self._expected_loss:
            self._expected_loss = expected
            self._encoder.expect_loss(expected)

    def _hear(self, stretches: list[Stretch]) -> None:
        handle = self._handle
        if handle is not None:
            for stretch in stretches:
                handle.audio(stretch.pcm, self._input_rate, stretch.concealed)

    # --- from the peer: messages -------------------------------------------------------------------------------------

    def channel(self, channel: RTCDataChannel) -> None:
        if channel.label == EVENTS and self._events.open(channel):
            channel.on("message", self._event)
        elif channel.label == PLAYBACK and self._reports.open(channel):
            channel.on("message", self._report)
        else:
            channel.close()

    def ended(self, reason: str) -> None:
        self._lose(reason)

    def _event(self, message: str | bytes) -> None:
        if self._gone is not None:
            return
        self._life.sign(self._loop.time())
        if not self._events.put(message):
            self._counts.add(FLOODED)
            self._lose(FLOODED)

    async def _read(self, handle: SessionHandle) -> None:
        while True:
            self.receive(await self._events.take())
            await handle.room()

    def receive(self, message: str | bytes) -> None:
        """One event of the client, from its data channel or from a sideband."""
        handle = self._handle
        if handle is None or self._gone is not None or self._ending is not None:
            return
        if len(message) > MAX_MESSAGE:
            why = f"the message has {len(message)} characters; at most {MAX_MESSAGE} are taken: send smaller ones"
            handle.post(CommandRejected("message_too_large", why))
            return
        try:
            for received in self._dialect.receive(message):
                if isinstance(received, InputAudio):
                    why = "audio of a call comes by its media track; nothing of this message was used"
                    handle.post(CommandRejected("unsupported", why, "type"))
                elif isinstance(received, ItemAudio):
                    handle.item(received.create, received.pcm, received.rate)
                elif isinstance(received, InputImage):
                    handle.image(received.image, received.data)
                else:
                    handle.post(received)
        except Exception:
            log.exception("an event of session %s failed", handle.session)
            self._lose("internal_error")

    def _report(self, message: str | bytes) -> None:
        """A playback report, or a heartbeat alone."""
        now = self._loop.time()
        self._life.flow(now)
        try:
            events = self._reports.take(message, self._round_trip, now)
        except NoReport:
            self._counts.add(JUNK)
            return
        for event in events:
            self._post(event)

    # --- to the peer: audio ------------------------------------------------------------------------------------------

    def tick(self, due: int, missed: int) -> None:
        """The pacer's: packets whose time has come."""
        try:
            self._tick(due, missed)
        except Exception:
            # The pacer has others to serve.
            log.exception("sending for session %s failed", self._handle.session if self._handle is not None else "")
            self._lose("internal_error")

    def _tick(self, due: int, missed: int) -> None:
        now = self._loop.time()
        lost = self._life.end(now)
        if lost is not None:
            self._lose(lost)
        if self._gone is not None:
            return
        if self._ending is None:
            self._hear(self._uplink.tick(now))
        if not self._sending and not self._only_speaks(now):
            return
        if missed:
            self._counts.add(STALLED, missed)
            self._map.skip(missed * PACKET)
        for _ in range(due):
            self._send_packet()
        self._until_report -= due
        if self._until_report <= 0:
            # Not all at once: sessions that began together would report together for ever.
            self._until_report = REPORT_EVERY // 2 + secrets.randbelow(REPORT_EVERY)
            self._peer.media.report(self._map.timestamp)
            self._count_uplink()
        if self._ending is not None and not self._downlink:
            self._finish()

    def _only_speaks(self, now: float) -> bool:
        """Whether the client takes no audio: what is due then passes unheard, and the events that follow it go on."""
        since = self._life.connected_at
        return since is not None and now - since > SENDING_WITHIN and self._draining is None

    def _send_packet(self) -> None:
        release = self._downlink.next()
        timestamp = self._map.timestamp
        self._peer.media.send(self._sequence, timestamp, release.payload)
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._map.sent(release.pieces, PACKET)
        for notice in release.notices:
            self._tell(notice)

    def _count_uplink(self) -> None:
        uplink = self._uplink
        for name, count in (
            (LATE_PACKETS, uplink.late),
            (LOST_PACKETS, uplink.lost),
            (RECOVERED_PACKETS, uplink.recovered),
        ):
            if count:
                self._counts.add(name, count)
        uplink.late = uplink.lost = uplink.recovered = 0

    # --- to the peer: messages ---------------------------------------------------------------------------------------

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Give every event to `listener` as well, from now on; returns how to stop it."""
        listeners = self._events.listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener) if listener in listeners else None

    def greet(self, session: str) -> list[str]:
        """`session.created`, for a sideband that joins."""
        return self._dialect.open(session)

    def _tell(self, notice: Notice) -> None:
        for message in self._dialect.send(notice):
            self._say(message)

    def _say(self, message: str) -> None:
        if self._gone is not None:
            return
        self._events.say(message)
        if self._events.stuck:
            # The peer takes nothing: nothing that we could still say would reach it.
            self._counts.add(SLOW_CONSUMER)
            self._lose(SLOW_CONSUMER)

    # --- CarrierPort -------------------------------------------------------------------------------------------------

    def admit(self, *frames: OutputFrame) -> None:
        if self._gone is None and self._ending is None:
            for frame in frames:
                self._downlink.admit(frame)

    def hold(self) -> None:
        self._downlink.hold()
        self._reports.held = True

    def resume(self) -> None:
        self._downlink.resume()
        self._reports.held = False

    def flush(self, fence: Fence) -> None:
        """Move the gate, drop what is queued, and tell the page in the same step from where on it may be heard."""
        cleared = self._downlink.flush(fence)
        self._dialect.flush(fence)
        if cleared:
            self._counts.add(CLEARED_AT_GATE, cleared)
        self._reports.begin_epoch(fence.epoch)
        own = {"epoch": fence.epoch, "mute_until_rtp": self._reports.mute_until}
        for message in self._dialect.own("mute", own):
            self._say(message)

    def notify(self, notice: Notice) -> None:
        if self._gone is not None or self._ending is not None:
            self._dialect.miss(notice)
        elif not (isinstance(notice, _ORDERED) and self._downlink.follow(notice)):
            self._tell(notice)

    def end(self, reason: str) -> None:
        """Close the connection once what was queued is out; held audio is not waited for."""
        if self._gone is not None or self._ending is not None:
            return
        self._ending = reason
        self._downlink.release_held()
        if reason == "replaced" or self._life.connected_at is None:
            self._gone = reason
            self._done.set()
        elif not self._downlink:
            self._finish()

    def _finish(self) -> None:
        """All packets are out: leave once the last events are."""
        self._sending = False
        if self._draining is None:
            self._draining = self._loop.create_task(self._drain(), name="webrtc-drain")

    async def _drain(self) -> None:
        await self._events.drain(DRAIN_WITHIN)
        self._gone = self._gone or self._ending
        self._done.set()
