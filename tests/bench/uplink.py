"""What loss and jitter on the way to the server cost: time, and words.

`python -m tests.bench.uplink` sends people's questions as Opus packets, with redundancy as browsers send it, through a
path of 40 ms with random loss and normal jitter, into the buffer that a call has. Delays are over a path without
jitter. `--words` also recognizes what came out (the model files must be prepared); the path is the same each time.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from dataclasses import dataclass

import numpy as np

from codec.opus import OpusEncoder
from server.carriers.webrtc.uplink import CLOCK, PACKET, UplinkBuffer
from tests.bench.report import percentile, table
from tests.bench.words import word_error_rate
from tests.speech import RATE, load

PATH = 0.040
CONDITIONS = ((0.0, 0.0), (0.0, 0.02), (0.02, 0.02), (0.05, 0.02), (0.05, 0.0), (0.10, 0.02))
"""Share of packets that are lost, and jitter in seconds as `arrivals` takes it."""


@dataclass(slots=True)
class Outcome:
    """What a buffer made of a stream. `delays`: seconds for each 20 ms of it."""

    pcm: bytes
    delays: list[float]
    recovered: int
    lost: int
    late: int


def packets(pcm: bytes) -> list[bytes]:
    """Opus packets of 20 ms of mono PCM16 at 16 kHz."""
    encoder = OpusEncoder(RATE, application="voip", bitrate=32_000, loss_percent=10)
    return [encoder.encode(pcm[start : start + 640]) for start in range(0, len(pcm) - 639, 640)]


def arrivals(count: int, loss: float, jitter: float, seed: int) -> list[tuple[float, int]]:
    """When each packet that is not lost arrives: 95 % of them within `jitter` seconds of their time."""
    rng = random.Random(seed)
    heap = [
        (number * 0.02 + PATH + max(-PATH, rng.gauss(0, jitter / 2)), number)
        for number in range(count)
        if rng.random() >= loss
    ]
    heapq.heapify(heap)
    return [heapq.heappop(heap) for _ in range(len(heap))]


def receive(sent: list[bytes], loss: float, jitter: float, seed: int = 3) -> Outcome:
    """Send a stream through the path into a buffer, with the ticks of a call in between."""
    buffer = UplinkBuffer(RATE)
    out = Outcome(b"", [], 0, 0, 0)
    sound = bytearray()
    clock = 0.0

    def take(stretches: list[tuple[bytes, bool]], at: float) -> None:
        for pcm, _ in stretches:
            sound.extend(pcm)
            while len(out.delays) < len(sound) // 640:
                out.delays.append(at - (len(out.delays) * 0.02 + PATH))

    for at, number in arrivals(len(sent), loss, jitter, seed):
        while clock + 0.02 < at:
            clock += 0.02
            take([*buffer.tick(clock)], clock)
        take([*buffer.push(number & 0xFFFF, number * PACKET, sent[number], at)], at)
    out.pcm, out.recovered, out.lost, out.late = bytes(sound), buffer.recovered, buffer.lost, buffer.late
    buffer.close()
    return out


def times(seconds: float) -> str:
    """A table of delays for each condition."""
    speech = np.concatenate([clip.pcm for clip in load("questions", "test")])
    sent = packets(np.tile(speech, 1 + round(seconds * RATE) // len(speech))[: round(seconds * RATE)].tobytes())
    rows: list[list[object]] = []
    for loss, jitter in CONDITIONS:
        got = receive(sent, loss, jitter)
        tail = got.delays[-500:]
        rows.append(
            [
                f"{loss:.0%}",
                round(jitter * 1000),
                round(percentile(got.delays, 0.5) * 1000, 1),
                round(percentile(got.delays, 0.95) * 1000, 1),
                round(max(got.delays) * 1000, 1),
                round(percentile(tail, 0.5) * 1000, 1),
                got.recovered,
                got.lost,
                got.late,
                round(len(got.pcm) / 2 / RATE - len(sent) * PACKET / CLOCK, 3),
            ]
        )
    head = (
        "lost",
        "jitter ms",
        "p50 ms",
        "p95 ms",
        "max ms",
        "p50 at end",
        "recovered",
        "concealed",
        "late",
        "drift s",
    )
    return table(rows, head)


def words() -> str:
    """A table of word error rates for each condition."""
    from models.assets import ensure
    from models.perception.asr import Recognizer

    recognizer = Recognizer(ensure(["whisper-base"])["whisper-base"])
    clips = load("questions", "test")
    rows: list[list[object]] = []
    for loss, jitter in CONDITIONS:
        heard = []
        for number, clip in enumerate(clips):
            got = receive(packets(clip.pcm.astype("<i2").tobytes()), loss, jitter, seed=number)
            heard.append(recognizer.recognize(np.asarray(np.frombuffer(got.pcm, "<i2") / 32768, np.float32)).text)
        said = [clip.text for clip in clips]
        rows.append([f"{loss:.0%}", round(jitter * 1000), len(clips), f"{word_error_rate(said, heard):.1%}"])
    recognizer.unload()
    return table(rows, ("lost", "jitter ms", "questions", "word error rate"))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.uplink", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S", help="length of the stream (default: 120)")
    parser.add_argument("--words", action="store_true", help="recognize what came out, too")
    options = parser.parse_args()
    print(times(options.seconds))
    if options.words:
        print()
        print(words())
    return 0


if __name__ == "__main__":
    sys.exit(main())
