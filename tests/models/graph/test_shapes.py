"""`models.graph.shapes`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.graph.shapes import Dim, Shape, ShapeError, ShapeMismatch

VIDEO = Shape.parse("B,N*P,d")
CODES = Shape.parse("B,F,Q")


@pytest.mark.parametrize("text", ["B,N*P,d", "B,F,Q", "1,2*d", "8", ""])
def test_a_shape_reads_as_it_is_written(text: str) -> None:
    assert str(Shape.parse(text)) == text


@pytest.mark.parametrize("text", ["B,,d", "B,-1", "0", "B,d+1", "B, ,d", "*"])
def test_what_is_no_axis_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="is no axis"):
        Shape.parse(text)


def test_sizes_say_what_the_symbols_are() -> None:
    assert CODES.match((1, 25, 8), {"Q": 8}) == {"B": 1, "F": 25, "Q": 8}


def test_a_product_is_solved_once_its_other_factor_is_known() -> None:
    assert VIDEO.match((1, 12, 64), {"N": 3})["P"] == 4
    assert Shape.parse("N*P,N").match((12, 3), {}) == {"N": 3, "P": 4}


def test_a_product_of_two_unknowns_stays_open() -> None:
    assert VIDEO.match((1, 12, 64), {}) == {"B": 1, "d": 64}


@pytest.mark.parametrize(
    ("sizes", "axis", "message"),
    [
        ((1, 25), None, "3 axes"),
        ((1, 25, 16), 2, "Q = 8 is expected, 16 came"),
        ((1, -1, 8), 1, "is no size"),
        ((True, 1, 8), 0, "is no size"),
    ],
)
def test_a_mismatch_names_the_axis(sizes: tuple[int, ...], axis: int | None, message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message) as caught:
        CODES.match(sizes, {"Q": 8})
    assert caught.value.axis == axis


def test_the_same_symbol_cannot_be_two_numbers() -> None:
    with pytest.raises(ShapeMismatch, match="axis 1"):
        Shape.parse("d,d").match((4, 5), {})


def test_a_product_must_come_out_even() -> None:
    with pytest.raises(ShapeMismatch, match="no multiple of 3"):
        VIDEO.match((1, 13, 64), {"N": 3})


def test_shapes_unify_by_what_is_known() -> None:
    assert Shape.parse("B,F,d").unify(Shape.parse("B,F,1024"), {}) == {"d": 1024}
    assert Shape.parse("B,N*P").unify(Shape.parse("B,P*N"), {}) == {}


@pytest.mark.parametrize(
    ("left", "right", "known"),
    [
        ("B,F", "B,8", {}),
        ("B,F,Q", "B,Q,F", {"Q": 8}),
        ("B,F,d", "B,F", {}),
        ("B,F", "B,T", {}),
        ("B,d", "B,512", {"d": 1024}),
        ("B,2*d", "B,513", {}),
    ],
)
def test_different_symbols_are_different_things(left: str, right: str, known: dict[str, int]) -> None:
    with pytest.raises(ShapeMismatch):
        Shape.parse(left).unify(Shape.parse(right), known)


def test_a_known_factor_is_put_in() -> None:
    assert str(VIDEO.given({"N": 2, "d": 8})) == "B,2*P,8"
    assert Dim.parse("2*N*3") == Dim(6, ("N",))


sizes = st.dictionaries(st.sampled_from("BTFNPQ"), st.integers(1, 9), min_size=6, max_size=6)
shapes = st.lists(
    st.lists(st.sampled_from("BTFNPQ"), min_size=1, max_size=2).map("*".join), min_size=1, max_size=4
).map(lambda axes: Shape.parse(",".join(axes)))


@given(shapes, sizes)
def test_matching_never_contradicts_the_truth(shape: Shape, truth: dict[str, int]) -> None:
    actual = [dim.given(truth).factor for dim in shape.dims]
    found = shape.match(actual, {})
    assert all(truth[symbol] == size for symbol, size in found.items())


@given(shapes, sizes, st.data())
def test_one_wrong_size_is_found_once_everything_is_known(
    shape: Shape, truth: dict[str, int], data: st.DataObject
) -> None:
    actual = [dim.given(truth).factor for dim in shape.dims]
    axis = data.draw(st.integers(0, len(actual) - 1))
    actual[axis] += data.draw(st.integers(1, 5))
    with pytest.raises(ShapeMismatch) as caught:
        shape.match(actual, truth)
    assert caught.value.axis == axis
