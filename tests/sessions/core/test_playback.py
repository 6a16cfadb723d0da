from __future__ import annotations

from sessions.core.playback import STANDS, Ledger, Track


def admitted(*pieces: tuple[int, int], generated: int | None = None, acknowledged: bool = False) -> Track:
    """A track with pieces of (length, placed_at) admitted."""
    track = Track("resp_1", acknowledged)
    for length, placed_at in pieces:
        track.admit(length, placed_at)
    track.generated = track.admitted if generated is None else generated
    return track


# --- where playback is ---------------------------------------------------------------------------------------------


def test_neighbouring_frames_are_one_segment() -> None:
    track = admitted((960, 0), (960, 960), (960, 5000))
    assert [(s.start, s.length, s.placed_at) for s in track.segments] == [(0, 1920, 0), (1920, 960, 5000)]


def test_nothing_is_heard_before_it_is_placed() -> None:
    track = admitted((960, 1000))
    assert [track.heard(now) for now in (0, 1000, 1001, 1500, 1960, 9000)] == [0, 0, 1, 500, 960, 960]


def test_a_hold_moves_placement_and_never_content() -> None:
    track = admitted((960, 0), (960, 48_000))
    assert track.heard(20_000) == 960
    assert track.heard(48_480) == 960 + 480


def test_without_a_report_an_acknowledging_carrier_has_played_nothing() -> None:
    assert admitted((960, 0), acknowledged=True).heard(50_000) == 0


def test_a_report_is_carried_on_to_now_and_clamped_to_what_was_sent() -> None:
    track = admitted((9600, 0), acknowledged=True)
    assert track.report(2000, 3000)
    assert [track.heard(now) for now in (3000, 4000, 50_000)] == [2000, 3000, 9600]


def test_a_report_is_not_carried_through_a_pause() -> None:
    track = admitted((960, 0), (960, 48_000), acknowledged=True)
    assert track.report(960, 1000)
    assert track.heard(48_000) == 960
    assert track.heard(48_100) == 1060


def test_a_report_that_is_ahead_of_the_model_counts() -> None:
    track = admitted((9600, 5000))
    assert track.report(4800, 5100)
    assert track.heard(5100) == 4800


def test_a_report_beyond_what_was_sent_is_refused() -> None:
    track = admitted((960, 0))
    assert not track.report(961, 500)
    assert track.heard(500) == 500


def test_a_report_that_goes_back_is_refused() -> None:
    track = admitted((960, 0))
    assert track.report(500, 500)
    assert not track.report(499, 600)
    assert not track.report(-1, 600)
    assert track.reported == 500


def test_the_same_report_twice_is_taken_twice() -> None:
    track = admitted((960, 0))
    assert track.report(500, 500)
    assert track.report(500, 600)


def test_a_client_that_stands_still_has_heard_what_it_says_until_it_goes_on() -> None:
    track = admitted((9600, 0))
    assert track.report(1000, 1000)
    assert track.heard(1500) == 1500
    assert track.report(1000, 1000 + STANDS)
    assert track.heard(3000) == 1000
    assert track.report(1200, 3200)
    assert track.heard(3500) == 1500
    assert track.report(1200, 3200 + STANDS)
    assert track.freeze(9000) == 1200
    assert (track.played, track.cleared) == (1200, 8400)


def test_what_is_only_said_twice_is_no_standing_still() -> None:
    track = admitted((9600, 0))
    assert track.report(1000, 1000)
    assert track.report(1000, 1000 + STANDS - 1)
    assert track.heard(3000) == 3000


def test_what_stood_still_in_a_hold_is_carried_on_again_after_it() -> None:
    track = admitted((4800, 0))
    track.report(1000, 1500)
    track.hold(1600)
    track.report(1000, 1500 + STANDS)
    assert track.heard(3000) == 1000
    track.resume(3000)
    assert track.heard(3100) == 1100


# --- a carrier that paces, and the way to the ear ---------------------------------------------------------------------


def test_a_hold_of_a_carrier_that_paces_delays_all_that_it_had_not_released() -> None:
    ledger = Ledger(paced=True)
    track = ledger.open("r", False)
    ledger.place(track, 960, 0)
    ledger.place(track, 960, 0)
    ledger.hold(1000)
    assert [track.heard(now) for now in (900, 1000, 5000)] == [900, 1000, 1000]
    ledger.resume(6000)
    assert ledger.clock == 1920 + 5000
    assert [track.heard(now) for now in (6000, 6100, 7000)] == [1000, 1100, 1920]
    assert [(s.start, s.length, s.placed_at) for s in track.segments] == [(0, 1000, 0), (1000, 920, 6000)]


def test_a_hold_of_a_carrier_that_does_not_pace_calls_nothing_back() -> None:
    ledger = Ledger()
    track = ledger.open("r", False)
    ledger.place(track, 1920, 0)
    ledger.hold(1000)
    assert track.heard(5000) == 1920
    ledger.resume(6000)
    assert ledger.clock == 1920


def test_a_cut_in_a_hold_clears_what_had_not_been_released() -> None:
    ledger = Ledger(paced=True)
    track = ledger.open("r", False)
    ledger.place(track, 1920, 0)
    track.generated = 1920
    ledger.hold(500)
    assert track.freeze(9000) == 500
    ledger.cut(9000)
    assert (track.played, track.cleared, ledger.held_at) == (500, 1420, None)


