from __future__ import annotations

import json
import pickle
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codec.frames import pack_codes
from codec.identity import CodecIdentity
from sessions.codes_track import (
    FILE,
    MAGIC,
    CodedPcm,
    CodePiece,
    Codes,
    CodesFormat,
    CodeSpan,
    CodesTrack,
    CodesTrackError,
    read_codes,
)

CODEC = CodesFormat("voice", "1", 24_000, 1920, 3, 1000)
FRAME = CODEC.frame_ticks


def frames(count: int, seed: int = 0) -> tuple[Codes, ...]:
    chance = random.Random(seed)
    return tuple(tuple(chance.randrange(1000) for _ in range(3)) for _ in range(count))


def span(stream: int, offset: int, first: int, given: tuple[Codes, ...] = ()) -> CodeSpan:
    return CodeSpan(CODEC, stream, offset, first, given)


@pytest.mark.parametrize(("codebooks", "size"), [(1, 2), (1, 1), (3, 1000), (8, 1024), (16, 1024), (5, 65536), (7, 3)])
def test_frames_are_packed_as_the_codec_package_packs_them(codebooks: int, size: int) -> None:
    codec = CodesFormat("voice", "1", 24_000, 1920, codebooks, size)
    chance = random.Random(size)
    table = [tuple(chance.randrange(size) for _ in range(codebooks)) for _ in range(20)]
    packed = [codec.pack(frame) for frame in table]
    assert [codec.unpack(data) for data in packed] == table
    assert {len(data) for data in packed} == {codec.frame_bytes}
    if size > 1:
        assert b"".join(packed) == pack_codes(table, CodecIdentity(**asdict(codec)))


@pytest.mark.parametrize("frame", [(1, 2), (1, 2, 3, 4), (1, 2, 1000), (-1, 2, 3)])
def test_a_frame_of_another_codec_is_not_packed(frame: Codes) -> None:
    with pytest.raises(CodesTrackError, match="frames"):
        CODEC.pack(frame)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01", b"\x00" * 3])
def test_bytes_of_another_codec_are_not_unpacked(data: bytes) -> None:
    with pytest.raises(CodesTrackError, match="frames"):
        CODEC.unpack(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 3),
        ("version", None),
        ("sample_rate", 0),
        ("sample_rate", True),
        ("hop", -1),
        ("hop", 24.0),
        ("codebooks", 65),
        ("codebook_size", 1 << 17),
        ("sample_rate", 44_100),
    ],
)
def test_a_format_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(CodesTrackError):
        CodesFormat(**{**asdict(CODEC), field: value})


def test_samples_with_codes_are_samples_and_what_follows_them_needs_no_frame_twice() -> None:
    given = frames(2)
    pcm = CodedPcm(b"\x01\x02" * 300, span(1, 960, 0, given))
    assert pcm == b"\x01\x02" * 300
    assert isinstance(pcm, bytes)
    assert pcm.span.after(600) == span(1, 1560, 2)


def test_pieces_of_two_streams_are_read_where_they_were_written(tmp_path: Path) -> None:
    track, one, two = CodesTrack(tmp_path / FILE, CODEC), frames(4), frames(2, 1)
    track.write(0, 2000, span(1, 960, 0, one[:2]))
    track.write(2000, 2000, span(1, 2960, 2))
    track.write(4000, 3000, span(2, 960, 0, two))
    track.write(7000, FRAME, span(1, 4960, 2, one[2:]))
    track.flush()
    track.write(7000 + FRAME, 100, span(1, 4960 + FRAME, 4))
    told = track.close()
    read = read_codes(tmp_path / FILE)
    assert (read.codec, read.whole, read.end) == (CODEC, True, 7100 + FRAME)
    assert [tuple(stream.frames) for stream in read.streams] == [one, two]
    assert read.streams[0].pieces == [
        CodePiece(0, 960, 4000),
        CodePiece(7000, 4960, FRAME),
        CodePiece(7000 + FRAME, 4960 + FRAME, 100),
    ]
    assert read.streams[1].pieces == [CodePiece(4000, 960, 3000)]
    assert told == {"file": FILE, **asdict(CODEC)}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.booleans()), max_size=60), st.integers(0, 9))
