"""The playback channel alone."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from server.carriers.webrtc.downlink import PACKET, Piece
from server.carriers.webrtc.playback import LEAD, PlaybackMap
from server.carriers.webrtc.reports import AHEAD_MOST, NoReport, PlaybackReports
from sessions.core.events import PlaybackReported
from sessions.core.timeline import from_ms

ORIGIN = (1 << 32) - 3 * PACKET
APART = 1000.0
"""Seconds by which the clocks of page and server differ."""


class Channel:
    def __init__(self) -> None:
        self.readyState = "open"
        self.sent: list[dict[str, Any]] = []

    def send(self, message: str) -> None:
        self.sent.append(json.loads(message))


class Page:
    """A page and what it was sent: twenty packets of `r`."""

    def __init__(self) -> None:
        self.played = PlaybackMap(ORIGIN)
        self.reports = PlaybackReports(self.played)
        self.channel = Channel()
        assert self.reports.open(cast("Any", self.channel))
        self._at = 0.0
        self.send("r", 0, 20)

    def send(self, response: str, first: int, packets: int) -> None:
        for index in range(first, first + packets):
            self.played.sent([Piece(response, index * PACKET, PACKET, 0)], PACKET)

    def says(
        self, packet: int, at: float | None = None, round_trip: float = 0.0, took: float = 0.0
    ) -> list[PlaybackReported]:
        """That packet number `packet` of the call sounds at `at` ms, which comes `took` ms later."""
        self._at = self._at + 50 if at is None else at
        stamp = (ORIGIN + packet * PACKET) % (1 << 32)
        now = APART + (self._at + took) / 1000
        return self.reports.take(json.dumps({"rtp": stamp, "at_ms": self._at}), round_trip, now)


def test_a_report_is_a_position_and_is_answered_with_the_page_s_own_time() -> None:
    page = Page()
    assert page.says(10, at=7.5) == [PlaybackReported("r", 10 * PACKET - LEAD)]
    assert page.channel.sent == [{"epoch": 0, "mute_until_rtp": None, "at_ms": 7.5}]


def test_half_of_the_round_trip_has_passed_when_a_report_comes() -> None:
    assert Page().says(10, round_trip=0.1) == [PlaybackReported("r", 10 * PACKET - LEAD + 2400)]
    assert Page().says(0, round_trip=50.0) == [PlaybackReported("r", min(20 * PACKET, AHEAD_MOST - LEAD))]


def test_what_a_report_was_later_than_others_has_passed_too() -> None:
    page = Page()
    page.says(1, took=5)
    assert page.says(4, took=35) == [PlaybackReported("r", 4 * PACKET - LEAD + from_ms(30))]
    assert page.says(8, took=5) == [PlaybackReported("r", 8 * PACKET - LEAD)]
    assert page.says(9, took=4000) == [PlaybackReported("r", min(20 * PACKET, 9 * PACKET - LEAD + AHEAD_MOST))]


def test_a_round_trip_that_a_busy_machine_makes_longer_counts_as_the_shortest_one() -> None:
    page = Page()
    page.says(1, round_trip=0.0)
    assert page.says(4, round_trip=0.02) == [PlaybackReported("r", 4 * PACKET - LEAD + from_ms(10))]
    assert page.says(6, round_trip=0.3) == [PlaybackReported("r", 6 * PACKET - LEAD + from_ms(10))]


def test_a_page_whose_clock_stood_still_is_believed_again_after_a_while() -> None:
    page = Page()
    page.send("r", 20, 500)
    page.says(1, took=5)
    told = [(10 * number, page.says(10 * number, at=200.0 * number, took=300_000)) for number in range(2, 52)]
    ahead = [one.position - (packet * PACKET - LEAD) for packet, events in told for one in events]
    assert (ahead[0], ahead[-1]) == (AHEAD_MOST, 0)


def test_positions_only_grow_and_the_same_one_is_told_once() -> None:
    page = Page()
    assert page.says(10)
    assert page.says(10) == []
    assert page.says(8) == []
    assert page.says(11)


def test_a_page_that_has_nothing_left_in_a_hold_says_so_once_more() -> None:
    page = Page()
    page.says(19)
    page.reports.held = True
    end = [PlaybackReported("r", 20 * PACKET)]
    page.played.skip(20 * PACKET)
    assert [page.says(packet) for packet in (22, 24, 26, 28)] == [end, end, [], []]
    page.reports.held = False
    assert page.says(30) == []
    page.send("r", 20, 5)
    assert page.says(42) == [PlaybackReported("r", 22 * PACKET - LEAD)]
    page.reports.held = True
    page.says(44)
    page.played.skip(20 * PACKET)
    assert [len(page.says(packet)) for packet in (46, 48, 50)] == [1, 1, 0]
    page.reports.begin_epoch(1)
    assert not page.reports.held


def test_an_older_report_that_comes_late_is_answered_and_passed_over() -> None:
    page = Page()
    page.says(10, at=100.0)
    assert page.says(12, at=60.0) == []
    assert page.channel.sent[-1]["at_ms"] == 60.0


def test_the_response_before_was_played_to_its_end() -> None:
    page = Page()
    page.send("next", 0, 5)
    page.says(18)
    assert page.says(22) == [PlaybackReported("r", 20 * PACKET), PlaybackReported("next", 2 * PACKET - LEAD)]
    assert page.says(23) == [PlaybackReported("next", 3 * PACKET - LEAD)]


def test_a_new_epoch_is_told_at_once_and_nothing_of_the_old_one_is_reported() -> None:
    page = Page()
    page.says(10)
    page.reports.begin_epoch(1)
    edge = (ORIGIN + 20 * PACKET) % (1 << 32)
    assert page.channel.sent[-1] == {"epoch": 1, "mute_until_rtp": edge}
    page.played.skip(5 * PACKET)
    page.send("next", 0, 5)
    assert page.says(15) == []
    assert page.says(23) == []  # silence of the new epoch
    assert page.says(28) == [PlaybackReported("next", 3 * PACKET - LEAD)]
    assert page.channel.sent[-1]["epoch"] == 1


def test_a_heartbeat_is_answered() -> None:
    page = Page()
    assert page.reports.take('{"at_ms": 3}', 0.0, 1.0) == []
    assert page.reports.take('{"rtp": null, "at_ms": 4}', 0.0, 1.0) == []
    assert [one["at_ms"] for one in page.channel.sent] == [3, 4]


def test_without_a_channel_or_after_its_end_an_epoch_begins_all_the_same() -> None:
    page = Page()
    page.channel.readyState = "closed"
    page.reports.begin_epoch(4)
    assert page.channel.sent == []
    bare = PlaybackReports(PlaybackMap(7))
    bare.begin_epoch(1)
    assert (bare.epoch, bare.mute_until) == (1, 7)


@pytest.mark.parametrize(
    "junk", ["", "x", "[]", "1", '{"at_ms": true}', '{"at_ms": NaN}', '{"at_ms": 1, "rtp": -1}', b"{}", "[" * 999]
)
def test_junk_is_no_report_and_is_not_answered(junk: str | bytes) -> None:
    page = Page()
    with pytest.raises(NoReport):
        page.reports.take(junk, 0.0, 1.0)
    assert page.channel.sent == []
