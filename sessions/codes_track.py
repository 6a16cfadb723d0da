"""Codes beside samples: what the agent said as the whole numbers that its codec made of it, 1 to 2 kbit/s.

A session knows no codec. It takes an engine's codes as they are, keeps them with the name of who made them, and knows
where the samples that were decoded from them lie.

An engine codes in *streams*: a stream is decoded from the beginning, frame after frame, into one stretch of sound,
whose positions are ticks from its first decoded sample. What an `EngineAudio` holds is a piece of such a stretch.

A file is a line that says what it is, a line of JSON with the codec, and records, big-endian:

    at u64, stream u32, offset u32, length u32, first u32, frames u16, frames * frame_bytes of packed codes

`length` ticks of `stream` from position `offset` on lie at `at` in the order of generation; they are the first to need
the `frames` frames from number `first` on (`first` 0: the number of the stream is used anew). Packed, a code takes just
the bits of its codebook, most significant first, and every frame begins on a byte. Records follow each other as they
were written, so a file that was cut off is good up to there.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import BinaryIO

from .core.records import Plain
from .core.timeline import TICK_RATE, Ticks

NAME = "agent_codes"
FILE = "agent_codes.bin"
"""Of a recording: the codes of its `agent_generated`."""
MAGIC = b"talkover codes 1\n"

_RECORD = struct.Struct(">QIIIIH")
_TOGETHER = 25
"""Frames that wait at most before they are written as one record: two seconds of speech."""
_MAX_HEADER = 4096
_LIMITS = {"sample_rate": 384_000, "hop": 384_000, "codebooks": 64, "codebook_size": 1 << 16}

Codes = tuple[int, ...]
"""One frame, a code of each codebook."""


class CodesTrackError(ValueError):
    """Codes that cannot be kept, or a file of them that cannot be read. `field` names what is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class CodesFormat:
    """Whose codes these are: all that a reader must compare before it decodes. Raises CodesTrackError.

    A frame of `codebooks` codes, each 0..`codebook_size` - 1, stands for `hop` samples at `sample_rate` Hz.
    """

    name: str
    version: str
    sample_rate: int
    hop: int
    codebooks: int
    codebook_size: int

    def __post_init__(self) -> None:
        for name in ("name", "version"):
            if not isinstance(getattr(self, name), str):
                raise CodesTrackError(name, f"{getattr(self, name)!r} is no text")
        for name, most in _LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise CodesTrackError(name, f"{value!r} is not a whole number from 1 to {most}")
        if TICK_RATE * self.hop % self.sample_rate:
            raise CodesTrackError("hop", f"{self.hop} samples at {self.sample_rate} Hz are no whole number of ticks")

    @property
    def frame_ticks(self) -> Ticks:
        return TICK_RATE * self.hop // self.sample_rate

    @property
    def code_bits(self) -> int:
        return max(1, (self.codebook_size - 1).bit_length())

    @property
    def frame_bytes(self) -> int:
        """Bytes of one packed frame."""
        return -(-self.codebooks * self.code_bits // 8)

    def pack(self, frame: Sequence[int]) -> bytes:
        """Raises CodesTrackError for a frame that is none of this codec's."""
        if len(frame) != self.codebooks or not all(0 <= code < self.codebook_size for code in frame):
            raise CodesTrackError("frames", f"{tuple(frame)} is no frame of {self.codebooks} x {self.codebook_size}")
        bits = 0
        for code in frame:
            bits = bits << self.code_bits | code
        return (bits << self.frame_bytes * 8 - self.codebooks * self.code_bits).to_bytes(self.frame_bytes, "big")

    def unpack(self, data: bytes) -> Codes:
        """The inverse. Raises CodesTrackError for other bytes than `pack` makes."""
        bits, spare = int.from_bytes(data, "big"), self.frame_bytes * 8 - self.codebooks * self.code_bits
        mask = (1 << self.code_bits) - 1
        places = range((self.codebooks - 1) * self.code_bits + spare, spare - 1, -self.code_bits)
        frame = tuple(bits >> place & mask for place in places)
        if self.pack(frame) != data:
            raise CodesTrackError("frames", "filling bits are not 0; these codes were packed for another codec")
        return frame


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """Where some samples come from: they begin `offset` ticks into `stream`, and `frames`, from number `first` on, are
    those that were not needed for samples before them."""

    format: CodesFormat
    stream: int
    offset: Ticks
    first: int
    frames: tuple[Codes, ...]

    def after(self, length: Ticks) -> CodeSpan:
        """Of the samples that follow `length` ticks, all of whose frames were handed on with those."""
        return replace(self, offset=self.offset + length, first=self.first + len(self.frames), frames=())


class CodedPcm(bytes):
    """Samples that know their codes. For everybody but a recorder they are samples: `bytes` of PCM16."""

    span: CodeSpan

    def __new__(cls, pcm: bytes | memoryview, span: CodeSpan) -> CodedPcm:
        made = super().__new__(cls, pcm)
        made.span = span
        return made

    def __reduce__(self) -> tuple[type[CodedPcm], tuple[bytes, CodeSpan]]:
        """For the way between processes."""
        return CodedPcm, (bytes(self), self.span)


@dataclass(slots=True)
class _Pending:
    at: Ticks
    length: Ticks
    span: CodeSpan
    frames: list[Codes] = field(default_factory=list)


class CodesTrack:
    """Writes the codes of one codec, in the order of generation. Used from one thread. A `journal.FurtherTrack`."""

    name = NAME

    def __init__(self, path: Path, codec: CodesFormat) -> None:
        self.codec = codec
        self._file: BinaryIO = path.open("wb")
        header = json.dumps(asdict(codec), separators=(",", ":")).encode()
        self._file.write(MAGIC + header + b"\n")
        self._pending: _Pending | None = None

    def write(self, at: Ticks, length: Ticks, span: CodeSpan) -> None:
        """`length` ticks of samples at `at` come from `span`. Raises CodesTrackError for another codec's."""
        if span.format != self.codec:
            raise CodesTrackError("format", f"codes of {span.format} among those of {self.codec}")
        last = self._pending
        if (
            last is None
            or (last.at + last.length, last.span.stream, last.span.offset + last.length)
            != (at, span.stream, span.offset)
            or last.span.first + len(last.frames) != span.first
            or len(last.frames) >= _TOGETHER
        ):
            self._settle()
            last = self._pending = _Pending(at, 0, span)
        last.length += length
        last.frames += span.frames

    def _settle(self) -> None:
        """Make a record of what waits."""
        last, self._pending = self._pending, None
        if last is None:
            return
        packed = b"".join(map(self.codec.pack, last.frames))
        head = (last.at, last.span.stream, last.span.offset, last.length, last.span.first, len(last.frames))
        self._file.write(_RECORD.pack(*head) + packed)

    def flush(self) -> None:
        """Everything so far is in the file."""
        self._settle()
        self._file.flush()

    @property
    def size(self) -> int:
        """Bytes in the file, or on their way to it."""
        return self._file.tell()

    def close(self) -> dict[str, Plain]:
        """Finish; returns what a manifest says of it."""
        self._settle()
        self._file.close()
        return {"file": FILE, **asdict(self.codec)}


@dataclass(frozen=True, slots=True)
class CodePiece:
    """`length` ticks of a stream's sound, from `offset` on, lie at `at` in the order of generation."""

    at: Ticks
    offset: Ticks
    length: Ticks


@dataclass(slots=True)
class CodeStream:
    """What is decoded from the beginning as one, and the pieces of its sound that were generated."""

    frames: list[Codes] = field(default_factory=list)
    pieces: list[CodePiece] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RecordedCodes:
    """What a file holds. `whole`: it did not end within a record."""

    codec: CodesFormat
    streams: tuple[CodeStream, ...]
    whole: bool

    @property
    def end(self) -> Ticks:
        """Where the last piece ends."""
        return max((piece.at + piece.length for stream in self.streams for piece in stream.pieces), default=0)


def read_codes(path: Path) -> RecordedCodes:
    """Read a file of codes. Raises CodesTrackError for one that is none or is damaged, OSError where none is."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise CodesTrackError("file", f"{path} does not begin like a file of codes")
        codec = _codec(file.readline(_MAX_HEADER))
        body = file.read()
    streams: list[CodeStream] = []
    current: dict[int, CodeStream] = {}
    place, size = 0, codec.frame_bytes
    while len(body) - place >= _RECORD.size:
        at, number, offset, length, first, count = _RECORD.unpack_from(body, place)
        begin = place + _RECORD.size
        if len(body) - begin < count * size:
            break
        stream = current.get(number)
        if stream is None or (first == 0 and count):
            stream = current[number] = CodeStream()
            streams.append(stream)
        if first != len(stream.frames):
            raise CodesTrackError("first", f"frame {first} of stream {number} follows {len(stream.frames)} frames")
        place = begin + count * size
        stream.frames += [codec.unpack(body[at_ : at_ + size]) for at_ in range(begin, place, size)]
        if offset + length > len(stream.frames) * codec.frame_ticks:
            raise CodesTrackError("length", f"stream {number} has no codes for what lies at {at}")
        stream.pieces.append(CodePiece(at, offset, length))
    return RecordedCodes(codec, tuple(streams), place == len(body))


def _codec(line: bytes) -> CodesFormat:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    wanted = {entry.name for entry in fields(CodesFormat)}
    if not isinstance(record, dict) or record.keys() != wanted:
        raise CodesTrackError("codec", f"the second line is not an object of {', '.join(sorted(wanted))}")
    return CodesFormat(**record)
