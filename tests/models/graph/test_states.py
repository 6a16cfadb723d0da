"""`models.graph.states`."""

from __future__ import annotations

import pytest

from models.graph.states import RULES, Agreement, Placement, StateKind


def test_every_kind_has_a_rule() -> None:
    assert set(RULES) == set(StateKind)
    assert len(StateKind) == 6
    assert all(rule.danger and rule.placements for rule in RULES.values())


@pytest.mark.parametrize("kind", [StateKind.LATENT, StateKind.SESSION])
def test_what_is_random_or_private_never_serves_a_second_request(kind: StateKind) -> None:
    assert not RULES[kind].reusable


def test_whatever_may_be_reused_belongs_to_one_tenant_and_one_version() -> None:
    versions = {Agreement.MODEL, Agreement.TOKENIZER, Agreement.ENCODER, Agreement.CODEC}
    for rule in RULES.values():
        if rule.agreements is not None:
            assert Agreement.TENANT in rule.agreements
            assert rule.agreements & versions


def test_a_prefix_is_reused_only_when_it_is_exact_and_at_the_same_positions() -> None:
    assert RULES[StateKind.KV].agreements == {
        Agreement.TENANT,
        Agreement.PREFIX,
        Agreement.MODEL,
        Agreement.POSITIONS,
    }


def test_keys_and_values_stay_where_they_are_read() -> None:
    assert RULES[StateKind.KV].placements == {Placement.SAME_DEVICE, Placement.RECOMPUTE}
    assert Placement.REMOTE in RULES[StateKind.CODE].placements
    assert Placement.REMOTE not in RULES[StateKind.LATENT].placements


def test_a_session_cannot_be_computed_again() -> None:
    assert Placement.RECOMPUTE not in RULES[StateKind.SESSION].placements
