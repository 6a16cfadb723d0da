"""A session over WebRTC: audio by a paced track, events by the data channel `oai-events`, and what was really heard.

The guarantees are those of the WebSocket: what belongs to a response goes out in the order given, everything else may
overtake held audio, and no sample of an older epoch passes the gate. Here the gate stands directly before the packet is
encoded, protected and written, all in one step, when its 20 ms have come; nothing is ever written ahead.

After a cut packets of silence go on: a browser that gets none extrapolates the old sound for a quarter of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from aiortc import RTCDataChannel

from codec.opus import OpusEncoder
from server.carriers.websocket import CLEARED_AT_GATE, CONTROL_MAX, SLOW_CONSUMER, STALE_AT_GATE, Counts
from server.dialects.base import InputAudio, ItemAudio
from server.dialects.realtime_track import TrackDialect
from sessions.core.events import CarrierLost, CommandRejected, Event, ItemCreate, PlaybackReported
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
from sessions.core.timeline import TICK_RATE, Ticks, from_ms
from sessions.ports import CarrierCapabilities, OutputFrame

from .downlink import PACKET, Downlink
from .pacer import Pacer
from .peer import Peer, PeerSettings
from .playback import PlaybackMap
from .sdp import Offer
from .uplink import Stretch, UplinkBuffer

log = logging.getLogger(__name__)

EVENTS: Final = "oai-events"
PLAYBACK: Final = "talkover-playback"
CHANNELS_MOST: Final = 8

MAX_MESSAGE: Final = 256 * 1024
"""Characters of one event of the client; a longer one is refused and the session goes on."""
INBOX_MOST: Final = 4 * MAX_MESSAGE
"""Characters of events that may wait for a session that is behind."""
INBOX_EVENTS_MOST: Final = 4096
MAX_REPORT: Final = 1024
"""Characters of one playback report."""
CONNECT_WITHIN: Final = 15.0
"""Seconds from the answer to the first sign of the client's media path."""
SENDING_WITHIN: Final = 1.0
"""Seconds from the connection until our packets can go, if the client takes any."""
GONE_AFTER: Final = 4.0
"""Seconds of silence after media or reports that came steadily, before the client counts as lost."""
GONE_AFTER_QUIET: Final = 12.0
"""The same for a client that sends neither, whose checks and reports come every few seconds."""
LOSS_MOST: Final = 20
"""Per cent of lost packets that the encoder is told of at most: beyond, redundancy costs the sound too much."""
REPORT_EVERY: Final = 50
"""Packets between two RTCP reports: a second."""
DRAIN_WITHIN: Final = 2.0
"""Seconds that the last messages have to leave."""
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
        self._downlink = Downlink(self._encoder, self._stale)
        self._uplink = UplinkBuffer(input_rate)
        self._input_rate = input_rate
        self._map = PlaybackMap(secrets.randbits(32))
        self._sequence = secrets.randbits(15)
        # In the lower half: a wrap soon after the start would break the decryption at some peers (RFC 3711 3.3.1).
        self._peer = Peer(settings, self)
        self._handle: SessionHandle | None = None
        self._channel: RTCDataChannel | None = None
        self._reports: RTCDataChannel | None = None
        self._inbox: deque[str | bytes] = deque()
        self._inbox_size = 0
        self._mail = asyncio.Event()
        self._unsent: deque[str] = deque()
        self._unsent_size = 0
        self._listeners: list[Callable[[str], None]] = []
        self._epoch = 0
        self._mute_until: int | None = None
        self._reported_at = 0.0
        self._reported: dict[str, Ticks] = {}
        self._round_trip = 0.0
        self._loss = 0.0
        self._expected_loss = 0
        now = self._loop.time()
        self._deadline = now + CONNECT_WITHIN
        self._flow_at = self._alive_at = now
        self._connected_at: float | None = None
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
        early, self._unsent = self._unsent, deque()
        self._unsent_size = 0
        for message in (*self._dialect.open(handle.session), *self._dialect.missed(), *early):
            self._say(message)
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
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            await self._peer.close()
            self._uplink.close()
        await handle.parted()
        return self._ending or self._gone or "closed"

    async def close(self) -> None:
        """Give up a connection that no session was opened for."""
        self._gone = "closed"
        await self._peer.close()
        self._uplink.close()

    def _lose(self, reason: str) -> None:
        """The peer is out of reach: the session, if it still lives, is told so once."""
        if self._gone is not None:
            return
        self._gone = reason
        self._unsent.clear()
        if self._ending is None:
            self._post(CarrierLost(reason))
        self._done.set()

    def _post(self, event: Event) -> None:
        if self._handle is not None:
            self._handle.post(event)

    @property
    def waiting(self) -> int:
        """Bytes that the session handed over and the peer has not got: PCM, and events that wait for their channel."""
        buffered = self._channel.bufferedAmount if self._channel is not None else 0
        return self._downlink.waiting + self._unsent_size + buffered

    # --- from the peer: media ----------------------------------------------------------------------------------------

    def started(self) -> None:
        self._sending = True
        self.connected()

    def connected(self) -> None:
        now = self._loop.time()
        if self._connected_at is None:
            self._connected_at = self._alive_at = self._flow_at = now

    def alive(self) -> None:
        self._alive_at = self._loop.time()

    def packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        now = self._loop.time()
        self._alive_at = self._flow_at = now
        if self._handle is None or self._ending is not None:
            return
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
        if channel.label == EVENTS and self._channel is None:
            self._channel = channel
            channel.on("message", self._event)
            while self._unsent:
                message = self._unsent.popleft()
                self._unsent_size -= len(message)
                self._write(message)
        elif channel.label == PLAYBACK and self._reports is None:
            self._reports = channel
            channel.on("message", self._report)
        else:
            channel.close()

    def ended(self, reason: str) -> None:
        self._lose(reason)

    def _event(self, message: str | bytes) -> None:
        """An event of the client. It waits its turn: a data channel cannot be told to wait."""
        if self._gone is not None:
            return
        self._alive_at = self._loop.time()
        self._inbox.append(message)
        self._inbox_size += len(message)
        if self._inbox_size > INBOX_MOST or len(self._inbox) > INBOX_EVENTS_MOST:
            self._counts.add(FLOODED)
            self._lose(FLOODED)
        self._mail.set()

    async def _read(self, handle: SessionHandle) -> None:
        while True:
            await self._mail.wait()
            self._mail.clear()
            while self._inbox:
                message = self._inbox.popleft()
                self._inbox_size -= len(message)
                self.receive(message)
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
                else:
                    handle.post(received)
        except Exception:
            log.exception("an event of session %s failed", handle.session)
            self._lose("internal_error")

    def _report(self, message: str | bytes) -> None:
        """A playback report, or a heartbeat alone."""
        now = self._loop.time()
        self._alive_at = self._flow_at = now
        try:
            if not isinstance(message, str) or len(message) > MAX_REPORT:
                raise ValueError
            report = json.loads(message)
            timestamp, at = report.get("rtp"), report["at_ms"]
            if isinstance(at, bool) or not isinstance(at, int | float) or not -1e15 < at < 1e15:
                raise ValueError
            if timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp < 1 << 32):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._counts.add(JUNK)
            return
        if timestamp is not None and at > self._reported_at:
            self._reported_at = at
            self._played(timestamp)
        self._tell_mute(at)

    def _played(self, timestamp: int) -> None:
        """Tell the session what sounds there now. The report itself took half a round trip."""
        ahead = min(round(self._round_trip / 2 * TICK_RATE), from_ms(500))
        found = self._map.locate(timestamp, ahead)
        if found is None or (self._mute_until is not None and _before(timestamp, self._mute_until)):
            # Of the last epoch: what was heard of it is settled.
            return
        response, position = found
        for earlier in [one for one in self._reported if one != response]:
            # The one before was played to its end, though no report may have hit it.
            del self._reported[earlier]
            end = self._map.end_of(earlier)
            if end is not None:
                self._post(PlaybackReported(earlier, end))
        if position > self._reported.get(response, -1):
            self._reported[response] = position
            self._post(PlaybackReported(response, position))

    # --- to the peer: audio ------------------------------------------------------------------------------------------

    def tick(self, due: int, missed: int) -> None:
        """The pacer's: packets whose time has come."""
        now = self._loop.time()
        self._check_life(now)
        if self._gone is not None:
            return
        if self._ending is None:
            self._hear(self._uplink.tick(now))
        if not self._sending and not self._only_hears(now):
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

    def _only_hears(self, now: float) -> bool:
        """Whether the client takes no audio: what is due then passes unheard, and the events that follow it go on."""
        return self._connected_at is not None and now - self._connected_at > SENDING_WITHIN and self._draining is None

    def _send_packet(self) -> None:
        release = self._downlink.next()
        timestamp = self._map.timestamp
        self._peer.media.send(self._sequence, timestamp, release.payload)
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._map.sent(release.pieces, PACKET)
        for notice in release.notices:
            self._tell(notice)

    def _stale(self, frames: int) -> None:
        self._counts.add(STALE_AT_GATE, frames)

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

    def _check_life(self, now: float) -> None:
        if self._connected_at is None:
            if now > self._deadline and self._ending is None:
                self._lose("never_connected")
            return
        # What stopped together with everything else was cut; what had stopped before was only quiet.
        steady = self._alive_at - self._flow_at < 1.0
        if now - self._alive_at > (GONE_AFTER if steady else GONE_AFTER_QUIET):
            self._lose("connection_lost")

    # --- to the peer: messages ---------------------------------------------------------------------------------------

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Give every event to `listener` as well, from now on; returns how to stop it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def greet(self, session: str) -> list[str]:
        """`session.created`, for a sideband that joins."""
        return self._dialect.open(session)

    def _tell(self, notice: Notice) -> None:
        for message in self._dialect.send(notice):
            self._say(message)

    def _say(self, message: str) -> None:
        if self._gone is not None:
            return
        for listener in list(self._listeners):
            listener(message)
        if self._channel is None:
            self._unsent.append(message)
            self._unsent_size += len(message)
            if self._unsent_size > CONTROL_MAX:
                self._give_up()
        else:
            self._write(message)

    def _write(self, message: str) -> None:
        channel = self._channel
        if channel is None or channel.readyState != "open":
            return
        most = self._peer.longest_message
        if most and len(message) > most // 4 and len(message.encode()) > most:
            kind = json.loads(message).get("type", "")
            message = self._dialect.too_large(str(kind), most)
        channel.send(message)
        if channel.bufferedAmount > CONTROL_MAX:
            self._give_up()

    def _give_up(self) -> None:
        """The peer takes nothing: nothing that we could still say would reach it."""
        self._counts.add(SLOW_CONSUMER)
        self._lose(SLOW_CONSUMER)

    def _tell_mute(self, at_ms: float | None = None) -> None:
        channel = self._reports
        if channel is None or channel.readyState != "open":
            return
        state: dict[str, float | None] = {"epoch": self._epoch, "mute_until_rtp": self._mute_until}
        if at_ms is not None:
            state["at_ms"] = at_ms
        channel.send(json.dumps(state, separators=(",", ":")))

    # --- CarrierPort -------------------------------------------------------------------------------------------------

    def admit(self, frame: OutputFrame) -> None:
        if self._gone is None and self._ending is None:
            self._downlink.admit(frame)

    def hold(self) -> None:
        self._downlink.hold()

    def resume(self) -> None:
        self._downlink.resume()

    def flush(self, fence: Fence) -> None:
        """Move the gate, drop what is queued, and tell the page in the same step from where on it may be heard."""
        cleared = self._downlink.flush(fence)
        self._dialect.flush(fence)
        if cleared:
            self._counts.add(CLEARED_AT_GATE, cleared)
        self._epoch = fence.epoch
        self._mute_until = self._map.timestamp
        self._reported.clear()
        if self._gone is None:
            self._tell_mute()
            for message in self._dialect.own("mute", {"epoch": self._epoch, "mute_until_rtp": self._mute_until}):
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
        if reason == "replaced" or self._connected_at is None:
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
        channel = self._channel
        if channel is not None and channel.bufferedAmount:
            drained = asyncio.Event()
            channel.once("bufferedamountlow", drained.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(drained.wait(), DRAIN_WITHIN)
        self._gone = self._gone or self._ending
        self._done.set()


def _before(timestamp: int, other: int) -> bool:
    """Whether an RTP timestamp lies before another one."""
    return 0 < (other - timestamp) % (1 << 32) < 1 << 31
