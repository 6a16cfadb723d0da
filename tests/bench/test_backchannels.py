"""The comparison with the reference sees every lost, repeated and changed sample."""

from __future__ import annotations

import numpy as np
import pytest

from server.client import Pcm
from tests.bench.backchannels import compare, reference

EXPECTED = reference()[: 24_000 * 12]


def breaks(received: Pcm) -> int:
    return compare(received, EXPECTED).breaks


def test_the_beginning_of_the_reference_has_no_break() -> None:
    assert compare(EXPECTED[:100_003], EXPECTED).breaks == 0
    assert compare(EXPECTED[:100_003], EXPECTED).samples == 100_003


@pytest.mark.parametrize("lost", [1, 480, 4800, 48_000])
def test_lost_samples_are_one_break(lost: int) -> None:
    assert breaks(np.concatenate([EXPECTED[:30_000], EXPECTED[30_000 + lost : 120_000]])) == 1


@pytest.mark.parametrize("repeated", [1, 480, 4800])
def test_repeated_samples_are_one_break(repeated: int) -> None:
    assert breaks(np.concatenate([EXPECTED[:50_000], EXPECTED[50_000 - repeated : 120_000]])) == 1


def test_two_losses_are_two_breaks() -> None:
    assert breaks(np.concatenate([EXPECTED[:20_000], EXPECTED[20_480:60_000], EXPECTED[60_480:100_000]])) == 2


def test_a_changed_sample_is_a_break() -> None:
    changed = EXPECTED[:48_000].copy()
    changed[30_123] += 100
    assert breaks(changed) >= 1
