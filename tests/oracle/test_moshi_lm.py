"""Our Moshi beside the `moshi` package, in an environment of its own: every token, over pauses and new sessions."""

from __future__ import annotations

import pytest

from tests.oracle.environment import compare

pytestmark = pytest.mark.wide


@pytest.mark.parametrize("case", ["moshi", "old names", "schedule", "one input", "long delays", "personaplex"])
def test_every_greedy_token_is_the_same(case: str) -> None:
    found = compare("moshi_lm", case=case, frames=150)
    assert found["equal"] == 1.0, found
    assert found["frames"] > 400, found
    # With weights as the package first sets them, all would be the same few.
    assert min(found["distinct"]) >= 40, found
