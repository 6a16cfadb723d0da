"""Text to tokens and back: a checkpoint's own tokenizer, or bytes where nothing was learned."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST_CHARACTER = 8
"""Tokens that may share one character before it is given up as broken."""


class Decoder(Protocol):
    """Turns the tokens of one text into characters as they come."""

    def feed(self, token: int) -> str:
        """What is certain now; "" in the middle of a character."""

    def finish(self) -> str:
        """What was left in the middle of a character."""


class Words(Protocol):
    """A text tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Tokens of `text`; control tokens that are spelled out in it are plain text, or a user could forge a turn."""

    def decoder(self) -> Decoder: ...


class ByteDecoder:
    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        return self._utf8.decode(bytes([token])) if 0 <= token < 256 else ""

    def finish(self) -> str:
        return self._utf8.decode(b"", True)


class ByteWords:
    """Token n < 256 is byte n of the UTF-8 text."""

    def encode(self, text: str) -> list[int]:
        # Half a surrogate pair can come in by JSON and has no UTF-8.
        return list(text.encode("utf-8", "replace"))

    def decoder(self) -> ByteDecoder:
        return ByteDecoder()


class PublishedTokenizer(Protocol):
    """What is used of transformers' tokenizer."""

    def __call__(self, text: str, *, add_special_tokens: bool, split_special_tokens: bool) -> dict[str, list[int]]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...


class PieceDecoder:
    def __init__(self, tokenizer: PublishedTokenizer) -> None:
        self._tokenizer = tokenizer
        self._open: list[int] = []

    def feed(self, token: int) -> str:
        self._open.append(token)
        text = self._tokenizer.decode(self._open, skip_special_tokens=True)
        if text.endswith(REPLACEMENT) and len(self._open) < _LONGEST_CHARACTER:
            return ""
        self._open.clear()
        return text

    def finish(self) -> str:
        text = self._tokenizer.decode(self._open, skip_special_tokens=True) if self._open else ""
        self._open.clear()
        return text


class PieceWords:
    """A checkpoint's own tokenizer."""

    def __init__(self, tokenizer: PublishedTokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def decoder(self) -> PieceDecoder:
        return PieceDecoder(self._tokenizer)