def test_a_sample_is_heard_when_it_has_come_to_the_ear() -> None:
    ledger = Ledger(delay=3000)
    track = ledger.open("r", False)
    ledger.place(track, 960, 0)
    assert [track.heard(now) for now in (0, 3000, 3100, 9000)] == [0, 0, 100, 960]
    assert ledger.silent_from == 3960


def test_what_was_on_its_way_at_a_hold_still_comes_to_the_ear() -> None:
    ledger = Ledger(paced=True, delay=3000)
    track = ledger.open("r", False)
    ledger.place(track, 9600, 0)
    ledger.hold(4000)
    assert [track.heard(now) for now in (4000, 6999, 20_000)] == [1000, 3999, 4000]


def test_a_report_may_be_ahead_of_the_delay_and_never_of_the_release() -> None:
    ledger = Ledger(delay=3000)
    track = ledger.open("r", False)
    ledger.place(track, 9600, 0)
    assert track.report(1000, 2000)
    assert (track.heard(2500), track.heard_by) == (1500, "report")


# --- the four ends of a sample -------------------------------------------------------------------------------------


def test_a_cut_leaves_what_was_heard_played_and_the_rest_cleared() -> None:
    track = admitted((9600, 0), generated=20_000)
    assert track.freeze(4800) == 4800
    assert (track.played, track.cleared, track.unknown) == (4800, 15_200, 0)
    assert track.balanced


def test_the_position_is_frozen_at_the_cut() -> None:
    track = admitted((9600, 0))
    track.freeze(4800)
    assert track.heard(9000) == 4800
    assert not track.report(6000, 9000)
    assert track.freeze(9000) == 4800
    assert track.balanced


def test_what_a_lost_carrier_had_not_reported_is_unknown() -> None:
    track = admitted((9600, 0), generated=12_000, acknowledged=True)
    track.report(2000, 2000)
    assert track.freeze(5000, lost=True) == 2000
    assert (track.played, track.unknown, track.cleared) == (2000, 7600, 2400)
    assert track.balanced


def test_a_lost_carrier_that_never_reports_is_modelled() -> None:
    track = admitted((9600, 0))
    assert track.freeze(5000, lost=True) == 5000
    assert (track.played, track.unknown) == (5000, 4600)


def test_a_track_that_is_over_was_played() -> None:
    track = admitted((9600, 0), generated=9600)
    track.settle(9600)
    assert (track.played, track.cleared, track.unknown) == (9600, 0, 0)


def test_what_nobody_reported_as_played_is_unknown_at_the_end() -> None:
    track = admitted((9600, 0), generated=10_000, acknowledged=True)
    track.settle(99_000)
    assert (track.played, track.cleared, track.unknown) == (0, 400, 9600)
    assert track.balanced


def test_audio_after_the_cut_is_stale() -> None:
    track = admitted((9600, 0))
    track.freeze(4800)
    track.drop_stale(960)
    assert (track.generated, track.stale) == (10_560, 960)
    assert track.balanced


# --- the ledger ----------------------------------------------------------------------------------------------------


def test_frames_follow_one_another_on_the_session_timeline() -> None:
    ledger = Ledger()
    first, second = ledger.open("a", False), ledger.open("b", False)
    assert ledger.place(first, 960, 100) == 100
    assert ledger.place(first, 960, 200) == 1060
    assert ledger.place(second, 960, 300) == 2020
    assert ledger.place(second, 960, 9000) == 9000
    assert ledger.clock == 9960


def test_after_a_flush_nothing_is_ahead_of_playback() -> None:
    ledger = Ledger()
    ledger.place(ledger.open("a", False), 9600, 0)
    ledger.cut(4800)
    assert ledger.clock == 4800
    ledger.cut(9000)
    assert ledger.clock == 4800


def test_a_track_sounds_until_its_last_sample_is_played() -> None:
    ledger = Ledger()
    track = ledger.open("a", False)
    ledger.open("never sent", False)
    ledger.place(track, 9600, 0)
    assert ledger.sounding(9599) == [track]
    assert ledger.sounding(9600) == []
    track.freeze(4800)
    assert ledger.sounding(4900) == []


def test_folding_keeps_the_sums() -> None:
    ledger = Ledger()
    track = ledger.open("a", False)
    track.generated = 20_000
    ledger.place(track, 9600, 0)
    track.freeze(4800)
    track.drop_stale(960)
    ledger.fold("a")
    ledger.drop_stale(40)
    assert ledger.tracks == {}
    assert (ledger.folded, ledger.generated, ledger.played, ledger.cleared, ledger.stale, ledger.unknown) == (
        1,
        21_000,
        4800,
        15_200,
        1000,
        0,
    )
    assert ledger.balanced


def test_a_ledger_with_a_lost_sample_does_not_balance() -> None:
    ledger = Ledger()
    track = ledger.open("a", False)
    track.generated = 960
    track.closed = True
    balanced = [ledger.balanced]
    track.cleared = 960
    balanced.append(ledger.balanced)
    ledger.generated += 1
    balanced.append(ledger.balanced)
    assert balanced == [False, True, False]
