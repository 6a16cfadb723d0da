"""Our Mimi beside those that others wrote, in an environment of its own: `python -m pytest -m wide tests/oracle`."""

from __future__ import annotations

import pytest

from tests.oracle.environment import compare

pytestmark = pytest.mark.wide


def test_streamed_it_equals_the_moshi_package() -> None:
    found = compare("mimi", full=False, frames=40, codebooks=8)
    assert found["codes_equal"] == 1.0, found
    assert min(found["distinct"]) >= 8, found
    assert found["level"] > 0.005, found
    assert found["pcm_error"] <= 1e-5, found
    assert found["pcm_error_to_their_stream"] <= 1e-5, found


def test_at_full_size_it_equals_the_moshi_package_with_all_its_codebooks() -> None:
    found = compare("mimi", full=True, frames=8, codebooks=32)
    assert found["codes_equal"] >= 0.999, found
    assert min(found["distinct"]) >= 8, found
    assert found["pcm_error"] <= 1e-4, found
    assert found["pcm_error_to_their_stream"] <= 1e-4, found


def test_transformers_cannot_decode_a_stream_and_ours_can() -> None:
    """Its cache covers the transformer; the convolutions begin anew at every frame."""
    found = compare("mimi_transformers")
    assert found["codes_equal"] == 1.0, found
    assert min(found["distinct"]) >= 4, found
    assert found["our_error"] <= 1e-5, found
    assert found["their_streaming_error"] >= 0.1, found
