"""`models.envelope`: every refusal, at every kind of border."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from codec.identity import CodecIdentity
from models.envelope import (
    TEXT,
    AfterLast,
    BadSpan,
    Border,
    Cancelled,
    ChecksumMismatch,
    DeadlineExpired,
    EdgeContract,
    MissingTerms,
    OutOfSequence,
    Payload,
    RemoteTerms,
    Retry,
    SessionTerms,
    StaleFence,
    TransferEnvelope,
    TransferRefused,
    Versions,
    WrongDtype,
    WrongKind,
    WrongLayout,
    WrongRequest,
    WrongShape,
    WrongTenant,
    WrongVersion,
    checksum_of,
)
from models.graph.shapes import Shape
from models.graph.states import Placement, StateKind
from models.registry import models
from sessions.core.fence import OUT_OF_BAND, Fence

CODEC = CodecIdentity("mimi", "1", 24_000, 1920, 8, 2048)
CODES = np.arange(16, dtype=np.int64).reshape(1, 2, 8)
FENCE = Fence("s", 1, 4)
EDGE = "talker.codes -> speaker.codes"
NOW = 100_000


@dataclass
class Crossing:
    """A border of one kind with an envelope and a payload that it admits."""

    contract: EdgeContract
    envelope: TransferEnvelope
    payload: Payload

    def border(self, **changes: Any) -> Border:
        return Border(self.contract, "r", "tenant", lambda: FENCE, **changes)

    def admit(self, *envelopes: TransferEnvelope, payload: Payload | None = None, now: int = NOW) -> Border:
        border = self.border()
        for envelope in envelopes:
            border.admit(envelope, self.payload if payload is None else payload, now=now)
        return border


def crossing(placement: Placement) -> Crossing:
    contract = EdgeContract(
        EDGE,
        StateKind.CODE,
        Shape.parse("B,F,Q"),
        frozenset({"int64"}),
        placement,
        Versions("m1", "t1", CODEC),
        {"Q": 8},
    )
    payload: Payload = CODES if placement is Placement.SAME_DEVICE else CODES.tobytes()
    envelope = TransferEnvelope(
        request="r",
        tenant="tenant",
        fence=FENCE,
        kind=StateKind.CODE,
        shape=(1, 2, 8),
        dtype="int64",
        start=0,
        end=2,
        sequence=0,
        owner="talker",
        versions=Versions("m1", "t1", CODEC),
        remote=RemoteTerms(checksum_of(CODES.tobytes()), NOW, Retry.AGAIN) if placement is Placement.REMOTE else None,
    )
    return Crossing(contract, envelope, payload)


@pytest.fixture(params=[Placement.SAME_DEVICE, Placement.SAME_HOST, Placement.REMOTE], ids=lambda p: p.value)
def at(request: pytest.FixtureRequest) -> Crossing:
    return crossing(request.param)


def test_what_is_right_passes_in_order(at: Crossing) -> None:
    border = at.admit(at.envelope, replace(at.envelope, sequence=1, start=2, end=4, last=True))
    assert border.consumed == 1


def test_nothing_is_acknowledged_before_something_came(at: Crossing) -> None:
    assert at.border().consumed is None


FAULTS: dict[str, tuple[dict[str, Any], type[TransferRefused], str]] = {
    "tenant": ({"tenant": "other"}, WrongTenant, "tenant"),
    "request": ({"request": "other"}, WrongRequest, "request"),
    "old epoch": ({"fence": Fence("s", 1, 3)}, StaleFence, "fence"),
    "old incarnation": ({"fence": Fence("s", 0, 4)}, StaleFence, "fence"),
    "an epoch that was never given": ({"fence": Fence("s", 1, 5)}, StaleFence, "fence"),
    "another session": ({"fence": Fence("other", 1, 4)}, StaleFence, "fence"),
    "kind": ({"kind": StateKind.TOKEN}, WrongKind, "kind"),
    "model version": ({"versions": Versions("m2", "t1", CODEC)}, WrongVersion, "model"),
    "tokenizer version": ({"versions": Versions("m1", "t2", CODEC)}, WrongVersion, "tokenizer"),
    "codec version": ({"versions": Versions("m1", "t1", replace(CODEC, version="2"))}, WrongVersion, "codec"),
    "codebooks": ({"versions": Versions("m1", "t1", CODEC.with_codebooks(4))}, WrongVersion, "codec"),
    "no version": ({"versions": Versions()}, WrongVersion, "model"),
    "codebooks in the shape": ({"shape": (1, 2, 16)}, WrongShape, "shape"),
    "axes": ({"shape": (2, 8)}, WrongShape, "shape"),
    "a negative size": ({"shape": (1, -2, 8)}, WrongShape, "shape"),
    "another length than the payload's": ({"shape": (1, 3, 8)}, WrongShape, "shape"),
    "dtype": ({"dtype": "int32"}, WrongDtype, "dtype"),
    "layout": ({"layout": "transposed"}, WrongLayout, "layout"),
    "no owner": ({"owner": ""}, WrongLayout, "owner"),
    "gap": ({"sequence": 1}, OutOfSequence, "sequence"),
    "before the first": ({"sequence": -1}, OutOfSequence, "sequence"),
    "span backwards": ({"start": 2, "end": 0}, BadSpan, "span"),
    "span before zero": ({"start": -1}, BadSpan, "span"),
    "span with a gap": ({"start": 1, "end": 3}, BadSpan, "span"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused_by_its_own_type_at_each_border(fault: str, at: Crossing) -> None:
    change, error, field = FAULTS[fault]
    border = at.border()
    with pytest.raises(error) as caught:
        border.admit(replace(at.envelope, **change), at.payload, now=NOW)
    assert caught.value.field == field
    assert caught.value.border == EDGE
    assert str(caught.value).startswith(f"{EDGE}: {field}: ")
    # Nothing has changed: what is right still passes.
    border.admit(at.envelope, at.payload, now=NOW)


def test_a_second_of_the_same_number_is_refused(at: Crossing) -> None:
    with pytest.raises(OutOfSequence, match="0 was there already; 1 is next"):
        at.admit(at.envelope, replace(at.envelope, start=2, end=4))


def test_a_range_that_does_not_follow_is_refused(at: Crossing) -> None:
    with pytest.raises(BadSpan, match="begins at 3, the one before it ended at 2"):
        at.admit(at.envelope, replace(at.envelope, sequence=1, start=3, end=5))


def test_nothing_comes_after_the_last(at: Crossing) -> None:
    with pytest.raises(AfterLast):
        at.admit(replace(at.envelope, last=True), replace(at.envelope, sequence=1, start=2, end=4))


def test_a_fence_that_moves_on_refuses_what_was_still_good_a_moment_ago(at: Crossing) -> None:
    holds = [FENCE]
    border = Border(at.contract, "r", "tenant", lambda: holds[0])
    border.admit(at.envelope, at.payload, now=NOW)
    holds[0] = Fence("s", 1, 5)
    with pytest.raises(StaleFence):
        border.admit(replace(at.envelope, sequence=1, start=2, end=4), at.payload, now=NOW)


def test_what_is_out_of_band_is_of_no_epoch(at: Crossing) -> None:
    at.admit(replace(at.envelope, fence=Fence("s", 1, OUT_OF_BAND)))


def test_another_tenant_learns_nothing_but_that(at: Crossing) -> None:
    wrong_in_everything = replace(
        at.envelope, tenant="other", request="x", fence=Fence("x", 0, 0), shape=(9,), dtype="x", sequence=7
    )
    with pytest.raises(WrongTenant):
        at.border().admit(wrong_in_everything, at.payload, now=NOW)


@pytest.mark.parametrize(
    ("payload", "error"),
    [(CODES[:, :1], WrongShape), (CODES.astype(np.int32), WrongDtype), ("text", WrongDtype), (3, WrongDtype)],
    ids=["shape", "dtype", "text", "no payload at all"],
)
def test_an_envelope_that_says_something_else_than_its_payload_is_refused(
    payload: Any, error: type[TransferRefused]
) -> None:
    with pytest.raises(error):
        crossing(Placement.SAME_DEVICE).admit(crossing(Placement.SAME_DEVICE).envelope, payload=payload)


@pytest.mark.parametrize("placement", [Placement.SAME_HOST, Placement.REMOTE])
def test_a_reference_does_not_leave_its_process(placement: Placement) -> None:
    at = crossing(placement)
    with pytest.raises(WrongDtype):
        at.admit(at.envelope, payload=CODES)


@pytest.mark.parametrize("placement", [Placement.SAME_HOST, Placement.REMOTE])
def test_bytes_that_are_too_few_or_too_many_are_refused(placement: Placement) -> None:
    at = crossing(placement)
    for payload in (CODES.tobytes()[:-1], CODES.tobytes() + b"\0"):
        with pytest.raises(WrongShape, match="bytes, not those of"):
            at.admit(at.envelope, payload=payload)


def test_a_device_that_cannot_be_read_by_reference_is_refused() -> None:
    at = crossing(Placement.SAME_DEVICE)
    with pytest.raises(WrongLayout) as caught:
        at.admit(replace(at.envelope, device="cuda:1"))
    assert caught.value.field == "device"
    crossing(Placement.SAME_HOST).admit(replace(crossing(Placement.SAME_HOST).envelope, device="cuda:1"))


# --- remote edges ---------------------------------------------------------------------------------------------------


def test_a_remote_transfer_needs_its_terms() -> None:
    at = crossing(Placement.REMOTE)
    with pytest.raises(MissingTerms, match="checksum, a deadline and a retry class"):
        at.admit(replace(at.envelope, remote=None))


def test_bytes_that_changed_on_their_way_are_refused() -> None:
    at = crossing(Placement.REMOTE)
    changed = bytearray(CODES.tobytes())
    changed[3] ^= 1
    with pytest.raises(ChecksumMismatch):
        at.admit(at.envelope, payload=bytes(changed))


def test_what_comes_after_its_deadline_is_refused() -> None:
    at = crossing(Placement.REMOTE)
    at.admit(at.envelope, now=NOW)
    with pytest.raises(DeadlineExpired, match=f"tick {NOW} has passed"):
        at.admit(at.envelope, now=NOW + 1)


# --- session state --------------------------------------------------------------------------------------------------


def session_state(**changes: Any) -> tuple[EdgeContract, TransferEnvelope, Payload]:
    contract = EdgeContract(
        "input.pcm -> ear.pcm", StateKind.SESSION, Shape.parse("S"), frozenset({"float32"}), Placement.SAME_DEVICE
    )
    envelope = replace(
        crossing(Placement.SAME_DEVICE).envelope,
        kind=StateKind.SESSION,
        shape=(4,),
        dtype="float32",
        versions=Versions(),
        session=SessionTerms("turn_1", 0, 3),
    )
    return contract, replace(envelope, **changes), np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"session": None}, MissingTerms),
        ({"session": SessionTerms("turn_1", -1, 3)}, MissingTerms),
        ({"session": SessionTerms("turn_1", 0, 2)}, Cancelled),
    ],
    ids=["no terms", "retention", "cancelled"],
)
def test_session_state_needs_turn_retention_and_the_generation_that_holds(
    change: dict[str, Any], error: type[TransferRefused]
) -> None:
    contract, envelope, payload = session_state(**change)
    with pytest.raises(error):
        Border(contract, "r", "tenant", lambda: FENCE, generation=lambda: 3).admit(envelope, payload)
    contract, envelope, payload = session_state()
    Border(contract, "r", "tenant", lambda: FENCE, generation=lambda: 3).admit(envelope, payload)


# --- text -----------------------------------------------------------------------------------------------------------


def text_edge() -> tuple[EdgeContract, TransferEnvelope]:
    contract = EdgeContract(
        "thinker.text -> talker.clauses", StateKind.TOKEN, Shape.parse("T"), frozenset({TEXT}), Placement.SAME_DEVICE
    )
    base = crossing(Placement.SAME_DEVICE).envelope
    return contract, replace(base, kind=StateKind.TOKEN, shape=(5,), dtype=TEXT, end=5, versions=Versions())


def test_text_is_counted_in_characters() -> None:
    contract, envelope = text_edge()
    border = Border(contract, "r", "tenant", lambda: FENCE)
    border.admit(envelope, "Größe")
    with pytest.raises(WrongShape, match="4 characters"):
        border.admit(replace(envelope, sequence=1, start=5, end=10), "word")


def test_text_under_another_dtype_is_refused() -> None:
    contract, envelope = text_edge()
    border = Border(replace(contract, dtypes=frozenset({"int64"})), "r", "tenant", lambda: FENCE)
    with pytest.raises(WrongDtype, match="the payload is text"):
        border.admit(replace(envelope, dtype="int64"), "Hello")


# --- contracts of a graph -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", models())
def test_every_edge_of_every_family_can_be_made_a_contract(name: str) -> None:
    graph = models()[name].graph
    for edge in graph.edges:
        contract = EdgeContract.of(graph, edge.name, frozenset({"float32"}))
        assert (contract.kind, contract.placement) == (graph.state(edge), edge.placement)


@pytest.mark.parametrize("attribute", ["tenant", "request", "sequence"])
def test_an_envelope_is_never_relabelled(attribute: str) -> None:
    relabel: Callable[[], None] = lambda: setattr(crossing(Placement.REMOTE).envelope, attribute, "x")  # noqa: E731
    with pytest.raises(AttributeError):
        relabel()