def test_whatever_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]], seed: int
) -> None:
    path = tmp_path_factory.mktemp("codes") / FILE
    track, at = CodesTrack(path, CODEC), 0
    state: dict[int, tuple[int, int, list[Codes], list[tuple[int, int, int]]]] = {}
    written: list[tuple[list[Codes], list[tuple[int, int, int]]]] = []
    for number, (stream, count, anew) in enumerate(steps):
        given = frames(count, seed + number)
        if anew or stream not in state:
            state[stream] = (960, 0, [], [])
            written.append(state[stream][2:])
        offset, first, kept, pieces = state[stream]
        length = min(count * FRAME - 960, (first + count) * FRAME - offset)
        track.write(at, length, span(stream, offset, first, given))
        kept += given
        pieces.append((at, offset, length))
        state[stream] = (offset + length, first + count, kept, pieces)
        at += length
        if number % 7 == seed:
            track.flush()
    track.close()
    read = read_codes(path)
    assert [stream.frames for stream in read.streams] == [kept for kept, _ in written]
    for stream, (_, pieces) in zip(read.streams, written, strict=True):
        covered = [(piece.at - piece.offset, piece.offset, piece.offset + piece.length) for piece in stream.pieces]
        assert sum(end - begin for _, begin, end in covered) == sum(length for _, _, length in pieces)
        for where, offset, length in pieces:
            assert any(
                shift == where - offset and begin <= offset and offset + length <= end for shift, begin, end in covered
            )


def test_a_file_that_was_cut_off_is_good_up_to_there(tmp_path: Path) -> None:
    track, given = CodesTrack(tmp_path / FILE, CODEC), frames(60)
    for number, frame in enumerate(given):
        track.write(number * FRAME, FRAME, span(1, number * FRAME, number, (frame,)))
    track.close()
    data = (tmp_path / FILE).read_bytes()
    header = data.index(b"\n", len(MAGIC)) + 1
    for end in range(header, len(data), 3):
        (tmp_path / "cut").write_bytes(data[:end])
        read = read_codes(tmp_path / "cut")
        got = [frame for stream in read.streams for frame in stream.frames]
        assert got == list(given[: len(got)])
        assert read.end == len(got) * FRAME
        records = [26 + 4 * 25] * (len(got) // 25) + [26 + 4 * (len(got) % 25)] * (len(got) % 25 > 0)
        assert read.whole == (end == header + sum(records))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF" * 10,
        MAGIC,
        MAGIC + b"[]\n",
        MAGIC + b"{\n",
        MAGIC + b'{"name": "voice"}\n',
        MAGIC + json.dumps({**asdict(CODEC), "hop": "much"}).encode() + b"\n",
        MAGIC + json.dumps({**asdict(CODEC), "more": 1}).encode() + b"\n",
        MAGIC + b"\xff" * 5000,
    ],
)
def test_another_file_is_refused_by_what_is_wrong_with_it(data: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(CodesTrackError):
        read_codes(tmp_path / FILE)


@pytest.mark.parametrize(
    "wrong", [span(1, 960, 1, frames(1)), span(1, 960, 0), span(1, 2 * FRAME, 0, frames(2)), span(9, 0, 4, frames(1))]
)
def test_records_that_lack_their_codes_are_refused(wrong: CodeSpan, tmp_path: Path) -> None:
    track = CodesTrack(tmp_path / FILE, CODEC)
    track.write(0, 960, wrong)
    track.close()
    with pytest.raises(CodesTrackError, match=r"first|length"):
        read_codes(tmp_path / FILE)


def test_codes_of_another_codec_do_not_get_into_the_file(tmp_path: Path) -> None:
    track = CodesTrack(tmp_path / FILE, CODEC)
    with pytest.raises(CodesTrackError, match="format"):
        track.write(0, 960, replace(span(1, 960, 0, frames(1)), format=replace(CODEC, version="2")))
    track.close()
    assert read_codes(tmp_path / FILE).streams == ()


def test_sixteen_codebooks_of_1024_take_little_more_than_two_kilobits_a_second(tmp_path: Path) -> None:
    codec = CodesFormat("voice", "1", 24_000, 1920, 16, 1024)
    track, seconds = CodesTrack(tmp_path / FILE, codec), 60
    for second in range(seconds):
        for first, count in ((0, 2), (2, 8), (10, 2)):
            given = ((1023,) * 16,) * count
            at = (second * 12 + first) * codec.frame_ticks
            track.write(at, count * codec.frame_ticks, CodeSpan(codec, 1, at, second * 12 + first, given))
    track.close()
    assert 1_900 < 8 * (tmp_path / FILE).stat().st_size / seconds < 2_200


def test_samples_that_know_their_codes_pass_between_processes() -> None:
    given = frames(2)
    pcm = CodedPcm(b"\x01\x02" * 300, span(1, 960, 0, given))
    there = pickle.loads(pickle.dumps(pcm))
    assert isinstance(there, CodedPcm)
    assert (bytes(there), there.span) == (bytes(pcm), pcm.span)
