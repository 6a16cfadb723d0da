from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from models.perception.echo import BLOCK, EchoDetector, Reference
from models.perception.track import TICKS_PER_SAMPLE
from sessions.core.timeline import from_ms
from tests.speech import load

Signal = NDArray[np.float64]
RATE = 16_000
HOP = 512
ECHO = 0.65


def agent(seconds: float = 12.0) -> NDArray[np.int16]:
    """The agent talks: questions of one set after each other."""
    speech = np.concatenate([clip.pcm[clip.onset : clip.end] for clip in load("questions", "test")])
    return speech[: round(seconds * RATE)]


def user(seconds: float = 12.0) -> NDArray[np.int16]:
    """Somebody else talks."""
    speech = np.concatenate([clip.pcm[clip.onset : clip.end] for clip in load("questions", "tune")])
    return speech[: round(seconds * RATE)]


def in_room(
    voice: NDArray[np.int16], ms: float, db: float, reverberation: float = 0.3, direct_db: float = 3.0
) -> Signal:
    """`voice` as it comes back: `ms` later, `db` louder, with a decaying tail of noise behind the direct sound."""
    rng = np.random.default_rng(3)
    length = round(reverberation * RATE)
    tail = rng.normal(size=length) * 10 ** (-3 * np.arange(length) / length)
    tail *= np.sqrt(10 ** (-direct_db / 10) / np.sum(tail**2))
    tail[0] = 1.0
    heard = np.convolve(voice.astype(np.float64), tail)[: len(voice)]
    heard *= 10 ** (db / 20) * np.std(voice.astype(np.float64)) / np.std(heard)
    return np.concatenate([np.zeros(round(ms * RATE / 1000)), heard])[: len(voice)]


