"""What a bad way to the server costs: time, and words."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sessions.core.events import AudioArrived
from sessions.core.timeline import TICK_RATE
from sessions.replay.reader import Recording
from tests.bench.report import percentile
from tests.bench.uplink import packets
from tests.bench.words import word_error_rate
from tests.caller import Json
from tests.speech import RATE, load

from .emulator import Conditions, Counted
from .place import FarCaller, Place

PACKET: Final = 960
"""Ticks of a packet."""
SAMPLES: Final = RATE // 50
PATH_MS: Final = 40.0
CLEAN: Final = 400
"""Packets before and after the bad stretch, by which it is judged."""
SETTLE: Final = 100
"""Packets of the first clean stretch that are left aside: the connection's beginning."""
SEED: Final = 4
"""One whose losses come out at the share that is said within a minute; others are up to half above it or below, and the
95th percentile with them."""
LISTEN: Final[Json] = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
PAUSE: Final = bytes(2 * RATE * 6 // 10)
"""Silence around a question."""
TRANSCRIBED: Final = "conversation.item.input_audio_transcription.completed"


@dataclass(frozen=True, slots=True)
class Delay:
    """Added delay of 20 ms of sound each, over a clean path of the same length, in ms. `after`: the median once the
    path is clean again. `drift_s`: how much longer the input track is than what was sent. `machine_ms`: 95 % of
    the same on the clean path, which is what else the machine did; `emulator_ms`: how late the emulator's frames were
    (99 %)."""

    median: float
    p95: float
    worst: float
    after: float
    lost: int
    sent: int
    recovered: int
    concealed: int
    late: int
    drift_s: float
    machine_ms: float
    emulator_ms: float


def delay(loss: float, jitter_ms: float, seconds: float = 60.0, *, reorder: bool = True, seed: int = SEED) -> Delay:
    """Speak through a path that loses `loss` (0..1) of the packets for `seconds`, and see when the session gets it.

    When is read from the session's recording. Both ends are on one machine, so their clocks tell the same time but for
    an offset, which a clean stretch tells.
    """
    speech = np.concatenate([clip.pcm for clip in load("questions", "test")])
    count = CLEAN + round(seconds * 50) + CLEAN
    sound = packets(np.resize(speech, count * SAMPLES).astype("<i2").tobytes())
    with tempfile.TemporaryDirectory(prefix="talkover-network-") as folder:
        sent: list[float] = []
        counted: list[Counted] = []
        counters: dict[str, int] = {}
        with Place(
            arguments=["--record", folder], script="[[reply]]\ntone_hz = 440\nseconds = 1.0\n", seed=seed
        ) as place:
            place.prefer_server()

            async def work() -> None:
                clean = Conditions(delay_ms=PATH_MS)
                place.both(clean)
                caller = await place.call(FarCaller(), LISTEN)
                await caller.event("session.created")
                await send(caller, sound[:CLEAN])
                place.conditions(up=Conditions(PATH_MS, jitter_ms, loss, reorder=reorder))
                await send(caller, sound[CLEAN:-CLEAN])
                counted.append(place.conditions(up=clean)["up"])
                await send(caller, sound[-CLEAN:])
                # Counters are added up once a second.
                await asyncio.sleep(2.0)
                counters.update(await place.counters())
                await place.hang_up(caller)
                await caller.close()
                sent.extend(caller.sent)

            place.client(work)
        arrived, length = _arrivals(Path(folder))
    raw = [at - sent[number] for number, at in enumerate(arrived[: len(sent)])]
    base = percentile(raw[SETTLE:CLEAN], 0.5)
    bad = [1000 * (one - base) for one in raw[CLEAN : count - CLEAN]]
    after = [1000 * (one - base) for one in raw[SETTLE - CLEAN :]]
    return Delay(
        median=percentile(bad, 0.5),
        p95=percentile(bad, 0.95),
        worst=max(bad),
        after=percentile(after, 0.5),
        lost=counted[0].lost,
        sent=counted[0].frames,
        recovered=counters.get("uplink_recovered_packets", 0),
        concealed=counters.get("uplink_lost_packets", 0),
        late=counters.get("uplink_late_packets", 0),
        drift_s=length / TICK_RATE - count * 0.02,
        machine_ms=percentile([1000 * (one - base) for one in raw[SETTLE:CLEAN]], 0.95),
        emulator_ms=counted[0].late_ms,
    )


def _arrivals(folder: Path) -> tuple[list[float], int]:
    """When each packet's length of the input track was complete, in seconds of the session; the track's ticks before
    what was put in by the clock at its end."""
    (recorded,) = (path for path in folder.iterdir() if path.is_dir())
    arrived: list[float] = []
    length = 0
    for step in Recording(recorded).steps():
        event = step.event
        if isinstance(event, AudioArrived):
            while (len(arrived) + 1) * PACKET <= event.end:
                arrived.append(step.now / TICK_RATE)
            if not event.concealed:
                length = event.end
    return arrived, length


async def send(caller: FarCaller, sound: list[bytes]) -> None:
    """Send packets in real time."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    for payload in sound:
        caller.send_packet(payload)
        due += 0.02
        await asyncio.sleep(due - loop.time())


@dataclass(frozen=True, slots=True)
class Words:
    """`wer`: of all questions together, 0..1."""

    questions: int
    wer: float
    lost: int
    sent: int


def words(conditions: Conditions, questions: int = 12, seed: int = 1) -> Words:
    """Ask spoken questions of an embedded server and compare its transcripts with what was said."""
    clips = load("questions", "test")[:questions]
    heard: list[str] = []
    counted: list[Counted] = []
    with Place("embedded", seed=seed) as place:

        async def work() -> None:
            place.both(Conditions(delay_ms=PATH_MS))
            transcribed: Json = {"transcription": {"model": "whisper-1"}, "turn_detection": None}
            caller = await place.call(FarCaller(), {"type": "realtime", "audio": {"input": transcribed}})
            await caller.event("session.created")
            place.conditions(up=conditions)
            for number, clip in enumerate(clips, 1):
                caller.say({"type": "input_audio_buffer.clear"})
                await caller.event("input_audio_buffer.cleared", number)
                await send(caller, packets(PAUSE + clip.pcm.astype("<i2").tobytes() + PAUSE))
                caller.say({"type": "input_audio_buffer.commit"})
                heard.append((await caller.event(TRANSCRIBED, number))["transcript"])
            counted.append(place.conditions(up=Conditions(delay_ms=PATH_MS))["up"])
            await place.hang_up(caller)
            await caller.close()

        place.client(work)
    return Words(len(clips), word_error_rate([clip.text for clip in clips], heard), counted[0].lost, counted[0].frames)
