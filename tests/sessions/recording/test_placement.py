"""Where sent and heard audio lies, against the rules of the ledger."""

from __future__ import annotations

import pytest

from sessions.core.effects import AdmitFrame, Effect, HoldCarrier, Notify, ResumeCarrier
from sessions.core.events import CarrierAttached, Event, PlaybackReported, TimerDue
from sessions.core.fence import Fence
from sessions.core.notices import PlaybackCleared, PlaybackStopped
from sessions.core.timeline import Ticks, from_ms
from sessions.recording.placement import PATIENCE, Piece, Placement, Sources

FENCE = Fence("s", 1, 0)
MS = from_ms(1)
TICK: Event = TimerDue("pump")


def placed(*, paced: bool = False, acknowledged: bool = False, delay: float = 0) -> Placement:
    placement = Placement()
    placement.event(CarrierAttached(acknowledged, paced, from_ms(delay)), 0)
    return placement


def admit(placement: Placement, start: int, end: int, at: int, response: str = "r") -> None:
    """Content and place in ms."""
    placement.admit(
        AdmitFrame(FENCE, 0, response, "i", start * MS, end * MS, at * MS, response, start * MS),
        bytes((end - start) * 48),
    )


def then(placement: Placement, now: float, *effects: Effect, event: Event = TICK) -> None:
    placement.event(event, from_ms(now))
    placement.effects(effects)


def spans(pieces: object) -> list[tuple[float, float, float]]:
    """(content start, length, place) in ms."""
    assert hasattr(pieces, "__iter__")
    return [(one.start / MS, one.length / MS, one.placed_at / MS) for one in pieces]


def cleared(heard: float) -> Notify:
    return Notify(PlaybackCleared("r", from_ms(heard), ""))


def test_what_was_sent_is_heard_where_it_was_placed_after_the_delay_of_the_way() -> None:
    placement = placed(delay=60)
    admit(placement, 0, 20, 100)
    admit(placement, 20, 40, 120)
    placement.end()
    assert spans(placement.sent()) == [(0, 40, 100)]
    assert spans(placement.heard()) == [(0, 40, 160)]


def test_pieces_come_out_once_nothing_can_change_them() -> None:
    placement = placed(delay=60)
    for number in range(5):
        admit(placement, 500 * number, 500 * number + 500, 100 + 500 * number)
    then(placement, 1145)
    assert spans(placement.sent()) == [(0, 500, 100), (500, 500, 600)]
    assert spans(placement.heard()) == [(0, 500, 160)]
    then(placement, 1165)
    assert spans(placement.heard()) == [(500, 500, 660)]


def test_a_hold_moves_what_a_carrier_that_paces_had_not_released() -> None:
    placement = placed(paced=True)
    admit(placement, 0, 100, 0)
    admit(placement, 100, 200, 100)
    then(placement, 130, HoldCarrier())
    then(placement, 500)
    assert spans(placement.sent()) == []
    then(placement, 630, ResumeCarrier())
    placement.end()
    assert spans(placement.sent()) == [(0, 130, 0), (130, 70, 630)]
    assert spans(placement.heard()) == [(0, 130, 0), (130, 70, 630)]


def test_a_hold_moves_nothing_that_has_left_already() -> None:
    placement = placed()
    admit(placement, 0, 100, 0)
    then(placement, 30, HoldCarrier())
    then(placement, 400, ResumeCarrier())
    placement.end()
    assert spans(placement.heard()) == [(0, 100, 0)]


@pytest.mark.parametrize(("paced", "sent"), [(False, [(0, 100, 0)]), (True, [(0, 30, 0)])])
def test_a_cut_ends_what_is_heard_and_calls_back_what_a_pacing_carrier_still_had(
    paced: bool, sent: list[tuple[float, float, float]]
) -> None:
    placement = placed(paced=paced)
    admit(placement, 0, 100, 0)
    then(placement, 30, cleared(25))
    placement.end()
    assert spans(placement.sent()) == sent
    assert spans(placement.heard()) == [(0, 25, 0)]


