"""The same session otherwise: what would have happened, and where nothing is known of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.timeline import from_ms
from sessions.replay.account import Interruption
from sessions.replay.alterations import Alterations
from sessions.replay.reader import Recording
from sessions.replay.statistics import compare_all
from sessions.replay.what_if import USER, WhatIf, pairs, what_if

from .talks import acknowledged, interrupted, overloaded
from .test_rerun import record


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interrupted(tmp_path_factory.mktemp("talk"), cough=True)


def altered(folder: Path, *set_: str, drop: str = "", shift: str = "") -> WhatIf:
    return what_if(folder, Alterations.parse(set_, [drop] if drop else (), [shift] if shift else ()))


def spoken(result: WhatIf, which: str = "altered") -> list[Interruption]:
    told = result.altered if which == "altered" else result.recorded
    return [cut for cut in told.interruptions if cut.cause == "barge_in"]


@pytest.mark.parametrize("make", [interrupted, acknowledged, overloaded, record])
def test_without_alterations_everything_happens_as_it_did(make: object, tmp_path: Path) -> None:
    """The strongest check there is of the run itself: peers made of the recording give the recording."""
    assert callable(make)
    folder = make(tmp_path)
    result = what_if(folder, Alterations())
    assert result.same
    assert result.limits == [USER]
    recorded = [(step.event, effect) for step in Recording(folder).steps() for effect in step.effects]
    again = [(step.event, effect) for step in result.steps for effect in step.effects]
    assert len(again) == len(recorded)
    assert [effect for _, effect in again] == [effect for _, effect in recorded]


def test_a_longer_hold_cuts_later_and_a_shorter_one_sooner(talk: Path) -> None:
    (recorded,) = spoken(altered(talk), "recorded")
    (sooner,) = spoken(altered(talk, "turn.hold_ms=80"))[-1:]
    (later,) = spoken(altered(talk, "turn.hold_ms=400"))
    assert sooner.decided < recorded.decided < later.decided
    assert later.decided - recorded.decided == from_ms(200)
    # A cough of 100 ms is an interruption then.
    assert len(spoken(altered(talk, "turn.hold_ms=80"))) == 2 or sooner.heard != recorded.heard


def test_a_threshold_that_nothing_reaches_lets_nothing_happen(talk: Path) -> None:
    result = altered(talk, "vad.threshold=0.95")
    assert spoken(result) == []
    assert result.altered.answers == []
    assert not result.same
    assert (spoken(result, "recorded")[0], None) in pairs(result)
    assert "does not happen" in str(result)


def test_where_more_would_have_been_said_than_was_ever_made_it_is_told(tmp_path: Path) -> None:
    """The interruption is silenced; of the answer that it cut there is only what had been made."""
    folder = interrupted(tmp_path, SessionConfig(turns=TurnConfig(), credit=from_ms(1000)))
    result = altered(folder, drop="interruption")
    assert spoken(result) == []
    assert result.altered.answers[0].status == "completed"
    whole = interrupted(tmp_path / "whole")
    assert len(altered(whole, drop="interruption").altered.answers) == 1


def test_an_interruption_that_comes_earlier_cuts_so_much_earlier(talk: Path) -> None:
    (recorded,) = spoken(altered(talk), "recorded")
    result = altered(talk, shift=f"interruption.{recorded.number}=-200ms")
    (earlier,) = spoken(result)
    assert recorded.onset is not None
    assert earlier.onset == recorded.onset - from_ms(200)
    assert recorded.decided - earlier.decided == from_ms(200)
    assert (earlier.heard or 0) < (recorded.heard or 0)
    (pair,) = [pair for pair in pairs(result) if pair[1] is earlier]
    assert pair[0] is not None
    assert pair[0].number == recorded.number


def test_without_acknowledgements_nothing_counts_as_heard(tmp_path: Path) -> None:
    folder = acknowledged(tmp_path)
    (with_them,) = spoken(altered(folder))
    assert (with_them.heard or 0) > from_ms(500)
    assert with_them.heard_by == "report"
    result = altered(folder, drop="playback.ack")
    told = [cut for cut in result.altered.interruptions if cut.cause in ("barge_in", "withdrawn")]
    assert all(not cut.heard for cut in told)
    assert not result.same


def test_an_interruption_that_is_not_there_is_told(talk: Path) -> None:
    result = altered(talk, shift="interruption.77=100ms")
    assert result.same
    assert any("no interruption 77" in limit for limit in result.limits)


def test_words_that_nobody_asked_for_are_not_there(talk: Path) -> None:
    """With the other kind of turn detection questions are asked that the recording has no answers to."""
    result = altered(talk, "turn.kind=semantic_vad")
    assert any("not answered" in limit for limit in result.limits)


def test_of_many_sessions_those_that_would_go_otherwise_are_found(tmp_path: Path) -> None:
    for number in range(2):
        interrupted(tmp_path / "in" / str(number), cough=bool(number)).rename(tmp_path / f"s{number}")
    compared = list(compare_all(tmp_path, Alterations.parse(["turn.hold_ms=400"])))
    assert [one.result is not None for one in compared] == [True, True]
    assert all(one.result.same is False for one in compared if one.result is not None)
    unchanged = list(compare_all(tmp_path, Alterations.parse(["turn.prefix_padding_ms=200"])))
    assert all(one.result is not None and one.result.same for one in unchanged)
