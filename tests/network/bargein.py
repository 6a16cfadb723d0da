"""A cut by the client over a slow way: what still sounds, and who knows how much was heard."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from server.carriers.webrtc.downlink import SILENCE
from tests.bench.report import percentile
from tests.caller import Json

from .breaks import NEW_HZ, OLD_HZ, SCRIPT, heard, since
from .emulator import Conditions
from .place import FarCaller, Place

SESSION: Final[Json] = {
    "type": "realtime",
    "audio": {"input": {"turn_detection": None}},
    "x_talkover": {"notices": True},
}
CLOCK: Final = 48_000
PACKET: Final = 960
"""Ticks of a packet."""
BUFFER: Final = 0.060
"""Seconds that the player keeps after its earliest packet, which is what jitter of 20 ms needs."""
LEAD: Final = 0.010
"""By which the timestamps that browsers report are ahead of what is heard."""
REPORT_EVERY: Final = 0.050


class Player(FarCaller):
    """A caller that plays: as a browser, through a buffer, from the earliest packet's time on."""

    def __init__(self, *, playback: bool) -> None:
        super().__init__(playback=playback)
        self._origin: int | None = None
        self._earliest = 0.0

    def packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        at = asyncio.get_running_loop().time()
        if self._origin is None:
            self._origin = timestamp
            self._earliest = at
        self._earliest = min(self._earliest, at - self.since_origin(timestamp) / CLOCK)
        super().packet(sequence, timestamp, payload)

    def since_origin(self, timestamp: int) -> int:
        """Ticks of RTP time since the first packet."""
        assert self._origin is not None
        return (timestamp - self._origin) % (1 << 32)

    def sounds(self, at: float) -> float:
        """What sounds at a time of the loop's clock, in ticks since the first packet."""
        return (at - self._earliest - BUFFER) * CLOCK

    async def tell(self) -> None:
        """Report what sounds, for ever."""
        while True:
            at = asyncio.get_running_loop().time()
            if self._origin is not None and self.sounds(at) > 0:
                rtp = (self._origin + round(self.sounds(at) + LEAD * CLOCK)) % (1 << 32)
                self.report({"rtp": rtp, "at_ms": 1000 * at})
            await asyncio.sleep(REPORT_EVERY)

    def transit(self) -> float:
        """Median time of arrival less RTP time, in seconds."""
        return percentile([one.at - self.since_origin(one.timestamp) / CLOCK for one in self.packets], 0.5)


@dataclass(slots=True)
class BargeIns:
    """Cuts of one call. `stale`: packets in which the cut reply is heard after the commit, of all cuts. In ms for each
    cut: `silent`, from the client's cancel to the arrival of the old reply's last packet, which is what a client
    without a gate of its own must hear; and the server's heard position less the truth, with the truth as what had
    sounded when the server committed (`at_commit`), when a page that mutes at once cancelled (`at_cancel`), and in the
    end where nothing is muted (`unmuted`)."""

    heard_by: set[str] = field(default_factory=set)
    cuts: int = 0
    stale: int = 0
    stale_at_gate: int = 0
    silent: list[float] = field(default_factory=list)
    at_commit: list[float] = field(default_factory=list)
    at_cancel: list[float] = field(default_factory=list)
    unmuted: list[float] = field(default_factory=list)


def barge_in(
    *, reports: bool, cuts: int = 12, delay_ms: float = 100.0, jitter_ms: float = 20.0, seed: int = 1
) -> BargeIns:
    """Cancel replies over a way that is slow in both directions. `reports`: the client says what sounds."""
    rng = random.Random(seed)
    result = BargeIns()
    with Place(script=SCRIPT, seed=seed) as place:

        async def work() -> None:
            place.both(Conditions(delay_ms, jitter_ms))
            player = Player(playback=reports)
            await place.call(player, SESSION)
            await player.event("session.created")
            telling = asyncio.create_task(player.tell()) if reports else None
            async with player.microphone():
                # The first report of the round trip needs one each way.
                await player.until(lambda: len(player.packets) > 150)
                for number in range(1, cuts + 1):
                    await one_cut(player, number)
                result.stale_at_gate = (await place.counters())["stale_at_gate"]
                await place.hang_up(player)
            if telling is not None:
                telling.cancel()
            await player.close()

        async def one_cut(player: Player, number: int) -> None:
            loop = asyncio.get_running_loop()
            first = len(player.packets)
            sounding = len(player.sounding)
            length = rng.randint(50, 100)
            player.say({"type": "response.create"})
            await player.until(lambda: len(player.sounding) > sounding + length)
            cancelled = loop.time()
            player.say({"type": "response.cancel"})
            cleared = await player.event("x_talkover.playback_cleared", number)
            edge = (await player.event("x_talkover.mute", number))["mute_until_rtp"]
            await player.until(lambda: len(since(player.packets, edge)) > 25)
            await asyncio.sleep(4 * jitter_ms / 1000)
            packets = sorted(player.packets[first:], key=lambda one: player.since_origin(one.timestamp))
            new = since(packets, edge)
            old = [one for one in packets[: -len(new)] if one.payload != SILENCE]
            starts = [player.since_origin(one.timestamp) for one in old]
            committed = player.transit() - delay_ms / 1000 + player.since_origin(edge) / CLOCK - 0.010
            told = cleared["heard"]

            def over(sounds: float) -> float:
                # By packets: where the server was held up, RTP time passed without content.
                truth = sum(min(max(sounds - start, 0.0), PACKET) for start in starts)
                return 1000 * float(told - truth) / CLOCK

            result.cuts += 1
            result.heard_by.add(cleared["heard_by"])
            result.stale += heard(new, OLD_HZ if number % 2 else NEW_HZ)
            result.silent.append(1000 * (max(one.at for one in old) - cancelled))
            result.at_commit.append(over(player.sounds(committed)))
            result.at_cancel.append(over(player.sounds(cancelled)))
            result.unmuted.append(over(starts[-1] + PACKET))

        place.client(work)
    return result
