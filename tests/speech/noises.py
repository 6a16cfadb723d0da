"""Sounds that are not speech, made by rule: each has a source (noise, pulses) and a body (resonances).

They are stand-ins for recordings, of which none with a licence to ship was found; they have the duration, spectrum and
envelope that the literature gives, not the detail of a living throat.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

RATE = 16_000

Signal = NDArray[np.float64]


def _length(seconds: float) -> int:
    return round(seconds * RATE)


def _resonate(source: Signal, peaks: list[tuple[float, float, float]], tilt: float = 0.0) -> Signal:
    """Shape `source` by resonances (Hz, bandwidth Hz, gain) and a tilt in dB per octave above 500 Hz."""
    bins = np.fft.rfftfreq(len(source), 1 / RATE)
    gain = sum((g / (1.0 + ((bins - f) / (b / 2)) ** 2) for f, b, g in peaks), np.full(len(bins), 0.02))
    gain = gain * 10 ** (tilt * np.log2(np.maximum(bins, 500) / 500) / 20)
    return np.fft.irfft(np.fft.rfft(source) * gain, len(source))


def _swell(length: int, attack: float, release: float) -> Signal:
    """Rise over `attack` seconds, then fall exponentially with time constant `release`."""
    t = np.arange(length) / RATE
    return np.minimum(t / attack, 1.0) * np.exp(-np.maximum(t - attack, 0.0) / release)


def _glottal(length: int, f0: Signal, jitter: float, rng: np.random.Generator) -> Signal:
    """Pulses at `f0` Hz (float64 [length]) with relative period jitter."""
    wobble = np.repeat(rng.normal(0, jitter, length // 80 + 1), 80)[:length]
    phase = np.cumsum(f0 * (1 + wobble) / RATE)
    saw = 1.0 - 2.0 * np.mod(phase, 1.0)
    return np.asarray(np.diff(saw, prepend=saw[0]), np.float64)


def _join(parts: list[Signal], gaps: list[float]) -> Signal:
    out = [parts[0]]
    for gap, part in zip(gaps, parts[1:], strict=True):
        out += [np.zeros(_length(gap)), part]
    return np.concatenate(out)


def _one_cough(rng: np.random.Generator) -> Signal:
    """Explosive burst, noisy flow, short voiced end: the three phases of a cough (about 350 ms together)."""
    n = _length(rng.uniform(0.28, 0.40))
    f1, f2 = rng.uniform(550, 750), rng.uniform(1300, 1700)
    body = [(f1, 250.0, 1.0), (f2, 400.0, 0.8), (2900.0, 900.0, 0.5)]
    burst = _resonate(rng.normal(size=n), body) * _swell(n, 0.004, 0.045)
    flow = _resonate(rng.normal(size=n), [(f2, 900.0, 1.0), (3200.0, 1500.0, 0.9)]) * _swell(n, 0.05, 0.11) * 0.35
    f0 = np.linspace(rng.uniform(220, 320), 130, n)
    voiced = _resonate(_glottal(n, f0, 0.08, rng), body) * np.roll(_swell(n, 0.03, 0.05), _length(0.16)) * 1.2
    voiced[: _length(0.16)] = 0
    return np.asarray(
        burst / np.abs(burst).max() + flow / np.abs(flow).max() * 0.4 + voiced / np.abs(voiced).max() * 0.35, np.float64
    )


def cough(rng: np.random.Generator) -> Signal:
    """One cough, or two in a row."""
    coughs = [_one_cough(rng) for _ in range(int(rng.integers(1, 3)))]
    return _join(coughs, [float(rng.uniform(0.06, 0.14)) for _ in coughs[1:]])


def throat_clear(rng: np.random.Generator) -> Signal:
    """Two rough, pulsed stretches ("hrm-hm"): low irregular phonation with noise on top."""
    parts = []
    for seconds in (rng.uniform(0.18, 0.28), rng.uniform(0.22, 0.34)):
        n = _length(seconds)
        f0 = np.linspace(rng.uniform(75, 110), rng.uniform(60, 80), n)
        rough = _glottal(n, f0, 0.25, rng) + 0.15 * rng.normal(size=n)
        parts.append(_resonate(rough, [(420, 180, 1.0), (1350, 350, 0.5), (2500, 700, 0.25)]) * _swell(n, 0.03, 0.16))
    return _join(parts, [float(rng.uniform(0.03, 0.07))])


def laugh(rng: np.random.Generator) -> Signal:
    """Four to six "ha", each a breath and a voiced stroke, falling in pitch and strength, five in a second."""
    top = rng.uniform(190, 300)
    strokes = []
    for index in range(int(rng.integers(4, 7))):
        breath, voice = _length(0.06), _length(rng.uniform(0.08, 0.11))
        h = _resonate(rng.normal(size=breath), [(900, 600, 1.0), (1700, 800, 0.7)]) * np.hanning(breath)
        f0 = np.linspace(top, top * 0.8, voice) * 0.96**index
        a = _resonate(_glottal(voice, f0, 0.02, rng), [(780, 130, 1.0), (1250, 150, 0.6), (2600, 300, 0.25)])
        a = a / np.abs(a).max() * _swell(voice, 0.015, 0.06)
        strokes.append(np.concatenate([h / np.abs(h).max() * 0.25, a]) * 0.88**index)
    return _join(strokes, [0.03] * (len(strokes) - 1))


def knock(rng: np.random.Generator) -> Signal:
    """Two or three blows on a door: damped panel modes and the click of the knuckle."""
    modes = [(rng.uniform(100, 150), 0.05), (rng.uniform(210, 280), 0.035), (rng.uniform(380, 520), 0.02)]
    blows = []
    for _ in range(int(rng.integers(2, 4))):
        n = _length(0.16)
        t = np.arange(n) / RATE
        panel = sum((np.sin(2 * np.pi * f * t) * np.exp(-t / d) for f, d in modes), np.zeros(n))
        blows.append((panel + rng.normal(size=n) * np.exp(-t / 0.002)) * rng.uniform(0.8, 1.0))
    return _join(blows, [float(rng.uniform(0.05, 0.12)) for _ in blows[1:]])


def sigh(rng: np.random.Generator) -> Signal:
    """A breath let out: broad noise that rises and fades over most of a second."""
    n = _length(rng.uniform(0.6, 0.9))
    peaks = [(700.0, 500.0, 0.8), (1600.0, 900.0, 1.0), (3500.0, 2000.0, 0.5)]
    return _resonate(rng.normal(size=n), peaks) * np.sin(np.linspace(0, np.pi, n)) ** 1.5


def keyboard(rng: np.random.Generator) -> Signal:
    """A few keys struck: each a press and a softer release."""
    keys = []
    for _ in range(int(rng.integers(4, 8))):
        n = _length(0.09)
        press = rng.normal(size=n) * np.exp(-np.arange(n) / RATE / 0.004)
        release = np.roll(rng.normal(size=n) * np.exp(-np.arange(n) / RATE / 0.003), _length(0.06)) * 0.5
        release[: _length(0.06)] = 0
        keys.append(_resonate(press + release, [(2200, 1500, 1.0), (4500, 2500, 0.8), (320, 150, 0.4)]))
    return _join(keys, [float(rng.uniform(0.02, 0.12)) for _ in keys[1:]])


def rustle(rng: np.random.Generator) -> Signal:
    """Paper moved: crackling bursts of high noise."""
    n = _length(rng.uniform(0.5, 0.8))
    grains = np.where(rng.random(n) < 0.02, rng.normal(size=n) * 6, 0.0) + rng.normal(size=n) * 0.3
    slow = np.interp(np.arange(n), np.linspace(0, n, 9), rng.uniform(0.1, 1.0, 9))
    return _resonate(grains, [(3500, 3000, 1.0), (6000, 3000, 0.8)]) * slow


NOISES: dict[str, Callable[[np.random.Generator], Signal]] = {
    "cough": cough,
    "throat clear": throat_clear,
    "laugh": laugh,
    "door knock": knock,
    "sigh": sigh,
    "keyboard": keyboard,
    "paper rustle": rustle,
}


def make_noise(name: str, seed: int) -> Signal:
    """The sound `name` (a key of `NOISES`) as float64 [samples] at 16 kHz; the same seed gives the same sound."""
    return NOISES[name](np.random.default_rng(seed))
