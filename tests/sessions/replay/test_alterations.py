from __future__ import annotations

import pytest

from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.events import PlaybackReported, ResponseCancel
from sessions.core.timeline import from_ms
from sessions.replay.alterations import AlterationError, Alterations, Shift


def test_settings_of_turns_and_session_are_altered_and_the_rest_stays() -> None:
    given = ["turn.silence_ms=300", "vad.threshold=0.7", "turn.kind=semantic_vad", "session.lead_ms=100"]
    given += ["turn.interrupt_response=false", "turn.idle_timeout_ms=none"]
    turns = TurnConfig(idle_timeout_ms=5000, resume_ms=99)
    altered = Alterations.parse(given).config(SessionConfig(voice="v", turns=turns))
    assert altered.turns is not None
    assert (altered.turns.silence_ms, altered.turns.threshold, altered.turns.kind) == (300, 0.7, "semantic_vad")
    assert (altered.turns.interrupt_response, altered.turns.idle_timeout_ms, altered.turns.resume_ms) == (
        False,
        None,
        99,
    )
    assert (altered.lead, altered.voice) == (from_ms(100), "v")


def test_how_long_a_hold_may_last_holds_for_both_kinds_of_turn_detection() -> None:
    turns = Alterations.parse(["turn.hold_ms=80"]).config(SessionConfig()).turns
    assert turns is not None
    assert (turns.commit_ms, turns.semantic_commit_ms) == (80, 80)


def test_what_is_dropped_and_shifted_is_read() -> None:
    altered = Alterations.parse((), ["playback.ack", "client.cancel", "interruption.2"], ["interruption=-200ms"])
    assert altered.dropped == {PlaybackReported, ResponseCancel}
    assert altered.silenced == {2}
    assert altered.shifts == (Shift(None, from_ms(-200)),)
    assert not altered.none
    assert Alterations.parse().none


@pytest.mark.parametrize(
    ("set_", "drop", "shift", "named"),
    [
        ("silence", "", "", "NAME=VALUE"),
        ("turn.nothing=1", "", "", "turn.silence_ms"),
        ("turn.silence_ms=long", "", "", "whole number"),
        ("turn.silence_ms=-5", "", "", "between 0"),
        ("turn.silence_ms=1.5", "", "", "whole number"),
        ("vad.threshold=nan", "", "", "between 0"),
        ("turn.kind=other", "", "", "server_vad"),
        ("turn.create_response=1", "", "", "true or false"),
        ("session.lead_ms=0", "", "", "more than 0"),
        ("session.instructions=x", "", "", "no such setting"),
        ("", "playback", "", "playback.ack"),
        ("", "interruption.x", "", "interruption.N"),
        ("", "", "interruption=200", "-200ms"),
        ("", "", "answer=200ms", "-200ms"),
        ("", "", "interruption=99999999ms", "a minute"),
    ],
)
def test_a_mistake_names_the_alteration_and_the_remedy(set_: str, drop: str, shift: str, named: str) -> None:
    with pytest.raises(AlterationError, match=named):
        Alterations.parse([set_] if set_ else (), [drop] if drop else (), [shift] if shift else ())
