"""What people saw of a server, worked out after the load: when it answered, when it fell silent, what was stale.

Every reply has a tone of its own, so each 20 ms of sound says itself which reply it belongs to.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from codec import g711
from codec.opus import OpusDecoder
from loadtest.person import Memory, Said
from loadtest.voice import Coding

TONES = tuple(range(400, 2300, 100))
"""Hz of the replies, in the order in which an engine gives them; 20 ms resolve 50 Hz."""
RATE = 8000
SIZE = RATE // 50
AUDIBLE = 200
"""An int16 sample beyond this is sound."""
PAUSE = 0.1
"""Seconds without a piece that end the stop of a server which does not say when it has stopped."""
DECIDED = 3.0
"""Seconds after the end of what was said until which a server has made something of it."""
GAP = 0.2
"""Seconds between two pieces of a reply from which a listener may hear a gap."""


def script(seconds: float) -> str:
    """A scripted engine's TOML: one reply of `seconds` per tone."""
    return "".join(f"[[reply]]\ntone_hz = {tone}\nseconds = {seconds}\n\n" for tone in TONES)


@dataclass(slots=True)
class Seen:
    """Of all people together; seconds."""

    first_audio: list[float] = field(default_factory=list)
    """From the true end of what was said to the first sound of the answer."""
    stop: list[float] = field(default_factory=list)
    """From the true onset of an interruption to the last sound of the interrupted reply that came."""
    clear: list[float] = field(default_factory=list)
    """From the same onset to the word that what was not played yet is to be thrown away."""
    hold: list[float] = field(default_factory=list)
    """How long a backchannel kept the agent from speaking."""
    gaps: list[float] = field(default_factory=list)
    """The longest time between two pieces in each reply, where nobody spoke over it."""
    stale: int = 0
    """Pieces of 20 ms of an interrupted reply that came after the stop."""
    missed: int = 0
    """Interruptions over which the agent spoke on."""
    backchannels: int = 0
    lost: int = 0
    """Backchannels that ended a reply."""
    unanswered: int = 0
    failures: list[str] = field(default_factory=list)


def tones(pcm: NDArray[np.int16]) -> NDArray[np.int64]:
    """The tone of each row of `pcm` (int16 [frames, 160] at 8 kHz), 0 where there is none of `TONES`."""
    if not len(pcm):
        return np.zeros(0, np.int64)
    found = np.zeros(len(pcm), np.int64)
    for start in range(0, len(pcm), 4096):
        part = pcm[start : start + 4096]
        peak = np.argmax(np.abs(np.fft.rfft(part * np.hanning(SIZE), 1600)), axis=1) * RATE / 1600
        nearest = np.clip(np.round(peak / 100) * 100, TONES[0], TONES[-1]).astype(np.int64)
        heard = (np.abs(part).max(axis=1) > AUDIBLE) & (np.abs(nearest - peak) <= 40)
        found[start : start + 4096] = np.where(heard, nearest, 0)
    return found


