"""`models.plan.edges`: the size of what flows, and the least that moving it takes."""

from __future__ import annotations

import pytest

from models.graph.states import StateKind
from models.plan.devices import device
from models.plan.edges import edges
from models.plan.families import with_symbols

from .sizes import published


def test_a_frame_of_codes_and_a_hidden_state_have_the_sizes_of_their_shapes() -> None:
    found = published("moshi")
    known = {edge.name: edge for edge in edges(with_symbols(found).graph, found.geometry, device("h200"))}
    codes, hidden = known["depth.codes -> mimi_decoder.codes"], known["temporal.hidden -> depth.hidden"]
    assert codes.payload is not None
    assert hidden.payload is not None
    # Eight int64 codes; 4,096 numbers of two bytes.
    assert (codes.payload.value, hidden.payload.value) == (64, 8192)
    assert codes.rate is not None
    assert codes.rate.value == 12.5
    assert codes.crosses
    assert not hidden.crosses
    assert hidden.transfers["host"].value == pytest.approx(8192 / 64e9)


def test_keys_and_values_are_those_of_a_whole_session_and_take_as_long_over_every_link() -> None:
    found = published("qwen3-omni")
    where = device("l40s")
    known = {edge.name: edge for edge in edges(with_symbols(found).graph, found.geometry, where)}
    thinker = known["thinker.kv -> thinker.past"]
    assert thinker.state is StateKind.KV
    assert thinker.payload is not None
    held = next(part for part in found.geometry.parts if part.name == "thinker").attention[0]
    assert thinker.payload.value == held.bytes
    assert set(thinker.transfers) == {"host", "network"}
    for kind, seconds in thinker.transfers.items():
        assert seconds.value == pytest.approx(held.bytes / where.links[kind].value)


def test_tokens_follow_nobodys_clock_and_what_no_source_states_stays_undetermined() -> None:
    found = published("qwen3-omni")
    known = {edge.name: edge for edge in edges(with_symbols(found).graph, found.geometry, device("h200"))}
    assert known["thinker.text -> talker.text"].rate is None
    pictures = known["input.pictures -> vision_encoder.in"]
    assert pictures.payload is None
    assert pictures.unit == "undetermined: no source states H, W"
    assert pictures.transfers == {}


def test_every_edge_has_a_placement_and_a_recovery() -> None:
    for name in ("moshi", "qwen3-omni"):
        found = published(name)
        graph = with_symbols(found).graph
        planned_edges = edges(graph, found.geometry, device("h200"))
        assert [edge.name for edge in planned_edges] == [edge.name for edge in graph.edges]
        assert all(edge.recovery for edge in planned_edges)
