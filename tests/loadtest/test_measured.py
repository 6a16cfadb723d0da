"""Service times come out of loads that had them, and the model is put beside what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.simulation.measured import Load, Voices, calibrated, compared, simulated
from loadtest.simulation.speech import WINDOW, Speech, Trace, plain
from loadtest.simulation.times import ServiceTimes

TRUE = replace(
    ServiceTimes(), base_per_s=150.0, listening_per_s=9.0, speaking_per_s=9.0, hearing=20.0, queue=0.0, echo=15.0
)
LATE_ANSWERS = replace(TRUE, hearing=5.0, answer=30.0, echo=0.0)
"""Where an answer waits longer than an interruption does."""


def voices() -> Voices:
    return Voices({"question": (plain(1.5), plain(2.2)), "command": (plain(0.5), plain(0.9))})


def load(scenario: str, sessions: int, times: ServiceTimes = TRUE) -> Load:
    """As one that was measured where `times` hold."""
    empty = Load(scenario, sessions, 12.0, 0.0, 0, 0, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 0)
    return simulated(empty, times, voices(), 200)


@pytest.mark.parametrize("true", [TRUE, LATE_ANSWERS], ids=["hears late", "answers late"])
def test_service_times_are_found_again(true: ServiceTimes) -> None:
    crowds = (("talk", 16), ("talk", 4), ("bargein", 6))
    times = calibrated([load(scenario, sessions, true) for scenario, sessions in crowds], voices(), 200)
    for scenario, sessions in (("talk", 10), ("bargein", 8)):
        real = load(scenario, sessions, true)
        made = simulated(real, times, voices(), 200)
        assert made.core_share == pytest.approx(real.core_share, rel=0.05)
        assert made.first_audio[0] == pytest.approx(real.first_audio[0], abs=10)
        assert made.commit[0] == pytest.approx(real.commit[0], abs=20)  # it comes with a frame
        assert all(name in made.figures() for name, *_ in compared(real, made))


def test_without_two_loads_of_talk_nothing_can_be_found() -> None:
    with pytest.raises(ValueError, match="two loads of scenario talk"):
        calibrated([load("talk", 4), load("bargein", 4)], voices(), 200)


def test_only_what_can_be_simulated_is_read(tmp_path: Path) -> None:
    file = tmp_path / "load.json"
    file.write_text(json.dumps({"carrier": "webrtc", "scenario": "talk"}))
    with pytest.raises(ValueError, match="carrier twilio or ws"):
        Load.read(file)
    with pytest.raises(ValueError, match="scenario must be one of"):
        Voices().behaviour("churn")


def test_a_trace_knows_where_it_counts_otherwise() -> None:
    trace = Trace.of([(chance, -40.0, -60.0) for chance in (0.1, 0.2, 0.4, 0.9, 0.8, 0.2)])
    assert trace.runs == (2, 2, 3, 5, 5, 6)


def test_plain_speech_is_heard_where_most_of_a_window_is_sound() -> None:
    speech: Speech = plain(0.5)
    for begin in range(0, WINDOW, WINDOW // 8):
        heard = [chance > 0.5 for chance, *_ in speech.at(begin).windows]
        assert abs(sum(heard) * WINDOW - speech.end) <= WINDOW
        assert "0" not in "".join("01"[one] for one in heard).strip("0")