def likenesses(
    microphone: Signal, reference: NDArray[np.int16], rate: int = RATE, *, searched: float = np.inf
) -> NDArray[np.float64]:
    """Likeness of every window of `microphone`, while `reference` is played from its beginning on.

    `searched`: seconds from the beginning for which an unknown lag is looked for.
    """
    detector = EchoDetector()
    noise = np.random.default_rng(1).normal(size=len(microphone)) * 26
    heard = (np.clip(microphone + noise, -32768, 32767) / 32768).astype(np.float32)
    step, told = rate // 50, 0
    found = []
    for end in range(HOP, len(heard) + 1, HOP):
        while told < len(reference) and told * RATE < (end + RATE // 5) * rate:
            detector.reference.play(told * 48_000 // rate, reference[told : told + step].tobytes(), rate)
            told += step
        block = heard[max(0, end - BLOCK) : end]
        position, search = end * TICKS_PER_SAMPLE, end < searched * RATE
        wanted = len(block) == BLOCK and detector.wanted(position, search=search)
        found.append(detector.likeness(block, position, search=search) if wanted else 0.0)
    return np.array(found)


def loud(signal: Signal, below_peak_db: float = 25.0) -> NDArray[np.bool_]:
    """Windows in which `signal` is heard."""
    rows = signal[: len(signal) // HOP * HOP].reshape(-1, HOP)
    level = 10 * np.log10(np.mean(rows**2, axis=1) + 1e-9)
    heard: NDArray[np.bool_] = level > level.max() - below_peak_db
    return heard


@pytest.mark.parametrize(("ms", "db"), [(20, 0), (137, -6), (400, -20), (700, -10)])
def test_the_agents_own_voice_is_known_when_it_comes_back(ms: float, db: float) -> None:
    voice = agent()
    echo = in_room(voice, ms, db)
    found = likenesses(echo, voice)
    heard = loud(echo)
    assert np.mean(found[heard] >= ECHO) > 0.8
    first = int(np.argmax(heard))
    assert np.argmax(found >= ECHO) - first <= 5  # 160 ms


def test_another_talker_is_not_taken_for_the_agent() -> None:
    """Windows overlap, so chance comes in twos; of three in a row it is not capable."""
    found = likenesses(user(30.0).astype(np.float64), agent(30.0)) >= ECHO
    assert not np.any(found[2:] & found[1:-1] & found[:-2])
    assert np.mean(found) < 0.01


def test_who_talks_over_the_echo_is_heard() -> None:
    voice, echo = user().astype(np.float64), in_room(agent(), 137, -15)
    size = min(len(voice), len(echo))
    found = likenesses(voice[:size] + echo[:size], agent())
    assert np.mean(found[loud(voice[:size], 15)] < ECHO) > 0.8


def test_an_echo_whose_way_has_changed_is_found_again() -> None:
    voice = agent()
    echo = np.concatenate([in_room(voice, 100, 0)[: 6 * RATE], in_room(voice, 260, 0)[6 * RATE :]])
    found, heard = likenesses(echo, voice), loud(echo)
    late = slice(8 * RATE // HOP, None)
    assert np.mean(found[late][heard[late]] >= ECHO) > 0.8


def test_without_a_search_an_echo_is_known_by_the_lag_that_was_found_before() -> None:
    voice = agent()
    echo = in_room(voice, 137, -6)
    heard, late = loud(echo), slice(6 * RATE // HOP, None)
    assert not np.any(likenesses(echo, voice, searched=0.0))
    assert np.mean(likenesses(echo, voice, searched=6.0)[late][heard[late]] >= ECHO) > 0.8


def test_without_a_search_no_other_lag_is_found() -> None:
    voice = agent()
    echo = np.concatenate([in_room(voice, 100, 0)[: 6 * RATE], in_room(voice, 260, 0)[6 * RATE :]])
    found, heard = likenesses(echo, voice, searched=6.0), loud(echo)
    late = slice(8 * RATE // HOP, None)
    assert np.mean(found[late][heard[late]] >= ECHO) < 0.2


def test_a_reference_at_another_rate_is_compared_too() -> None:
    voice = agent(4.0)
    at_24k = np.interp(np.arange(len(voice) * 3 // 2) / 1.5, np.arange(len(voice)), voice).astype("<i2")
    echo = in_room(voice, 90, 0)
    assert np.mean(likenesses(echo, at_24k, 24_000)[loud(echo)] >= ECHO) > 0.7


def test_silence_is_like_nothing() -> None:
    assert not np.any(likenesses(np.zeros(RATE), np.zeros(RATE, np.int16)))


# --- the reference -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heard", "vain"), [("agent", False), ("user", True), ("after silence", False)])
def test_a_search_is_vain_where_something_was_played_and_nothing_is_like_it(heard: str, vain: bool) -> None:
    detector = EchoDetector()
    played = agent(2.0) if heard != "after silence" else np.zeros(2 * RATE, np.int16)
    detector.reference.play(0, played.tobytes(), RATE)
    sound = user(2.0) if heard != "agent" else agent(2.0)
    loudest = max(range(BLOCK, 2 * RATE, HOP), key=lambda end: np.std(sound[end - BLOCK : end].astype(np.float64)))
    block = (sound[loudest - BLOCK : loudest] / 32768).astype(np.float32)
    detector.likeness(block, loudest * TICKS_PER_SAMPLE)
    assert detector.vain is vain


def counting(first: int, count: int) -> bytes:
    return np.arange(first, first + count).astype("<i2").tobytes()


def told(reference: Reference, start_ms: float, count: int) -> list[int]:
    return [round(value * 32768) for value in reference.read(from_ms(start_ms), count)]


def test_what_was_to_be_heard_and_is_not_is_forgotten() -> None:
    reference = Reference()
    reference.play(0, counting(1, 320), RATE)
    reference.play(from_ms(20), counting(321, 320), RATE)
    reference.hush(from_ms(30))
    assert reference.end == from_ms(30)
    assert told(reference, 0, 480) == list(range(1, 481))
    assert told(reference, 30, 160) == [0] * 160


def test_what_is_played_anew_takes_the_place_of_what_was_there() -> None:
    reference = Reference()
    reference.play(0, counting(1, 640), RATE)
    reference.play(from_ms(20), counting(1000, 320), RATE)
    assert told(reference, 0, 640) == [*range(1, 321), *range(1000, 1320)]


def test_only_as_much_is_kept_as_can_come_back() -> None:
    reference = Reference()
    for second in range(30):
        reference.play(second * 48_000, counting(1, RATE), RATE)
    assert len(reference._waiting) < 5
    assert told(reference, 0, 100) == [0] * 100


def test_what_was_read_already_is_forgotten_too_where_it_is_not_heard() -> None:
    reference = Reference()
    reference.play(0, counting(1, 640), RATE)
    assert told(reference, 0, 640) == list(range(1, 641))
    reference.hush(from_ms(30))
    assert told(reference, 20, 320) == [*range(321, 481)] + [0] * 160
    reference.play(from_ms(30), counting(2000, 160), RATE)
    assert told(reference, 20, 320) == [*range(321, 481), *range(2000, 2160)]


def test_a_piece_that_is_longer_than_what_is_kept_and_one_after_a_long_pause_lie_where_they_were_played() -> None:
    reference = Reference()
    reference.play(0, counting(0, 60_000)[:60_000], RATE)
    reference.play(from_ms(1875), counting(1, 1600), RATE)
    assert told(reference, 1865, 320) == [*range(29_840, 30_000), *range(1, 161)]
    reference.play(from_ms(9000), counting(7, 320), RATE)
    assert told(reference, 8990, 320) == [0] * 160 + list(range(7, 167))
