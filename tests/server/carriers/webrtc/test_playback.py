"""RTP timestamps to content positions."""

from __future__ import annotations

import random

from server.carriers.webrtc.downlink import PACKET, Piece
from server.carriers.webrtc.playback import KEPT, LEAD, PlaybackMap

ORIGIN = (1 << 32) - 5 * PACKET


def send(played: PlaybackMap, response: str, first: int, packets: int) -> int:
    """Send `packets` of `response` from packet `first` on; the timestamp of the first."""
    timestamp = played.timestamp
    for index in range(first, first + packets):
        played.sent([Piece(response, index * PACKET, PACKET, 0)], PACKET)
    return timestamp


def silence(played: PlaybackMap, packets: int) -> None:
    for _ in range(packets):
        played.sent([], PACKET)


def test_a_timestamp_names_the_content_that_was_sent_under_it_less_what_it_leads() -> None:
    played = PlaybackMap(ORIGIN)
    silence(played, 3)
    start = send(played, "r", 0, 20)
    assert played.locate((start + 10 * PACKET) % (1 << 32)) == ("r", 10 * PACKET - LEAD)


def test_before_the_first_sound_nothing_is_heard() -> None:
    played = PlaybackMap(ORIGIN)
    start = played.timestamp
    silence(played, 3)
    send(played, "r", 0, 3)
    assert played.locate((start + 2 * PACKET) % (1 << 32)) is None


def test_in_a_pause_the_position_stands_where_it_began() -> None:
    played = PlaybackMap(7)
    start = send(played, "r", 0, 10)
    silence(played, 5)
    send(played, "r", 10, 5)
    assert played.locate(start + 13 * PACKET) == ("r", 10 * PACKET)
    assert played.locate(start + 16 * PACKET) == ("r", 11 * PACKET - LEAD)


def test_time_that_passed_without_a_packet_counts() -> None:
    played = PlaybackMap(7)
    start = send(played, "r", 0, 2)
    played.skip(10 * PACKET)
    send(played, "r", 2, 2)
    assert played.locate(start + 5 * PACKET) == ("r", 2 * PACKET)
    assert played.locate(start + 13 * PACKET) == ("r", 3 * PACKET - LEAD)


def test_two_responses_in_one_packet_are_told_apart() -> None:
    played = PlaybackMap(7)
    start = played.timestamp
    played.sent([Piece("a", 0, 400, 0), Piece("b", 0, 560, 400)], PACKET)
    played.sent([Piece("b", 560, PACKET, 0)], PACKET)
    silence(played, 3)
    assert played.locate(start, ahead=LEAD + 300) == ("a", 300)
    assert played.locate(start, ahead=LEAD + 500) == ("b", 100)
    assert played.end_of("a") == 400
    assert played.end_of("c") is None


def test_what_was_never_sent_is_not_taken() -> None:
    played = PlaybackMap(7)
    send(played, "r", 0, 10)
    assert played.locate(played.timestamp) is None
    assert played.locate((played.timestamp + 5 * PACKET) % (1 << 32)) is None
    assert played.locate((7 - 40_000_000) % (1 << 32)) is None


def test_looking_ahead_never_passes_what_was_sent() -> None:
    played = PlaybackMap(7)
    start = send(played, "r", 0, 10)
    assert played.locate(start + 9 * PACKET, ahead=100 * PACKET) == ("r", 10 * PACKET)


def test_what_is_kept_is_bounded_however_long_the_call() -> None:
    played = PlaybackMap(7)
    rng = random.Random(1)
    for index in range(3000):
        send(played, f"r{index}", 0, 1)
        silence(played, rng.randint(1, 4))
    assert len(played._spans) <= KEPT // (2 * PACKET) + 2
    last = played.timestamp - PACKET
    found = played.locate(last % (1 << 32))
    assert found is not None
    assert found[0] == "r2999"
