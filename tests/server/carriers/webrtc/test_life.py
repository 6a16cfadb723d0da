"""Whether a peer is still there, by its signs."""

from __future__ import annotations

from server.carriers.webrtc.life import CONNECT_WITHIN, GONE_AFTER, GONE_AFTER_QUIET, Life


def test_a_peer_that_never_connects_is_given_up_in_time() -> None:
    life = Life(100.0)
    life.sign(110.0)
    assert life.end(100.0 + CONNECT_WITHIN) is None
    assert life.end(100.1 + CONNECT_WITHIN) == "never_connected"


def test_a_steady_stream_that_ends_with_everything_else_was_cut() -> None:
    life = Life(0.0)
    life.connected(1.0)
    for tick in range(100):
        life.flow(1.0 + tick * 0.02)
    assert life.end(3.0 + GONE_AFTER - 0.1) is None
    assert life.end(3.0 + GONE_AFTER + 0.1) == "connection_lost"


def test_a_peer_that_is_only_quiet_is_kept_while_it_gives_signs() -> None:
    life = Life(0.0)
    life.connected(1.0)
    life.flow(2.0)
    for second in range(5, 200, 5):
        life.sign(float(second))
        assert life.end(second + GONE_AFTER + 0.5) is None
    assert life.end(195.0 + GONE_AFTER_QUIET + 0.1) == "connection_lost"


def test_media_that_comes_again_counts_as_steady_again() -> None:
    life = Life(0.0)
    life.connected(1.0)
    life.sign(20.0)
    life.flow(21.0)
    assert life.end(21.0 + GONE_AFTER + 0.1) == "connection_lost"


def test_a_connection_begins_once() -> None:
    life = Life(0.0)
    life.connected(1.0)
    life.connected(50.0)
    assert life.connected_at == 1.0
    assert life.end(50.0) == "connection_lost"
