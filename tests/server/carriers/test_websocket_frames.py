"""Plain frames are read as the library's own parser reads them, and edges are found in any stream of frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from server.carriers.websocket_frames import FrameEdges, plain_text


def framed(opcode: Opcode, payload: bytes, fin: bool = True, mask: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=mask)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 300, 65_535])
def test_a_whole_text_frame_is_read_and_where_the_next_begins(size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    frame = framed(Opcode.TEXT, payload)
    assert plain_text(b"xyz" + frame + b"rest", 3) == (payload, 3 + len(frame))


@pytest.mark.parametrize(
    "frame",
    [
        framed(Opcode.BINARY, b"abc"),
        framed(Opcode.PING, b"abc"),
        framed(Opcode.CLOSE, b"\x03\xe8"),
        framed(Opcode.CONT, b"abc"),
        framed(Opcode.TEXT, b"abc", fin=False),
        framed(Opcode.TEXT, b"abc", mask=False),
        framed(Opcode.TEXT, b"a" * 200, mask=False),
        framed(Opcode.TEXT, b"a" * 65_536),
        b"\xc1" + framed(Opcode.TEXT, b"abc")[1:],  # compressed
        b"\x81\xfe\x00\x03" + framed(Opcode.TEXT, b"abc")[2:],  # its length in more bytes than it needs
    ],
)
def test_any_other_frame_is_left_to_the_parser(frame: bytes) -> None:
    assert plain_text(frame + bytes(20), 0) is None


@given(st.integers(0, 300), st.data())
def test_a_frame_that_is_not_whole_is_left_to_the_parser(size: int, data: st.DataObject) -> None:
    frame = framed(Opcode.TEXT, bytes(size))
    assert plain_text(frame[: data.draw(st.integers(0, len(frame) - 1))], 0) is None


FRAMES = st.tuples(
    st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.PONG]),
    st.sampled_from([0, 1, 125, 126, 200, 65_536]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(FRAMES, max_size=6), st.data())
def test_edges_are_found_however_the_stream_is_cut(frames: list[tuple[Opcode, int, bool, bool]], data: object) -> None:
    assert isinstance(data, st.DataObject)
    stream, between, in_parts = b"", {0: True}, False
    for opcode, size, fin, mask in frames:
        control = opcode in (Opcode.PING, Opcode.PONG)
        stream += framed(opcode, bytes(min(size, 125) if control else size), fin or control, mask)
        in_parts = in_parts if control else not fin
        between[len(stream)] = not in_parts
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges, at = FrameEdges(), 0
    for cut in [*cuts, *between]:
        if cut >= at:
            edges.feed(stream[at:cut])
            at = cut
            assert edges.between == between.get(at, False)
