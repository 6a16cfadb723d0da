"""Who made these codes: the identity that a codec frame must share with the decoder that is to play it.

Codes are indices into one particular set of codebooks. The same numbers under another codec are noise, loud noise at
worst, so whatever stores, sends or caches codes keeps the identity beside them and compares before it decodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

TICK_RATE: int = 48_000
"""Ticks per second of the timeline that frames lie on."""

MAX_CODEBOOKS: int = 64
MAX_CODEBOOK_SIZE: int = 1 << 16
MAX_DELAY: int = 256
"""Frames. A delay is held as state per session; the longest known pattern has 16 (15 codebooks, one frame apart)."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class CodecIdentityError(ValueError):
    """A codec identity is impossible. `field` names what is wrong; the message says what would be right."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class CodecMismatch(CodecIdentityError):
    """Codes of one codec were offered to another. `field` is the first field in which they differ."""


@dataclass(frozen=True, slots=True)
class CodecIdentity:
    """What must be equal for codes to be exchanged; equality is compatibility, there is no weaker kind.

    `sample_rate` in Hz and `hop` in samples: one frame of `codebooks` codes, each 0..`codebook_size` - 1, stands for
    `hop` samples. `delays` is the pattern in which a generating model emits them: codebook q of frame t leaves the
    model at step t + `delays[q]`. A `CodecFrame` always holds the codes of one instant, already put in line again.

    Raises CodecIdentityError.
    """

    name: str
    version: str
    sample_rate: int
    hop: int
    codebooks: int
    codebook_size: int
    delays: tuple[int, ...] = ()
    """Frames per codebook; empty is taken as no delay anywhere."""

    def __post_init__(self) -> None:
        for field in ("name", "version"):
            text = getattr(self, field)
            if not isinstance(text, str) or not _NAME.fullmatch(text):
                raise CodecIdentityError(field, f"{text!r} is not 1 to 64 of a-z, 0-9, dot, dash and underscore")
        _whole("sample_rate", self.sample_rate, 1, 384_000)
        _whole("hop", self.hop, 1, self.sample_rate)
        _whole("codebooks", self.codebooks, 1, MAX_CODEBOOKS)
        _whole("codebook_size", self.codebook_size, 2, MAX_CODEBOOK_SIZE)
        if TICK_RATE * self.hop % self.sample_rate:
            raise CodecIdentityError(
                "hop",
                f"{self.hop} samples at {self.sample_rate} Hz are no whole number of ticks of 1/{TICK_RATE} s; "
                "choose a rate that divides 48 kHz",
            )
        delays = self.delays or (0,) * self.codebooks
        if not isinstance(delays, tuple) or len(delays) != self.codebooks:
            raise CodecIdentityError("delays", f"give a tuple with one delay for each of {self.codebooks} codebooks")
        for delay in delays:
            _whole("delays", delay, 0, MAX_DELAY)
        object.__setattr__(self, "delays", delays)

    @property
    def frame_ticks(self) -> int:
        """Ticks of one frame: 3840 for 80 ms."""
        return TICK_RATE * self.hop // self.sample_rate

    @property
    def frame_rate(self) -> float:
        """Frames per second, for reports."""
        return self.sample_rate / self.hop

    @property
    def code_bits(self) -> int:
        """Bits that one code takes when packed."""
        return (self.codebook_size - 1).bit_length()

    @property
    def frame_bytes(self) -> int:
        """Bytes that the codes of one frame take when packed, with the last byte filled up."""
        return -(-self.codebooks * self.code_bits // 8)

    @property
    def longest_delay(self) -> int:
        """Steps after which a model that follows `delays` has emitted all codes of a frame."""
        return max(self.delays)

    def with_codebooks(self, codebooks: int) -> CodecIdentity:
        """The codec that uses only the first `codebooks` of these, as residual quantization allows.

        It is another identity: a decoder that expects 16 codes cannot be given 8. Raises CodecIdentityError.
        """
        _whole("codebooks", codebooks, 1, self.codebooks)
        return replace(self, codebooks=codebooks, delays=self.delays[:codebooks])

    def require(self, other: CodecIdentity) -> None:
        """Raises CodecMismatch unless codes made under `other` may be decoded under this identity."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine != theirs:
                raise CodecMismatch(
                    field.name,
                    f"the codes were made with {theirs!r}, this decoder needs {mine!r} ({self}); "
                    "decode them with the codec that made them, or transcode through PCM",
                )

    def to_record(self) -> dict[str, str | int | list[int]]:
        """Plain values for JSON; `from_record` takes them back."""
        return {**asdict(self), "delays": list(self.delays)}

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> CodecIdentity:
        """The identity that `to_record` wrote. Raises CodecIdentityError naming a field that is missing or wrong."""
        wanted = {field.name for field in fields(cls)}
        for name in sorted(wanted ^ record.keys()):
            trouble = "is missing" if name in wanted else "is not a field of a codec identity; remove it"
            raise CodecIdentityError(name, trouble)
        delays = record["delays"]
        if not isinstance(delays, list):
            raise CodecIdentityError("delays", f"{delays!r} is not a list of frames")
        values = {**record, "delays": tuple(delays)}
        return cls(**values)  # type: ignore[arg-type]  # every field is checked by __post_init__

    def __str__(self) -> str:
        return f"{self.name}/{self.version} {self.codebooks}x{self.codebook_size} at {self.frame_rate:g} Hz"


def _whole(field: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise CodecIdentityError(field, f"{value!r} is not a whole number from {low} to {high}")
