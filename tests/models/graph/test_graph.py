"""`models.graph.graph`: the four questions, and variations of one graph."""

from __future__ import annotations

import pytest

from models.graph.parts import Batching, GraphError, Medium, Readiness
from models.graph.states import Agreement, Placement, StateKind

from .graphs import speaking

GRAPH = speaking()


def test_each_node_says_by_what_it_makes_batches() -> None:
    assert GRAPH.batching("ear") == (Batching.MEDIA_LENGTH,)
    assert GRAPH.batching("thinker") == (Batching.SEQUENCES,)
    assert GRAPH.batching("speaker") == (Batching.CHUNK_DEADLINE,)
    assert GRAPH.batching("microphone") == ()


def test_edges_that_leave_the_device_are_known() -> None:
    assert [edge.name for edge in GRAPH.crossings()] == [
        "microphone.audio -> ear.audio",
        "thinker.text -> talker.text",
        "talker.codes -> speaker.codes",
    ]
    assert [edge.target for edge in GRAPH.crossings(beyond=Placement.SAME_HOST)] == ["speaker.codes"]


def test_only_what_is_kept_for_others_may_serve_again() -> None:
    features = GRAPH.reuse(GRAPH.edge("ear.features -> thinker.heard"))
    assert features.rule is not None
    assert features.rule.agreements is not None
    assert Agreement.ENCODER in features.rule.agreements
    assert GRAPH.reuse(GRAPH.edge("thinker.text -> talker.text")).once


def test_each_stream_says_when_it_may_be_delivered() -> None:
    [audio] = GRAPH.delivery(Medium.AUDIO)
    assert (audio.ready, audio.delay_frames) == (Readiness.EACH_FRAME, 1)
    assert GRAPH.delivery(Medium.TEXT)[0].ready is Readiness.EACH_TOKEN
    assert GRAPH.delivery(Medium.IMAGE) == ()


def test_what_the_checkpoint_states_is_put_into_shapes() -> None:
    edge = GRAPH.edge("talker.codes -> speaker.codes")
    assert str(GRAPH.shape(edge)) == "B,F,8"
    assert GRAPH.state(edge) is StateKind.CODE


def test_another_deployment_of_the_same_model_is_checked_too() -> None:
    far = GRAPH.placed({"ear.features -> thinker.heard": Placement.REMOTE})
    assert len(far.crossings()) == 4
    with pytest.raises(GraphError, match="kv may not go by 'remote'"):
        GRAPH.placed({"thinker.kv -> thinker.past": Placement.REMOTE})
    with pytest.raises(GraphError, match="no such edge"):
        GRAPH.placed({"thinker.kv -> ear.audio": Placement.REMOTE})


def test_a_model_without_its_talker_delivers_text_only() -> None:
    silent = GRAPH.without(["talker", "speaker"])
    assert silent.delivery(Medium.AUDIO) == ()
    assert [node.name for node in silent.nodes] == ["microphone", "ear", "thinker"]
    assert silent.reuse(silent.edge("ear.features -> thinker.heard")).rule is not None


def test_an_input_that_only_a_missing_part_fed_goes_with_it() -> None:
    reading = GRAPH.without(["ear"])
    assert list(reading.node("thinker").inputs) == ["past"]


def test_a_part_that_has_nothing_left_to_compute_from_is_refused() -> None:
    with pytest.raises(GraphError, match="talker: has no input"):
        GRAPH.without(["thinker"])


def test_an_unknown_node_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(GraphError, match="it has microphone, ear"):
        GRAPH.batching("mouth")
