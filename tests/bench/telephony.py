"""How fast a call falls silent when its caller interrupts, and whether anything of before comes after the clear.

`python -m tests.bench.telephony --spawn` interrupts one reply after the other over Twilio's protocol with the commands
of the test split, 8 kHz µ-law, in real time. `--virtual` does the same on a virtual clock, with the real detector but
without the time that it and everything else computes: what is left is what packets, windows and the turn policy take,
the same on every machine. There `--noise DBFS` puts white noise on the line, and `--narrow` leaves of each command what
lies between 300 and 3400 Hz. `--epochs N` interrupts N replies on a virtual clock instead, with marks, holds and clears
at chance moments, and counts samples of before that came after the clear.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from codec.pcm import Samples
from server.call_command import Caller, at_rate
from server.phone_peers import FRAME_MS, Clear, Sound, TwilioPeer, VonagePeer
from sessions.virtual_clock import run
from tests.bench.report import STAGE_HEAD, milliseconds, progress, stage_rows, table, write
from tests.bench.target import arguments, server
from tests.bench.tones import script
from tests.server.telephony.band import narrow
from tests.server.telephony.listener import Listener
from tests.server.telephony.scene import Scene
from tests.speech import RATE as CLIP_RATE
from tests.speech import Clip, load

PER_CALL = 8
PATIENCE = 2.0
ANSWERED = 1.5
"""Seconds after a command within which its answer has begun, on the virtual clock."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """One command over one reply; seconds from its true onset, None where it did not come to that."""

    clip: str
    hold: float | None
    """The last media of the reply arrived."""
    clear: float | None


class TimedCaller(Caller):
    """Notes when sound and clears come."""

    def __init__(self, url: str) -> None:
        super().__init__(url, TwilioPeer("bench", {"greet": "0"}))
        self.sounds: list[float] = []
        self.cleared: list[float] = []

    async def _take(self, message: str | bytes) -> None:
        text = message if isinstance(message, str) else ""
        if text.startswith('{"event":"media"'):
            self.sounds.append(self.now)
        elif '"clear"' in text:
            self.cleared.append(self.now)
        await super()._take(message)


async def one_call(url: str, clips: Sequence[Clip]) -> list[Interruption]:
    found: list[Interruption] = []
    async with TimedCaller(url) as caller:
        for index, clip in enumerate(clips):
            mark = len(caller.sounds)
            try:
                async with asyncio.timeout(8):
                    while len(caller.sounds) == mark:
                        caller.news.clear()
                        await caller.news.wait()
            except TimeoutError:
                break  # the words after the clear were not taken for a turn: the next call begins with a greeting
            await asyncio.sleep(0.9 + 0.037 * (index % 7))
            cleared = len(caller.cleared)
            caller.say(at_rate(clip.pcm, CLIP_RATE, 8000))
            # A frame leaves when its last sample is there, so the onset is heard when its frame is.
            began = caller.now
            onset = began + clip.onset / CLIP_RATE
            deadline = began + clip.seconds + PATIENCE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline - caller.now):
                    while len(caller.cleared) == cleared:
                        caller.news.clear()
                        await caller.news.wait()
            at = caller.cleared[cleared] if len(caller.cleared) > cleared else None
            before = [one for one in caller.sounds if at is None or one <= at]
            hold = max(0.0, before[-1] - onset) if at is not None and before else None
            found.append(Interruption(clip.name, hold, None if at is None else at - onset))
            progress(f"{'missed' if at is None else f'{(at - onset) * 1000:4.0f} ms':>8}  {clip.text} ({clip.voice})")
            await caller.spoken.wait()
            if at is None:
                break
    return found


async def measure(url: str, clips: Sequence[Clip]) -> list[Interruption]:
    found: list[Interruption] = []
    at = 0
    while at < len(clips):
        part = await one_call(url, clips[at : at + PER_CALL])
        found += part
        at += len(part)
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """What a telephone line does to who speaks on it."""

    noise: float | None = None
    """dBFS; None: none."""
    narrow: bool = False

    def carries(self, clip: Clip) -> Samples:
        """int16 at 8 kHz."""
        return narrow(clip, 8000) if self.narrow else at_rate(clip.pcm, CLIP_RATE, 8000)


class NoisyScene(Scene):
    """A call on a line with noise."""

    dbfs: float | None = None

    async def sound(self, pcm: Samples) -> None:
        if self.dbfs is not None:
            rng = np.random.default_rng(round(self.loop.time() * 1000))
            noise = rng.normal(size=len(pcm)) * 32768 * 10 ** (self.dbfs / 20)
            pcm = np.clip(np.round(pcm + noise), -32768, 32767).astype(np.int16)
        await super().sound(pcm)


async def virtual_call(clips: Sequence[Clip], first: int, line: Line) -> list[Interruption]:
    """Interrupt the greeting and each answer after it; `first`: number of the first clip among all."""
    found: list[Interruption] = []
    async with NoisyScene(TwilioPeer(f"call-{first}"), ear=Listener()) as scene:
        scene.dbfs = line.noise
        for index, clip in enumerate(clips, first):
            # Packets, windows and words have nothing to do with each other's beginnings.
            await scene.quiet(1.0 + 0.02 * (index % 11))
            began, offset = scene.loop.time(), 0.00137 * (index % 15)
            pcm = line.carries(clip)
            await scene.sound(np.concatenate((np.zeros(round(offset * 8000), np.int16), pcm)))
            await scene.quiet(ANSWERED)
            # A packet is given when its last sample is there, 20 ms after its first.
            onset = began - FRAME_MS / 1000 + offset + clip.onset / CLIP_RATE
            sent = [(at, str(message)) for at, message in scene.line.sent if at >= onset - 1]
            clears = [at for at, message in sent if at >= began and '"clear"' in message]
            if not clears:
                found.append(Interruption(clip.name, None, None))
                continue
            media = [at for at, message in sent if at <= clears[0] and '"event":"media"' in message]
            found.append(Interruption(clip.name, max(0.0, media[-1] - onset), clears[0] - onset))
    return found


def virtual(clips: Sequence[Clip], line: Line) -> list[Interruption]:
    found: list[Interruption] = []
    for first in range(0, len(clips), PER_CALL):
        found += run(virtual_call(clips[first : first + PER_CALL], first, line))
    return found


def epochs(count: int) -> dict[str, object]:
    """Interrupt `count` replies on a virtual clock; samples say themselves which reply they are of."""

    async def call(number: int) -> tuple[int, int, int]:
        rng = np.random.default_rng(number)
        peer = VonagePeer(f"call-{number}")
        peer.rate = 24_000
        interrupted = stale = 0
        async with Scene(peer, delay=float(rng.choice([0.0, 0.03, 0.12]))) as scene:
            for _ in range(10):
                await scene.quiet(round(float(rng.uniform(0.3, 1.2)), 2))
                await scene.say(round(float(rng.uniform(0.3, 0.7)), 2))
                await scene.quiet(0.9)
            expected: int | None = None
            for _, one in scene.line.happened:
                if isinstance(one, Clear):
                    interrupted += 1
                    expected = 0
                elif isinstance(one, Sound) and expected is not None:
                    # After a clear the next reply begins, and goes on sample by sample.
                    counted = np.arange(expected, expected + len(one.pcm)) % 32768
                    stale += int(np.count_nonzero((one.pcm != counted) & (one.pcm != 0)))
                    expected += len(one.pcm)
            return interrupted, stale, scene.count("stale_at_gate")

    interrupted = stale = at_gate = calls = 0
    while interrupted < count:
        one, two, three = run(call(calls))
        interrupted, stale, at_gate, calls = interrupted + one, stale + two, at_gate + three, calls + 1
        if calls % 10 == 0:
            progress(f"{interrupted} interruptions in {calls} calls, {stale} stale samples")
    return {"calls": calls, "interruptions": interrupted, "stale_samples_after_clear": stale, "stale_at_gate": at_gate}


def main() -> int:
    parser = arguments(__doc__)
    if {"--epochs", "--virtual"} & set(sys.argv):
        parser._mutually_exclusive_groups[0].required = False
    parser.add_argument("--epochs", type=int, metavar="N", help="interrupt N replies on a virtual clock")
    parser.add_argument("--virtual", action="store_true", help="on a virtual clock, with the real detector")
    parser.add_argument("--noise", type=float, metavar="DBFS", help="of the line, with --virtual")
    parser.add_argument("--narrow", action="store_true", help="300 to 3400 Hz, with --virtual")
    options = parser.parse_args()
    if options.epochs:
        figures = epochs(options.epochs)
        print(figures)
        write({"bench": "telephony_epochs", **figures}, options.json)
        return 0 if figures["stale_samples_after_clear"] == 0 else 1
    clips = load("commands", "test")[: options.limit]
    if options.virtual:
        found = virtual(clips, Line(options.noise, options.narrow))
    else:
        with server(options, "scripted", script(60.0)) as target:
            base = target.url.partition("/v1/")[0]
            found = asyncio.run(measure(base, clips))
    hit = [one for one in found if one.clear is not None]
    holds = [one.hold for one in hit if one.hold is not None]
    clears = [one.clear for one in hit if one.clear is not None]
    print("\nserver_vad over Twilio's protocol, from the true onset:")
    print(table(stage_rows({"hold (last media arrived)": holds, "clear arrived": clears}), STAGE_HEAD))
    print(f"missed: {len(found) - len(hit)} of {len(found)}")
    figures = {
        "bench": "telephony_virtual" if options.virtual else "telephony",
        "interruptions": len(found),
        "missed": len(found) - len(hit),
        "hold": milliseconds(holds),
        "clear": milliseconds(clears),
    }
    write({**figures, "each": [asdict(one) for one in found]}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
