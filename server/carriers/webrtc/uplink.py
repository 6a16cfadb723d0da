"""What was received, for a listener that has no ear: in order, without holes, and as early as it can be.

There is no playout clock: a packet in order passes at once. A gap waits for at most `WAIT_PACKETS` later packets or
`WAIT` seconds, then its last packet is taken from the redundancy in the one that follows it (RFC 7587 section 3.3), and
what is left is concealed and marked. So the samples that came out are the watermark of the input: they never jump, and
a loss leaves no delay behind it.

Where a stream stops (discontinuous transmission, a muted sender, a cut) time goes on: after `STALL` seconds silence is
put in by the clock. Whether packets that come after it are late or the sender was silent is decided by the clock too:
what would run ahead of it is dropped.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from codec.opus import OpusDecoder, OpusError, holds_previous, packet_ticks

CLOCK: Final = 48_000
PACKET: Final = 960
"""Ticks of an ordinary packet: 20 ms."""
STEP: Final = 120
"""Ticks of the shortest thing that Opus can conceal: 2.5 ms."""
WAIT_PACKETS: Final = 3
WAIT: Final = 0.060
STALL: Final = 0.200
"""Seconds without a packet from which silence is put in by the clock."""
TOLERANCE: Final = PACKET // 2
"""Ticks by which the stream may be ahead of its earliest packet so far before it counts as running ahead."""
CONCEALED_MOST: Final = 5 * PACKET
"""Ticks of one gap that are concealed by the sound before it, which fades; the rest is silence."""
DRIFT: Final = 0.5
"""Ticks per packet by which the measure of the earliest arrival is relaxed: 0.05 %, more than any two clocks differ."""
WARY: Final = 50
FAR: Final = 1000
"""Sequence numbers of a jump that is taken for a new stream."""


class Stretch(NamedTuple):
    """Contiguous input: mono PCM16. `concealed`: nothing of it came from the peer."""

    pcm: bytes
    concealed: bool


class UplinkBuffer:
    """One stream of RTP packets of Opus. Sans-I/O: `now` is seconds of any steady clock."""

    def __init__(self, rate: int = 16_000) -> None:
        """`rate` in Hz of the samples that come out. Raises OpusUnavailable and OpusError."""
        self._decoder = OpusDecoder(rate)
        self._rate = rate
        self._last: int | None = None
        """Unwrapped sequence number of the last packet that came out."""
        self._expected = 0
        """Unwrapped RTP timestamp of the next sample to come out."""
        self._newest_time = 0
        self._held: dict[int, tuple[int, bytes]] = {}
        self._gap_since: float | None = None
        self._heard_at: float | None = None
        self._began = 0.0
        self._lead = 0.0
        """How far the stream is ahead of the clock at its earliest packet, in ticks since `_began`."""
        self._wary = 0
        """Packets that are still looked at with suspicion after the clock put silence in: they may be its late ones."""
        self._length = PACKET
        self.watermark = 0
        """Ticks that came out."""
        self.recovered = 0
        """Packets whose sound came from the redundancy of another."""
        self.lost = 0
        """Packets that were concealed."""
        self.late = 0
        """Packets that came when their time had been filled, or twice."""
        self.damaged = 0
        """Packets that are no Opus."""

    def push(self, sequence: int, timestamp: int, payload: bytes, now: float) -> list[Stretch]:
        """One packet as it arrived; what can come out because of it. `sequence` 16 bit, `timestamp` 32 bit."""
        out: list[Stretch] = []
        if not packet_ticks(payload):
            # Padding alone (a probe for bandwidth), or junk.
            self.damaged += bool(payload)
            return out
        if self._last is None:
            self._begin(sequence, timestamp, now)
        assert self._last is not None  # noqa: S101 - for the type checker
        number = self._last + _signed(sequence - self._last, 16)
        time = self._newest_time + _signed(timestamp - self._newest_time, 32)
        if abs(number - self._last) > FAR:
            self._held.clear()
            self._begin(sequence, timestamp, now)
            number, time = sequence, timestamp
        self._heard_at = now
        if number <= self._last or number in self._held:
            self.late += 1
            return out
        self._newest_time = max(self._newest_time, time)
        self._held[number] = (time, payload)
        self._drain(now, out)
        return out

    def tick(self, now: float) -> list[Stretch]:
        """Time has passed: gaps that waited long enough, and silence where nothing comes any more."""
        out: list[Stretch] = []
        if self._heard_at is None:
            return out
        if self._held:
            self._drain(now, out)
        if now - self._heard_at >= STALL:
            # One packet behind its earliest arrival, so that one that comes in time is not taken for late.
            behind = int(-self._ahead(self._length, now))
            if behind >= PACKET:
                length = behind // PACKET * PACKET
                self._silence(length, out)
                self._expected += length
                self._wary = WARY
        return out

    # --- the stream --------------------------------------------------------------------------------------------------

    def _begin(self, sequence: int, timestamp: int, now: float) -> None:
        self._last = sequence - 1
        self._expected = self._newest_time = timestamp
        self._gap_since = None
        self._began = now - self.watermark / CLOCK
        self._lead = 0.0

    def _drain(self, now: float, out: list[Stretch]) -> None:
        while self._held:
            assert self._last is not None  # noqa: S101 - for the type checker
            number = self._last + 1
            if number not in self._held:
                if self._gap_since is None:
                    self._gap_since = now
                if len(self._held) < WAIT_PACKETS and now - self._gap_since < WAIT:
                    return
                number = min(self._held)
                self._bridge(number, now, out)
            else:
                self._align(number, now, out)
            self._gap_since = None
            time, payload = self._held.pop(number)
            self._last = number
            if self._wary:
                if self._ahead(packet_ticks(payload), now) > TOLERANCE:
                    self.late += 1
                    self._wary = WARY
                    continue
                self._wary -= 1
            if time < self._expected:
                self._expected = time
            self._play(payload, out)
            self._measure(now)

    def _ahead(self, length: int, now: float) -> float:
        """Ticks by which `length` more would run ahead of the earliest packet so far."""
        return self.watermark + length - (now - self._began) * CLOCK - self._lead

    def _measure(self, now: float) -> None:
        self._lead = max(self._lead - DRIFT, self.watermark - (now - self._began) * CLOCK)

    def _align(self, number: int, now: float, out: list[Stretch]) -> None:
        """No packet is missing, but time may be: the sender sent nothing while nothing was said."""
        time, payload = self._held[number]
        missing = min(time - self._expected, self._room(payload, now))
        if missing >= STEP:
            self._silence(missing // STEP * STEP, out)
        self._expected = max(self._expected, time)

    def _room(self, payload: bytes, now: float) -> int:
        """Ticks that the clock leaves for what is missing before `payload`, whatever its timestamp claims."""
        return max(0, int(TOLERANCE - self._ahead(packet_ticks(payload), now)))

    def _bridge(self, number: int, now: float, out: list[Stretch]) -> None:
        """Packets before `number` are missing and are not waited for any longer."""
        time, following = self._held[number]
        assert self._last is not None  # noqa: S101 - for the type checker
        packets = number - self._last - 1
        missing = min(time - self._expected, self._room(following, now))
        if missing < STEP:
            # The clock has filled their time already.
            self.late += packets
            return
        last = min(missing, packet_ticks(following), PACKET)
        redundant = holds_previous(following) and last == PACKET
        before = missing - (last if redundant else 0)
        concealed = min(before, CONCEALED_MOST)
        while concealed > 0:
            length = min(concealed, PACKET) // STEP * STEP
            if not length:
                break
            self._conceal(length, out)
            concealed -= length
            before -= length
        if before >= STEP:
            self._silence(before // STEP * STEP, out)
        if redundant:
            pcm = self._decoder.recover(following, last)
            self._put(pcm, False, out)
            self.recovered += 1
        self.lost += packets - redundant
        self._expected = time

    # --- samples -----------------------------------------------------------------------------------------------------

    def _play(self, payload: bytes, out: list[Stretch]) -> None:
        length = self._length = packet_ticks(payload)
        try:
            self._put(self._decoder.decode(payload), False, out)
        except OpusError:
            self.damaged += 1
            self._conceal(length, out)
        self._expected += length

    def _conceal(self, length: int, out: list[Stretch]) -> None:
        self._put(self._decoder.conceal(length), True, out)

    def _silence(self, length: int, out: list[Stretch]) -> None:
        self._put(bytes(2 * (length * self._rate // CLOCK)), True, out)

    def _put(self, pcm: bytes, concealed: bool, out: list[Stretch]) -> None:
        self.watermark += len(pcm) // 2 * (CLOCK // self._rate)
        if out and out[-1].concealed == concealed:
            out[-1] = Stretch(out[-1].pcm + pcm, concealed)
        else:
            out.append(Stretch(pcm, concealed))

    def close(self) -> None:
        """Free the decoder."""
        self._decoder.close()


def _signed(difference: int, bits: int) -> int:
    """The difference of two counters that wrap, as the shorter way round."""
    half = 1 << (bits - 1)
    return (difference + half) % (1 << bits) - half
