"""Where sent and heard audio lies, against the rules of the ledger."""

from __future__ import annotations

from random import Random

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
    assert spans(placement.heard()) == []
    then(placement, 1165)
    assert spans(placement.heard()) == [(0, 500, 160)]
    then(placement, 1665)
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
    then(placement, 2920, event=PlaybackReported("r", 620 * MS))
    then(placement, 3300)
    assert spans(placement.heard()) == [(0, 500, 2300)]
    then(placement, 3310, cleared(630))
    placement.end()
    assert spans(placement.heard()) == [(500, 130, 2800)]


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
    then(placement, 2001)
    assert spans(placement.heard()) == [(0, 100, 0)]


def sounds(placement: Placement, now: float, position: float) -> None:
    then(placement, now, event=PlaybackReported("r", from_ms(position)))


def test_what_a_peer_reports_lies_where_its_reports_have_it() -> None:
    placement = placed(paced=True, delay=60)
    for number in range(5):
        admit(placement, 200 * number, 200 * number + 200, 1000 + 200 * number)
    for position in range(20, 1000, 40):
        # As browsers do it, it names a packet, and the machine is late now and then.
        sounds(placement, 1000 + position + 90 + (position * 7) % 20 + (60 if position % 200 == 100 else 0), position)
    placement.end()
    ((start, length, place),) = joined(placement)
    assert (start, length) == (0, 1000)
    assert place == pytest.approx(1090, abs=2)


def test_a_way_that_grows_while_the_sound_goes_on_leaves_a_gap_and_one_that_shrinks_takes_some_of_it() -> None:
    placement = placed(paced=True, delay=60)
    for number in range(3):
        admit(placement, 500 * number, 500 * number + 500, 500 * number)
    for position in range(20, 1500, 20):
        sounds(placement, position + (60, 100, 70)[(position - 1) // 500], position)
    then(placement, 3000)
    placement.end()
    assert joined(placement) == [(0, 500, 60), (500, 500, 600), (1030, 470, 1100)]


def test_a_way_that_hardly_changes_leaves_sound_in_one_piece_and_is_followed_at_the_next_pause() -> None:
    placement = placed(paced=True, delay=60)
    admit(placement, 0, 500, 0)
    admit(placement, 500, 1000, 500)
    admit(placement, 1000, 1500, 1200)
    for position in range(20, 1500, 20):
        sounds(placement, position + (80, 90, 290)[(position - 1) // 500], position)
    placement.end()
    assert joined(placement) == [(0, 1000, 80), (1000, 500, 1290)]


def test_words_of_a_peer_that_cannot_be_true_place_nothing() -> None:
    placement = placed(paced=True, delay=60)
    admit(placement, 0, 500, 1000)
    sounds(placement, 1010, 400)  # before its time
    sounds(placement, 1020, 600)  # never sent
    sounds(placement, 1600, 300)  # goes back
    then(placement, 1700, event=PlaybackReported("nobody", 100 * MS))
    placement.end()
    assert joined(placement) == [(0, 500, 1060)]


def test_what_one_peer_reported_says_nothing_of_the_next() -> None:
    placement = placed(paced=True, delay=60)
    admit(placement, 0, 100, 0)
    sounds(placement, 140, 50)
    placement.event(CarrierAttached(paced=True, delay=from_ms(70)), from_ms(200))
    placement.effects([cleared(60)])
    admit(placement, 0, 100, 300, "r2")
    placement.end()
    assert spans(placement.heard()) == [(0, 60, 90), (0, 100, 370)]


@pytest.mark.parametrize("acknowledged", [False, True])
def test_it_does_not_matter_when_the_pieces_are_asked_for(acknowledged: bool) -> None:
    random = Random(3)
    for _ in range(20):
        seed = random.random()
        at_once, at_the_end = (driven(Random(seed), acknowledged, ask) for ask in (True, False))
        assert at_once == at_the_end
        places = [place for _, _, place in at_once]
        assert places == sorted(places)


def driven(random: Random, acknowledged: bool, ask: bool) -> list[tuple[float, float, float]]:
    """A response with holds and reports at random times, asked for its pieces at every step or at the end."""
    placement = placed(paced=True, acknowledged=acknowledged, delay=60)
    pieces: list[Piece] = []
    now = content = place = 0
    held = False
    for _ in range(400):
        now += random.choice((1, 5, 20))
        match random.random():
            case dice if dice < 0.5 and not held:
                place = max(place, now)
                admit(placement, content, content + 20, place)
                content, place = content + 20, place + 20
            case dice if dice < 0.9:
                sounds(placement, now, random.randrange(content + 1))
            case dice if dice < 0.92 and not held:
                then(placement, now, HoldCarrier())
                held, since = True, now
            case _ if held:
                then(placement, now, ResumeCarrier())
                place += max(0, now - since) if place > since else 0
                held = False
            case _:
                then(placement, now)
        if ask:
            pieces += placement.heard()
    placement.end()
    pieces += placement.heard()
    return merged(pieces)


def merged(pieces: list[Piece]) -> list[tuple[float, float, float]]:
    """Pieces that go on without a pause as one: (content start, length, place) in ms."""
    found: list[tuple[float, float, float]] = []
    for start, length, place in spans(pieces):
        if found and found[-1][0] + found[-1][1] == start and found[-1][2] + found[-1][1] == place:
            found[-1] = (found[-1][0], found[-1][1] + length, found[-1][2])
        else:
            found.append((start, length, place))
    return found


def joined(placement: Placement) -> list[tuple[float, float, float]]:
    return merged(list(placement.heard()))


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