def test_what_comes_after_a_cut_takes_the_place_of_what_was_sent_ahead() -> None:
    placement = placed()
    admit(placement, 0, 200, 0)
    then(placement, 50, cleared(50))
    admit(placement, 0, 100, 50, "r2")
    placement.end()
    assert spans(placement.sent()) == [(0, 50, 0), (0, 100, 50)]
    assert spans(placement.heard()) == [(0, 50, 0), (0, 100, 50)]


def test_what_a_client_acknowledges_waits_for_its_word() -> None:
    placement = placed(acknowledged=True)
    admit(placement, 0, 500, 0)
    admit(placement, 500, 1000, 500)
    then(placement, 2900)
    assert spans(placement.heard()) == []
    then(placement, 2910, event=PlaybackReported("r", 620 * MS))
    assert spans(placement.heard()) == [(0, 500, 0)]
    then(placement, 2950, cleared(630))
    placement.end()
    assert spans(placement.heard()) == [(500, 130, 500)]


def test_frames_that_follow_each_other_are_one_piece_until_something_is_taken_from_it() -> None:
    placement = placed()
    admit(placement, 0, 20, 0)
    admit(placement, 20, 40, 20)
    then(placement, 45)
    (first,) = placement.sent()
    assert (first.length, len(first.pcm)) == (40 * MS, 40 * 48)
    admit(placement, 40, 60, 40)  # what was given out does not grow any more
    admit(placement, 60, 80, 70)  # a gap
    then(placement, 75, cleared(70))
    admit(placement, 0, 20, 75, "r2")
    placement.end()
    assert first.length == 40 * MS
    assert spans(placement.sent()) == [(40, 20, 40), (60, 5, 70), (0, 20, 75)]
    heard = list(placement.heard())
    assert spans(heard) == [(0, 40, 0), (40, 20, 40), (60, 5, 70), (0, 20, 75)]
    assert [len(piece.pcm) for piece in heard] == [40 * 48, 20 * 48, 20 * 48, 20 * 48]


def test_a_piece_grows_no_longer_than_it_may_wait() -> None:
    placement = placed()
    for number in range(60):
        admit(placement, 20 * number, 20 * number + 20, 20 * number)
    placement.end()
    assert spans(placement.sent()) == [(0, 500, 0), (500, 500, 500), (1000, 200, 1000)]


def test_a_client_that_never_says_a_word_is_not_waited_for_for_ever() -> None:
    placement = placed(acknowledged=True)
    admit(placement, 0, 100, 0)
    placement.event(TICK, PATIENCE)
    assert spans(placement.heard()) == []
    placement.event(TICK, PATIENCE + 100 * MS)
    assert spans(placement.heard()) == [(0, 100, 0)]


def test_a_response_that_was_played_to_its_end_was_heard() -> None:
    placement = placed(acknowledged=True)
    admit(placement, 0, 100, 0)
    then(placement, 2000, Notify(PlaybackStopped("r", "report")))
    assert spans(placement.heard()) == [(0, 100, 0)]


def test_the_front_of_a_piece_can_be_left_out() -> None:
    piece = Piece("r", 0, 100, 1000, "r", 500)
    rest = piece.from_(30).from_(10)
    assert (rest.start, rest.length, rest.placed_at, rest.source_start, rest.skip) == (40, 60, 1040, 540, 40)
    assert piece.skip == 0


def test_sources_are_found_where_they_were_written_even_in_pieces() -> None:
    sources = Sources()
    sources.made("r", 0, 100, 0)
    sources.made("aside", 0, 50, 100)
    sources.made("r", 100, 200, 150)
    sources.made("r", 120, 300, 250)  # does not follow: the shell takes no notice of it either
    assert list(sources.places("r", 80, 60)) == [(80, 20), (150, 40)]
    assert list(sources.places("aside", 0, 50)) == [(100, 50)]
    assert list(sources.places("nobody", 0, 50)) == []
    sources.made("duplex", 0, 100, 250)
    sources.made("duplex", 500, 600, 350)
    assert list(sources.places("duplex", 500, 50)) == [(350, 50)]


def test_ticks_are_whole() -> None:
    assert isinstance(MS, int)
    span: Ticks = MS
    assert span == 48
