"""One planted fault for each kind of mistake that the design names: the state machine catches every one.

A checker that finds nothing proves nothing. Each fault here is the core with one thing done wrong. That the sound core
passes many times the same budget, of the same steps to begin with, is test_invariants.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sessions.core.asides import Asides
from sessions.core.commands import Commands
from sessions.core.conversation import Item
from sessions.core.effects import FlushCarrier, Notify, ReleaseTrack
from sessions.core.events import EngineAudio, ItemCreate, OwnershipTaken, ResponseCancel
from sessions.core.fence import Fence
from sessions.core.input import InputTrack
from sessions.core.listening import Listening
from sessions.core.notices import SpeechStarted
from sessions.core.playback import Ledger, Track
from sessions.core.records import Plain
from sessions.core.session import Session
from sessions.core.speaking import Speaking
from sessions.core.state import Aside, State
from sessions.core.timeline import Span, Ticks, from_ms

from .conftest import Publish
from .driver import Spinning
from .machine import Tally, explore
from .violations import Violation

BUDGET = 25_000
"""Steps within which a fault must be caught; measured: within 9,300, most of them within 1,000."""

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Fault:
    """`invariants`: what may be found broken, by the names of the checker."""

    name: str
    invariants: frozenset[str]
    plant: Plant


FAULTS: list[Fault] = []


def fault(*invariants: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        FAULTS.append(Fault(plant.__name__, frozenset(invariants), plant))
        return plant

    return add


# --- the epoch's edge (1, 5, 7) ------------------------------------------------------------------------------------


@fault("1")
def the_carrier_is_not_told_to_flush(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking.cut

    def cut(self: Speaking, *arguments: Any, **named: Any) -> None:
        sound(self, *arguments, **named)
        self._out[:] = [effect for effect in self._out if not isinstance(effect, FlushCarrier)]

    patch.setattr(Speaking, "cut", cut)


@fault("7", "3", "2")
def late_audio_passes_whatever_its_epoch(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking.audio

    def audio(self: Speaking, event: EngineAudio) -> None:
        active = self._s.active
        if active is not None and active.id == event.response:
            event = replace(event, fence=active.fence)
        sound(self, event)

    patch.setattr(Speaking, "audio", audio)


@fault("7", "3", "2")
def late_audio_is_adopted_by_the_next_response(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking.audio

    def audio(self: Speaking, event: EngineAudio) -> None:
        active = self._s.active
        if active is not None and active.id != event.response:
            start = self._s.ledger.tracks[active.id].generated
            event = EngineAudio(active.fence, active.id, start, start + event.end - event.start)
        sound(self, event)

    patch.setattr(Speaking, "audio", audio)


@fault("7", "1", "2", "3")
def an_old_incarnation_is_not_refused(patch: pytest.MonkeyPatch) -> None:
    def equal(self: Fence, other: object) -> bool:
        return isinstance(other, Fence) and (self.session, self.epoch) == (other.session, other.epoch)

    sound = Speaking.audio

    def audio(self: Speaking, event: EngineAudio) -> None:
        active = self._s.active
        if active is not None and active.id == event.response and equal(active.fence, event.fence):
            event = replace(event, fence=active.fence)
        sound(self, event)

    patch.setattr(Speaking, "audio", audio)


@fault("5")
def a_late_cancel_begins_another_epoch(patch: pytest.MonkeyPatch) -> None:
    def cancel(self: Commands, event: ResponseCancel) -> None:
        self.stop("client_cancel")

    patch.setattr(Commands, "cancel_response", cancel)


@fault("5")
def an_interruption_of_nothing_begins_an_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Listening, "_agent", lambda self: "busy")


@fault("1")
def a_detach_begins_no_epoch(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking.cut

    def cut(self: Speaking, cause: Any, *arguments: Any, **named: Any) -> None:
        if cause != "detached":
            sound(self, cause, *arguments, **named)

    patch.setattr(Speaking, "cut", cut)


# --- the gate (1, 3) -----------------------------------------------------------------------------------------------


def gate(patch: pytest.MonkeyPatch, open_it: Callable[[State], Callable[[], None]]) -> None:
    """The gate, looking at a state in which something is not as it is."""
    sound = Speaking.gated.fget  # type: ignore[attr-defined]

    def gated(self: Speaking) -> bool:
        undo = open_it(self._s)
        try:
            return bool(sound(self))
        finally:
            undo()

    patch.setattr(Speaking, "gated", property(gated))


@fault("hold")
def the_pump_goes_on_during_a_hold(patch: pytest.MonkeyPatch) -> None:
    def open_it(state: State) -> Callable[[], None]:
        held, state.held = state.held, False
        return lambda: setattr(state, "held", held)

    gate(patch, open_it)


@fault("floor")
def the_agent_begins_while_the_user_has_the_floor(patch: pytest.MonkeyPatch) -> None:
    def open_it(state: State) -> Callable[[], None]:
        phase, state.policy.phase = state.policy.phase, "idle"
        return lambda: setattr(state.policy, "phase", phase)

    gate(patch, open_it)


@fault("1")
def a_peer_that_does_not_read_is_sent_to(patch: pytest.MonkeyPatch) -> None:
    def open_it(state: State) -> Callable[[], None]:
        blocked, state.blocked = state.blocked, False
        return lambda: setattr(state, "blocked", blocked)

    gate(patch, open_it)


@fault("hold")
def speech_is_told_of_at_the_hold(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking.hold

    def hold(self: Speaking) -> None:
        sound(self)
        self._out.append(Notify(SpeechStarted("item_early", self._s.now)))

    patch.setattr(Speaking, "hold", hold)


@fault("3")
def the_lead_is_ignored(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking._admit

    def admit(self: Speaking, *arguments: Any) -> None:
        config = self._s.config
        self._s.config = replace(config, lead=from_ms(2000))
        sound(self, *arguments)
        self._s.config = config

    patch.setattr(Speaking, "_admit", admit)


@fault("3", "2")
def a_frame_is_sent_again_after_a_hold(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking.release

    def release(self: Speaking) -> None:
        active = self._s.active
        track = self._s.ledger.tracks.get(active.id) if active is not None else None
        if self._s.held and track is not None and track.admitted >= self._s.config.frame:
            track.admitted -= self._s.config.frame
        sound(self)

    patch.setattr(Speaking, "release", release)


@fault("3", "2")
def a_frame_is_lost_in_a_hold(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking.release

    def release(self: Speaking) -> None:
        active = self._s.active
        track = self._s.ledger.tracks.get(active.id) if active is not None else None
        if self._s.held and track is not None and track.generated - track.admitted > self._s.config.frame:
            track.admitted += self._s.config.frame
        sound(self)

    patch.setattr(Speaking, "release", release)


@fault("3")
def a_sequence_number_is_left_out(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking.cut

    def cut(self: Speaking, *arguments: Any, **named: Any) -> None:
        sound(self, *arguments, **named)
        self._s.sequence += 1

    patch.setattr(Speaking, "cut", cut)


@fault("alive")
def nobody_wakes_the_pump(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Speaking, "_wake", lambda self, due: setattr(self._s, "pump_due", due))


# --- playback and the ledger (2, 3) --------------------------------------------------------------------------------


@fault("3", "4")
def what_was_sent_counts_as_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Track, "heard", lambda self, now: self.played if self.closed else self.admitted)


@fault("3")
def a_report_beyond_what_was_sent_is_believed(patch: pytest.MonkeyPatch) -> None:
    def report(self: Track, position: Ticks, now: Ticks) -> bool:
        self.reported, self.reported_at = position, now
        return True

    patch.setattr(Track, "report", report)


@fault("3", "4")
def a_report_is_carried_through_a_pause(patch: pytest.MonkeyPatch) -> None:
    sound = Track.heard

    def heard(self: Track, now: Ticks) -> Ticks:
        if self.closed or self.reported_at is None:
            return sound(self, now)
        return min(self.admitted, self.reported + now - self.reported_at)

    patch.setattr(Track, "heard", heard)


@fault("2")
def what_was_cleared_is_not_booked(patch: pytest.MonkeyPatch) -> None:
    sound = Ledger.fold

    def fold(self: Ledger, response: str) -> None:
        self.tracks[response].cleared = 0
        sound(self, response)

    patch.setattr(Ledger, "fold", fold)


@fault("2", "8")
def a_cancelled_track_is_never_released(patch: pytest.MonkeyPatch) -> None:
    def discard(self: Speaking, source: str, base: Ticks, track: Track) -> None:
        self._s.ledger.fold(track.response)

    patch.setattr(Speaking, "_discard", discard)


@fault("3")
def a_gap_in_the_input_is_not_concealed(patch: pytest.MonkeyPatch) -> None:
    sound = InputTrack.arrive

    def arrive(self: InputTrack, start: Ticks, end: Ticks, concealed: bool, now: Ticks) -> Span | None:
        new = sound(self, start, end, concealed, now)
        return None if new is None else Span(max(new.start, start), end)

    patch.setattr(InputTrack, "arrive", arrive)


# --- history (4) ---------------------------------------------------------------------------------------------------


@fault("4")
def the_history_keeps_what_was_not_heard(patch: pytest.MonkeyPatch) -> None:
    def cut(self: Item, heard: Ticks) -> None:
        self.heard = heard if self.heard is None else min(self.heard, heard)

    patch.setattr(Item, "cut", cut)


@fault("4")
def a_word_counts_when_it_has_only_begun(patch: pytest.MonkeyPatch) -> None:
    def cut(self: Item, heard: Ticks) -> None:
        self.heard = limit = heard if self.heard is None else min(self.heard, heard)
        self.words = [word for word in self.words if word.start < limit]
        self.text = "".join(word.text for word in self.words).strip()

    patch.setattr(Item, "cut", cut)


@fault("4")
def words_that_were_heard_are_lost_by_a_cut(patch: pytest.MonkeyPatch) -> None:
    def cut(self: Item, heard: Ticks) -> None:
        self.heard = heard if self.heard is None else min(self.heard, heard)
        self.words.clear()
        self.text = ""

    patch.setattr(Item, "cut", cut)


# --- the same again, and the end (6, 8) ----------------------------------------------------------------------------


@fault("6")
def ids_depend_on_what_happened_elsewhere(patch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    patch.setattr(State, "fresh_id", lambda self, prefix: f"{prefix}_{next(numbers)}")


@fault("6", "3", "hold")
def a_restored_session_has_forgotten_its_place(patch: pytest.MonkeyPatch) -> None:
    sound = Session.snapshot

    def snapshot(self: Session) -> Plain:
        plain = sound(self)
        assert isinstance(plain, dict)
        plain.pop("sequence", None)
        return plain

    patch.setattr(Session, "snapshot", snapshot)


@fault("8")
def a_tool_is_answered_twice(patch: pytest.MonkeyPatch) -> None:
    sound = Commands.create_item

    def create(self: Commands, event: ItemCreate) -> None:
        conversation = self._s.conversation
        if event.kind == "function_call_output" and event.call in conversation.answered_calls:
            conversation.answered_calls.remove(event.call)
            conversation.open_calls.append(event.call)
        sound(self, event)

    patch.setattr(Commands, "create_item", create)


@fault("8")
def perception_owes_answers_after_the_close(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Listening, "close", Listening.forget)


@fault("8")
def a_closed_session_goes_on(patch: pytest.MonkeyPatch) -> None:
    sound = Session._end

    def end(self: Session, reason: str, lost: bool) -> None:
        sound(self, reason, lost)
        self._state.closed = False

    patch.setattr(Session, "_end", end)


# --- outside the conversation, and silence -------------------------------------------------------------------------


@fault("5")
def an_interruption_ends_what_is_outside_the_conversation(patch: pytest.MonkeyPatch) -> None:
    sound = Speaking.cut

    def cut(self: Speaking, *arguments: Any, **named: Any) -> None:
        sound(self, *arguments, **named)
        Asides(self._s, self._out).close()

    patch.setattr(Speaking, "cut", cut)


@fault("3")
def what_is_outside_the_conversation_counts_its_own_frames(patch: pytest.MonkeyPatch) -> None:
    sound = Asides._let_out

    def let_out(self: Asides, aside: Aside) -> None:
        before = self._s.sequence
        sound(self, aside)
        self._s.sequence = before

    patch.setattr(Asides, "_let_out", let_out)


@fault("1")
def what_is_outside_the_conversation_is_sent_to_a_peer_that_does_not_read(patch: pytest.MonkeyPatch) -> None:
    sound = Asides._let_out

    def let_out(self: Asides, aside: Aside) -> None:
        blocked, self._s.blocked = self._s.blocked, False
        sound(self, aside)
        self._s.blocked = blocked

    patch.setattr(Asides, "_let_out", let_out)


@fault("alive")
def nobody_goes_on_with_what_waited_for_the_peer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Asides, "pump", lambda self: None)


@fault("4", "3")
def what_is_outside_the_conversation_is_put_into_it(patch: pytest.MonkeyPatch) -> None:
    sound = Asides._open

    def open_item(self: Asides, aside: Aside, item: Item) -> None:
        sound(self, aside, item)
        self._s.conversation.append(item)

    patch.setattr(Asides, "_open", open_item)


@fault("1", "4", "8")
def it_belongs_to_the_epoch_in_which_it_was_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("sessions.core.asides.OUT_OF_BAND", 0)


@fault("8")
def its_track_is_never_released(patch: pytest.MonkeyPatch) -> None:
    sound = Asides._close

    def close(self: Asides, *arguments: Any, **named: Any) -> None:
        sound(self, *arguments, **named)
        self._out[:] = [effect for effect in self._out if not isinstance(effect, ReleaseTrack)]

    patch.setattr(Asides, "_close", close)


@fault("8")
def it_outlives_the_session(patch: pytest.MonkeyPatch) -> None:
    sound = Session._end

    def end(self: Session, reason: str, lost: bool) -> None:
        patch.setattr(Asides, "close", lambda self: None)
        sound(self, reason, lost)

    patch.setattr(Session, "_end", end)


@fault("5")
def silence_counts_from_the_end_of_the_words_and_not_of_the_playback(patch: pytest.MonkeyPatch) -> None:
    sound = Listening.rest

    def rest(self: Listening) -> None:
        sounding, self._s.sounding = self._s.sounding, []
        sound(self)
        self._s.sounding = sounding

    patch.setattr(Listening, "rest", rest)


@fault("alive")
def silence_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Listening, "idle", lambda self: None)


# --- one carrier after another ---------------------------------------------------------------------------------------


@fault("1")
def a_carrier_that_takes_the_place_of_another_is_given_the_old_tail(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "_part", lambda self: None)


@fault("alive")
def a_session_waits_for_ever_for_another_carrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "_left_alone", lambda self: None)


@fault("3")
def a_hold_of_a_carrier_that_paces_delays_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "hold", lambda self, now: None)


@fault("3", "4")
def what_is_on_its_way_to_the_ear_counts_as_heard(patch: pytest.MonkeyPatch) -> None:
    sound = Ledger.open

    def open_track(self: Ledger, response: str, acknowledged: bool) -> Track:
        track = sound(self, response, acknowledged)
        track.delay = 0
        return track

    patch.setattr(Ledger, "open", open_track)


# --- one owner after another -----------------------------------------------------------------------------------------


@fault("1", "2", "3", "7", "8")
def a_takeover_goes_on_with_what_the_former_owner_was_saying(patch: pytest.MonkeyPatch) -> None:
    sound = Session._ownership_taken

    def taken(self: Session, event: OwnershipTaken) -> None:
        part = self._part
        self._part = lambda: None  # type: ignore[method-assign]
        sound(self, event)
        self._part = part  # type: ignore[method-assign]

    patch.setattr(Session, "_ownership_taken", taken)


@fault("7", "3")
def a_claim_that_is_not_newer_is_heeded(patch: pytest.MonkeyPatch) -> None:
    sound = Session._ownership_taken

    def taken(self: Session, event: OwnershipTaken) -> None:
        self._state.incarnation = event.incarnation - 1
        sound(self, event)

    patch.setattr(Session, "_ownership_taken", taken)


@fault("alive", "5", "8")
def the_words_that_a_former_owner_was_asked_for_are_awaited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Listening, "abandon", lambda self: None)


@fault("7", "1", "3")
def a_new_owner_keeps_the_incarnation(patch: pytest.MonkeyPatch) -> None:
    sound = Session._ownership_taken

    def taken(self: Session, event: OwnershipTaken) -> None:
        before = self._state.incarnation
        sound(self, event)
        self._state.incarnation = before

    patch.setattr(Session, "_ownership_taken", taken)


# -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planted", FAULTS, ids=lambda planted: planted.name)
def test_a_planted_fault_is_caught(planted: Fault, monkeypatch: pytest.MonkeyPatch, publish: Publish) -> None:
    planted.plant(monkeypatch)
    tally = Tally()
    with pytest.raises((Violation, Spinning)) as caught:
        explore(BUDGET, shrink=False, tally=tally)
    found = getattr(caught.value, "invariant", "alive")
    publish(f"planted fault {planted.name}: caught by invariant {found} within {tally.steps:,} steps")
    assert found in planted.invariants, str(caught.value)