def _frames(memory: Memory, coding: Coding) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """When each 20 ms of sound came, and its tone."""
    decoder = OpusDecoder(RATE) if coding == "opus" else None
    times: list[float] = []
    rows: list[NDArray[np.int16]] = []
    for at, payload in memory.pieces:
        if isinstance(payload, bytes):
            assert decoder is not None
            pcm = np.frombuffer(decoder.decode(payload), "<i2")
        else:
            pcm = np.frombuffer(g711.decode(base64.b64decode(payload), "ulaw"), "<i2")
        # What is left of a piece that is no multiple of 20 ms is too short to be told apart, unless it is all of it.
        count = max(1, len(pcm) // SIZE)
        padded = np.zeros(count * SIZE, np.int16)
        padded[: min(len(pcm), len(padded))] = pcm[: len(padded)]
        times += [at] * count
        rows.append(padded.reshape(count, SIZE))
    found = tones(np.concatenate(rows)) if rows else np.zeros(0, np.int64)
    heard = found > 0
    return np.asarray(times, np.float64)[heard], found[heard]


def observe(memories: Iterable[Memory], coding: Coding, until: float) -> Seen:
    """What all of them saw. `until`: when the load ended; what had not time enough until then is left out."""
    seen = Seen()
    for memory in memories:
        times, tone = _frames(memory, coding)
        _judge(memory, times, tone, until, seen)
    return seen


def _judge(memory: Memory, times: NDArray[np.float64], tone: NDArray[np.int64], until: float, seen: Seen) -> None:
    seen.unanswered += memory.unanswered
    seen.failures += [reason for _, reason in memory.failed]
    for index, said in enumerate(memory.said):
        following = memory.said[index + 1].onset if index + 1 < len(memory.said) else until
        if following - said.end < 0.3 or (following == until and until - said.end < DECIDED):
            continue
        if said.kind == "question":
            _answered(said, following, times, tone, 0, seen)
        else:
            _spoken_over(said, following, memory.cleared, times, tone, seen)
    _gaps(memory.said, times, tone, seen)


def _answered(
    said: Said, following: float, times: NDArray[np.float64], tone: NDArray[np.int64], old: int, seen: Seen
) -> bool:
    """The first sound after `said` that is not of the reply `old`."""
    answer = np.flatnonzero((times >= said.end) & (times < following) & (tone != old))
    if len(answer):
        seen.first_audio.append(float(times[answer[0]] - said.end))
    return len(answer) > 0


def _spoken_over(
    said: Said,
    following: float,
    cleared: Sequence[float],
    times: NDArray[np.float64],
    tone: NDArray[np.int64],
    seen: Seen,
) -> None:
    before = np.flatnonzero(times <= said.onset)
    if not len(before) or said.onset - times[before[-1]] > GAP:
        return  # the agent had just fallen silent by itself: nothing was spoken over
    old = tone[before[-1]]
    since = np.flatnonzero((times > said.onset) & (times < following) & (tone == old))
    clear = next((at for at in cleared if said.onset < at < min(following, said.end + DECIDED)), None)
    rest = times[since]
    spoken_on = len(rest) > 0 and rest[-1] > said.end + DECIDED / 2
    if said.kind == "backchannel":
        seen.backchannels += 1
        if clear is not None or not spoken_on:
            seen.lost += 1
        else:
            around = np.concatenate([times[before[-1:]], rest[rest <= said.end + DECIDED / 2]])
            seen.hold.append(float(np.diff(around).max(initial=0.0)))
        return
    if clear is None and spoken_on:
        seen.missed += 1
        return
    if clear is None:
        # Where nothing tells of the stop it is the first pause.
        pauses = np.flatnonzero(np.diff(np.concatenate([[said.onset], rest])) >= PAUSE)
        stopped = len(rest) if not len(pauses) else int(pauses[0])
    else:
        seen.clear.append(clear - said.onset)
        stopped = int(np.searchsorted(rest, clear, side="right"))
    seen.stop.append(float(rest[stopped - 1] - said.onset) if stopped else 0.0)
    seen.stale += len(rest) - stopped
    _answered(said, following, times, tone, int(old), seen)


def _gaps(said: Sequence[Said], times: NDArray[np.float64], tone: NDArray[np.int64], seen: Seen) -> None:
    if len(times) < 2:
        return
    between = np.diff(times)
    same = np.diff(tone) == 0
    for one in said:
        over = one.end + (0.0 if one.kind == "question" else DECIDED)
        same &= (times[1:] < one.onset - 0.1) | (times[:-1] > over)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(tone) != 0) + 1, [len(tone)]])
    for start, end in itertools.pairwise(starts):
        inside = between[start : end - 1][same[start : end - 1]]
        if len(inside):
            seen.gaps.append(float(inside.max()))
