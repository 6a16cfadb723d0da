"""How often what is no speech holds the agent: `python -m tests.bench.false_holds [--seconds 60]`.

Lines, rooms and the sounds of people, as a telephone gives them, over an agent who speaks all the time. Detector,
levels and turn policy are the real ones; there is no clock, so the figures are the same on every machine. A hold that
is taken back within the lead delays nothing that is heard: only longer ones are counted as heard.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from codec import g711
from models.perception.levels import levels
from models.perception.track import InputTrack
from models.perception.vad import WINDOW, SpeechState
from server.call_command import at_rate
from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.timeline import TICK_RATE, Ticks, from_ms
from sessions.core.turns import Hold, Interrupt, Resume, TurnPolicy
from tests.bench.report import table, write
from tests.server.telephony.listener import HOP, detector
from tests.server.telephony.test_not_speech import LINES, RATE
from tests.speech.noises import NOISES, make_noise
from tests.speech.noises import RATE as NOISE_RATE

Signal = NDArray[np.float64]

ROOM = -60.0
"""dBFS of what is between sounds."""


def noise(count: int, dbfs: float) -> Signal:
    return np.random.default_rng(3).normal(size=count) * 10 ** (dbfs / 20)


def pink(count: int, dbfs: float) -> Signal:
    """Falling by 3 dB per octave, as the noise of rooms and streets does."""
    spectrum = np.fft.rfft(noise(count, 0.0))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    out = np.fft.irfft(spectrum, count)
    return np.asarray(out * 10 ** (dbfs / 20) / np.sqrt(np.mean(np.square(out))), np.float64)


def hum(count: int) -> Signal:
    t = np.arange(count) / RATE
    out = sum((np.sin(2 * np.pi * 50 * n * t + n) / n for n in range(1, 9)), np.zeros(count))
    return np.asarray(out * 10 ** (-40 / 20) / np.std(out), np.float64)


def breathing(count: int) -> Signal:
    swell = np.maximum(0.0, np.sin(2 * np.pi * np.arange(count) / RATE / 3.5)) ** 2
    return pink(count, -38.0) * swell + noise(count, ROOM)


def traffic(count: int) -> Signal:
    return pink(count, -40.0) * (1 + 0.9 * np.sin(2 * np.pi * np.arange(count) / RATE / 5))


def clicks(count: int) -> Signal:
    out, rng = noise(count, ROOM), np.random.default_rng(5)
    for at in rng.integers(0, count - 80, count // RATE * 2):
        out[at : at + 40] += 0.06 * rng.normal(size=40) * np.exp(-np.arange(40) / 10)
    return out


def of_people(count: int) -> Signal:
    """Coughs, laughs, sighs, doors, keys and paper, a second and a half apart."""
    parts: list[Signal] = []
    seed = 0
    while sum(map(len, parts)) * RATE < count * NOISE_RATE:
        seed += 1
        for name in NOISES:
            sound = make_noise(name, seed)
            parts += [np.zeros(NOISE_RATE * 3 // 2), 0.3 * sound / np.abs(sound).max()]
    pcm = at_rate(np.round(np.concatenate(parts) * 32767).astype(np.int16), NOISE_RATE, RATE)
    return pcm[:count] / 32768 + noise(count, ROOM)


def repeated(sound: Callable[[], Signal]) -> Callable[[int], Signal]:
    return lambda count: np.resize(sound(), count)


SOUNDS: dict[str, Callable[[int], Signal]] = {
    **{name: repeated(sound) for name, sound in LINES.items()},
    "room noise, -45 dBFS": lambda count: pink(count, -45.0),
    "hum": hum,
    "traffic": traffic,
    "breathing": breathing,
    "clicks of the line": clicks,
    "coughs, doors, keys, paper": of_people,
}


@dataclass(slots=True)
class Count:
    """What one sound did to the agent in `seconds`."""

    sound: str
    seconds: float
    holds: int = 0
    heard: int = 0
    """Holds longer than the lead."""
    longest_ms: float = 0.0
    interruptions: int = 0

    def held(self, ticks: Ticks) -> None:
        self.heard += ticks > SessionConfig().lead
        self.longest_ms = max(self.longest_ms, 1000 * ticks / TICK_RATE)


def windows(sound: Signal) -> NDArray[np.float32]:
    """`sound`, at 8 kHz, behind µ-law as the detector gets it: float32 [B, 512]."""
    pcm = np.clip(np.round(sound * 32768), -32768, 32767).astype("<i2").tobytes()
    track = InputTrack(from_ms(1000) * (1 + len(sound) // RATE))
    track.append(0, g711.decode(g711.encode(pcm, "ulaw"), "ulaw"), RATE)
    count = track.end // HOP
    return track.read(0, count * HOP).reshape(count, WINDOW)


def count(name: str, sound: Signal) -> Count:
    found, policy, config, state = Count(name, len(sound) / RATE), TurnPolicy(), TurnConfig(), SpeechState()
    began: Ticks = 0
    heard = windows(sound)
    for number, (window, (level, hiss)) in enumerate(zip(heard, levels(heard), strict=True)):
        start, end = number * HOP, (number + 1) * HOP
        [probability] = detector().detect(window[None], [state])
        for decision in policy.window(start, end, float(probability), "busy", config, level, hiss=hiss):
            if isinstance(decision, Hold):
                found.holds += 1
                began = end
            elif isinstance(decision, Resume):
                found.held(end - began)
            elif isinstance(decision, Interrupt):
                found.interruptions += 1
                policy.reset()  # the agent answers, and is spoken over again
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each sound (default: 60)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    found = [count(name, make(round(options.seconds * RATE))) for name, make in SOUNDS.items()]
    rows = [
        [
            one.sound,
            round(60 * one.holds / one.seconds, 1),
            round(60 * one.heard / one.seconds, 1),
            round(one.longest_ms),
            round(60 * one.interruptions / one.seconds, 1),
        ]
        for one in found
    ]
    print(table(rows, ("over the agent", "holds a minute", "heard", "longest ms", "interruptions a minute")))
    minutes = sum(one.seconds for one in found) / 60
    print(
        f"all: {sum(one.holds for one in found) / minutes:.1f} holds a minute, "
        f"{sum(one.heard for one in found) / minutes:.1f} of them heard, "
        f"{sum(one.interruptions for one in found) / minutes:.1f} interruptions"
    )
    write({"bench": "false_holds", "each": [asdict(one) for one in found]}, options.json)


if __name__ == "__main__":
    main()
