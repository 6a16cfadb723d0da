"""Both edges of a worker: what is wrong is refused by its own type, whichever way it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from models.envelope import (
    BadSpan,
    Cancelled,
    EdgeContract,
    MissingTerms,
    OutOfSequence,
    SessionTerms,
    StaleFence,
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
from models.graph.states import StateKind
from models.workers.borders import Gate, envelope, heard, said
from sessions.core.fence import Fence
from tests.models.workers.puppet import FRAME, HOP, VERSIONS

FENCE = Fence("s", 2, 3)
PCM = bytes(2 * HOP)
BOTH = pytest.mark.parametrize("edge", [heard, said], ids=["to the worker", "from the worker"])
Edge = Callable[[int, Versions], EdgeContract]

FAULTS: dict[str, tuple[dict[str, Any], type[TransferRefused]]] = {
    "tenant": ({"tenant": "other"}, WrongTenant),
    "request": ({"request": "other"}, WrongRequest),
    "old epoch": ({"fence": Fence("s", 2, 2)}, StaleFence),
    "old incarnation": ({"fence": Fence("s", 1, 9)}, StaleFence),
    "another session's fence": ({"fence": Fence("x", 2, 3)}, StaleFence),
    "kind": ({"kind": StateKind.CODE}, WrongKind),
    "model version": ({"versions": replace(VERSIONS, model="puppet-2")}, WrongVersion),
    "no versions": ({"versions": Versions()}, WrongVersion),
    "shape": ({"shape": (1, HOP // 2)}, WrongShape),
    "two at once": ({"shape": (2, HOP)}, WrongShape),
    "dtype": ({"dtype": "float32"}, WrongDtype),
    "layout": ({"layout": "interleaved"}, WrongLayout),
    "no owner": ({"owner": ""}, WrongLayout),
    "a number that leaves a gap": ({"sequence": 1}, OutOfSequence),
    "a span backwards": ({"start": FRAME, "end": 0}, BadSpan),
    "no terms": ({"session": None}, MissingTerms),
    "another cancel generation": ({"session": SessionTerms("", 0, 2)}, Cancelled),
}


def right(edge: Edge, number: int = 0, fence: Fence = FENCE) -> tuple[Any, bytes]:
    given = envelope(edge(HOP, VERSIONS), fence, "t", number * FRAME, (number + 1) * FRAME)
    return replace(given, sequence=number), PCM


@BOTH
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused_by_its_own_type_and_changes_nothing(fault: str, edge: Edge) -> None:
    change, error = FAULTS[fault]
    gate = Gate(edge(HOP, VERSIONS), "t", FENCE)
    given, pcm = right(edge)
    with pytest.raises(error):
        gate.admit(replace(given, **change), pcm)
    assert gate.end == 0
    gate.admit(given, pcm)
    assert gate.end == FRAME


@BOTH
@pytest.mark.parametrize("pcm", [PCM[:-2], PCM + b"\0\0", b""])
def test_audio_of_another_length_than_the_envelope_says_is_refused(pcm: bytes, edge: Edge) -> None:
    with pytest.raises(WrongShape):
        Gate(edge(HOP, VERSIONS), "t", FENCE).admit(right(edge)[0], pcm)


@BOTH
def test_once_the_fence_moves_on_the_old_is_refused_and_the_new_counts_from_0(edge: Edge) -> None:
    gate = Gate(edge(HOP, VERSIONS), "t", FENCE)
    gate.admit(*right(edge))
    newer = Fence("s", 2, 4)
    gate.advance(newer)
    with pytest.raises(StaleFence):
        gate.admit(*right(edge, 1))
    given, pcm = right(edge, 1, newer)
    gate.admit(replace(given, sequence=0), pcm)
    assert gate.end == 2 * FRAME


@BOTH
def test_frames_may_be_missing_but_none_comes_twice_under_whatever_fence(edge: Edge) -> None:
    gate = Gate(edge(HOP, VERSIONS), "t", FENCE)
    given, pcm = right(edge, 5)
    gate.admit(replace(given, sequence=0), pcm)
    with pytest.raises(BadSpan, match="was there already"):
        gate.admit(replace(given, sequence=1), pcm)
    gate.advance(newer := Fence("s", 3, 0))
    given, pcm = right(edge, 5, newer)
    with pytest.raises(BadSpan, match="was there already"):
        gate.admit(replace(given, sequence=0), pcm)
