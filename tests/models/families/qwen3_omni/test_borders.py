"""The edges between the stages: each refuses what is not for it, and the answer that it was for ends alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from codec.identity import CodecIdentity
from models.envelope import (
    AfterLast,
    BadSpan,
    OutOfSequence,
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
)
from models.families.qwen3_omni import tiny
from models.families.qwen3_omni.borders import Contracts, OutsideVocabulary, Passage, Passages
from models.families.qwen3_omni.omni import Omni
from models.families.qwen3_omni.prompt import Features
from models.graph.states import StateKind
from sessions.core.events import EngineDone, EngineFailed
from sessions.core.fence import OUT_OF_BAND, Fence
from tests.models.families.qwen3_omni.scene import Scene, png, user
from tests.models.families.qwen3_omni.test_engine import REF, seen

FENCE = Fence("s", 1, 4)
EDGES = ("audio", "image", "text", "hidden", "codes")


@pytest.fixture(scope="module")
def omni() -> Omni:
    torch.set_num_threads(1)
    return tiny.random()


@dataclass
class Place:
    """The edges of one answer, and a payload that each of them takes."""

    omni: Omni
    holds: Fence = FENCE

    def __post_init__(self) -> None:
        self.contracts = Contracts.of(self.omni)
        self.passages = Passages(self.contracts, "r", "tenant", FENCE, lambda: self.holds)

    def passage(self, edge: str) -> Passage:
        found = getattr(self.passages, edge)
        assert isinstance(found, Passage)
        return found

    def payload(self, edge: str) -> Tensor:
        width = self.omni.net.thinker.config.text_config.hidden_size
        match edge:
            case "text":
                return torch.tensor([[104]])
            case "codes":
                return torch.zeros(1, 2, tiny.CODEBOOKS, dtype=torch.long)
            case _:
                return torch.zeros(1, 3, width)


def place_of(omni: Omni, edge: str, wrong: Callable[[Tensor], Tensor]) -> Passage:
    """An edge on which a payload waits under the envelope of another one."""
    place = Place(omni)
    passage = place.passage(edge)
    passage.send(place.payload(edge))
    envelope, payload = passage._waiting.pop()
    passage._waiting.append((envelope, wrong(payload)))
    return passage


def altered(passage: Passage, **changes: Any) -> None:
    """Change the envelope that waits last."""
    envelope, payload = passage._waiting.pop()
    passage._waiting.append((replace(envelope, **changes), payload))


@pytest.mark.parametrize("edge", EDGES)
def test_what_was_made_for_an_answer_passes_in_order(omni: Omni, edge: str) -> None:
    place = Place(omni)
    passage, payload = place.passage(edge), place.payload(edge)
    for _ in range(3):
        passage.send(payload)
    assert passage.waiting == 3
    assert all(passage.take() is payload for _ in range(3))
    assert passage.waiting == 0


def versions_of(edge: str) -> Versions:
    return Versions(codec=CodecIdentity("code2wav", "other", 24_000, 1920, 4, 64)) if edge == "codes" else Versions("x")


REFUSALS: dict[str, tuple[type[TransferRefused], Callable[[str], dict[str, Any]]]] = {
    "of another tenant": (WrongTenant, lambda edge: {"tenant": "other"}),
    "of another request": (WrongRequest, lambda edge: {"request": "q"}),
    "of an older epoch": (StaleFence, lambda edge: {"fence": Fence("s", 1, 3)}),
    "of an older owner": (StaleFence, lambda edge: {"fence": Fence("s", 0, 4)}),
    "of another session": (StaleFence, lambda edge: {"fence": Fence("t", 1, 4)}),
    "of another kind": (WrongKind, lambda edge: {"kind": StateKind.LATENT}),
    "of another version": (WrongVersion, lambda edge: {"versions": versions_of(edge)}),
    "of no version": (WrongVersion, lambda edge: {"versions": Versions()}),
    "in another dtype": (WrongDtype, lambda edge: {"dtype": "float64"}),
    "with an axis too many": (WrongShape, lambda edge: {"shape": (1, 1, 1, 1)}),
    "for several sequences": (WrongShape, lambda edge: {"shape": (2, 1) if edge == "text" else (2, 1, 64)}),
    "laid out otherwise": (WrongLayout, lambda edge: {"layout": "strided"}),
    "on a device that it cannot read": (WrongLayout, lambda edge: {"device": "cuda:7"}),
    "that nobody frees": (WrongLayout, lambda edge: {"owner": ""}),
    "that came before": (OutOfSequence, lambda edge: {"sequence": 0}),
    "behind a gap": (OutOfSequence, lambda edge: {"sequence": 2}),
    "from where something was already": (BadSpan, lambda edge: {"start": 0}),
    "of no range": (BadSpan, lambda edge: {"end": 0}),
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("what", REFUSALS)
def test_an_edge_refuses_what_is(omni: Omni, edge: str, what: str) -> None:
    error, changes = REFUSALS[what]
    place = Place(omni)
    passage = place.passage(edge)
    passage.send(place.payload(edge))
    passage.take()
    passage.send(place.payload(edge))
    altered(passage, **changes(edge))
    with pytest.raises(error) as raised:
        passage.take()
    assert raised.type is error
    assert raised.value.border == getattr(place.contracts, edge).edge.name
    assert passage.waiting == 0


@pytest.mark.parametrize("edge", EDGES)
def test_an_edge_refuses_what_comes_after_the_last(omni: Omni, edge: str) -> None:
    place = Place(omni)
    passage = place.passage(edge)
    passage.send(place.payload(edge))
    altered(passage, last=True)
    passage.take()
    passage.send(place.payload(edge))
    with pytest.raises(AfterLast):
        passage.take()


@pytest.mark.parametrize("edge", EDGES)
def test_an_envelope_that_says_something_else_than_its_payload_is_refused(omni: Omni, edge: str) -> None:
    other = place_of(omni, edge, lambda payload: payload.to(torch.float16))
    with pytest.raises(WrongDtype):
        other.take()
    empty = place_of(omni, edge, lambda payload: payload[:, :0])
    with pytest.raises(WrongShape):
        empty.take()


@pytest.mark.parametrize("edge", EDGES)
def test_what_an_answer_made_before_it_was_cut_is_stale_and_what_is_out_of_band_is_not(omni: Omni, edge: str) -> None:
    place = Place(omni)
    passage = place.passage(edge)
    passage.send(place.payload(edge))
    place.holds = Fence("s", 1, 5)
    with pytest.raises(StaleFence):
        passage.take()
    passage.send(place.payload(edge))
    altered(passage, fence=Fence("s", 1, OUT_OF_BAND), sequence=0, start=0, end=place.payload(edge).shape[1])
    passage.take()


@pytest.mark.parametrize(("edge", "value"), [("text", -1), ("text", 100_000), ("codes", -1), ("codes", tiny.ENTRIES)])
def test_an_index_that_the_next_stage_has_no_entry_for_is_refused(omni: Omni, edge: str, value: int) -> None:
    place = Place(omni)
    passage, payload = place.passage(edge), place.payload(edge)
    payload[0, 0] = value
    passage.send(payload)
    with pytest.raises(OutsideVocabulary, match="use parts of one release"):
        passage.take()


def test_features_pass_by_what_they_were_made_for_and_not_by_who_asks(omni: Omni) -> None:
    embeds = torch.zeros(3, omni.net.thinker.config.text_config.hidden_size)
    mine = Features("audio", "a", embeds, tenant="tenant", version=omni.version)
    Place(omni).passages.features(mine)
    with pytest.raises(WrongTenant):
        Place(omni).passages.features(replace(mine, tenant="other"))
    with pytest.raises(WrongVersion):
        Place(omni).passages.features(replace(mine, version="an encoder before"))
    with pytest.raises(WrongShape):
        Place(omni).passages.features(replace(mine, kind="image", deep=(embeds[:2],)))


def test_a_talker_of_another_release_is_refused_by_its_codec(omni: Omni) -> None:
    other = replace(
        Contracts.of(omni).codes, versions=Versions(codec=CodecIdentity("code2wav", "x", 24_000, 1920, 8, 64))
    )
    passage = Passage(other, "r", "tenant", FENCE, lambda: FENCE)
    passage.send(torch.zeros(1, 1, tiny.CODEBOOKS, dtype=torch.long))
    with pytest.raises(WrongVersion):
        passage.take()


# --- in the engine ---------------------------------------------------------------------------------------------------


def spoil(envelope: TransferEnvelope) -> TransferEnvelope:
    return replace(envelope, tenant="somebody else")


@pytest.mark.parametrize("edge", ["text", "hidden", "codes"])
def test_a_refusal_ends_one_answer_by_name_and_neighbour_and_session_go_on(
    omni: Omni, edge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(omni)
    for session in ("s", "t"):
        scene.open(session)
        scene.ask(session, "r", user(f"hello {session}"))
    send = Passage.send

    def tampered(self: Passage, payload: Tensor, **given: Any) -> None:
        send(self, payload, **given)
        if self is victim:
            self._waiting[-1] = (spoil(self._waiting[-1][0]), self._waiting[-1][1])

    (reply,) = [one for one in scene.engine._live if one.request.fence.session == "s"]
    victim = getattr(reply.passages, edge)
    monkeypatch.setattr(Passage, "send", tampered)
    scene.run()
    (failed,) = scene.of("s", EngineFailed)
    assert isinstance(failed, EngineFailed)
    assert failed.code == "transfer_refused"
    assert "tenant" in failed.message
    assert scene.engine.counters["transfers_refused"] == 1
    assert scene.of("t", EngineDone)
    scene.ask("s", "again", user("hello"))
    scene.run()
    assert scene.of("s", EngineDone)
    assert scene.engine.active == scene.engine.rows_busy == 0


def test_features_of_another_tenant_in_the_cache_do_not_reach_the_thinker(
    omni: Omni, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(omni)
    for session, tenant in (("s", "one"), ("t", "two")):
        scene.open(session, tenant)
        scene.engine.see(session, REF, png(96, 64))
    scene.ask("s", "r", seen(), modality="text")
    scene.run()
    find = scene.engine._encoders.find
    # A cache that has lost its tenants.
    monkeypatch.setattr(scene.engine._encoders, "find", lambda tenant, kind, name: find("one", kind, name))
    scene.ask("t", "r", seen(), modality="text")
    scene.run()
    (failed,) = scene.of("t", EngineFailed)
    assert isinstance(failed, EngineFailed)
    assert failed.code == "transfer_refused"
    assert "tenant" in failed.message


def test_what_is_on_its_way_when_the_epoch_moves_is_dropped_and_counted(
    omni: Omni, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(omni)
    scene.open("s")
    scene.ask("s", "r", user("hello"))
    scene.engine.step()
    take = Passage.take

    def cut_first(self: Passage) -> Tensor:
        scene.engine.advance(Fence("s", 1, 1))
        return take(self)

    monkeypatch.setattr(Passage, "take", cut_first)
    scene.engine.step()
    told = len(scene.events["s"])
    scene.run()
    assert len(scene.events["s"]) == told
    assert scene.engine.counters["transfers_stale"] >= 1
    assert scene.engine.counters.get("transfers_refused", 0) == 0
    assert scene.engine.active == scene.engine.rows_busy == 0
