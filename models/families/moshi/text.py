"""The inner text stream as text: pieces of the checkpoint's SentencePiece model, or the tokens' numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models.slots.duplex import TextDecoder

from .errors import TokenizerUnfit

log = logging.getLogger(__name__)

_SPACE = "▁"
"""How SentencePiece writes a space."""


class Pieces:
    """Text of a SentencePiece model. Bytes that make no character yet wait for the next token."""

    def __init__(self, pieces: list[str], silent: frozenset[int]) -> None:
        self._pieces = pieces
        self._silent = silent
        self._bytes = bytearray()

    def feed(self, token: int) -> str:
        if token in self._silent or not 0 <= token < len(self._pieces):
            return ""
        piece = self._pieces[token]
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            self._bytes.append(int(piece[3:5], 16))
            try:
                text = self._bytes.decode()
            except UnicodeDecodeError as error:
                if error.reason != "unexpected end of data":
                    self._bytes.clear()
                return ""
            self._bytes.clear()
            return text
        self._bytes.clear()
        return piece.replace(_SPACE, " ")


class Numbers:
    """Tokens as " #17": for weights that have no tokenizer, where the numbers are all that is there."""

    def __init__(self, silent: frozenset[int]) -> None:
        self._silent = silent

    def feed(self, token: int) -> str:
        return "" if token < 0 or token in self._silent else f" #{token}"


class Wordless:
    """No text: the checkpoint's tokenizer is not at hand."""

    def feed(self, token: int) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Both ways: `text()` makes a decoder for one session's inner text, `encode` gives the tokens of a text."""

    text: Callable[[], TextDecoder]
    encode: Callable[[str], tuple[int, ...]]


def load_pieces(path: Path, tokens: int, silent: frozenset[int]) -> Tokenizer | None:
    """The SentencePiece model at `path`, for a model that knows `tokens` of them.

    None where the file or the package `sentencepiece` is not there; the log says what to do. Raises TokenizerUnfit for
    a file that is damaged or belongs to another model.
    """
    if not path.is_file():
        log.warning("%s is not there: the model's words will not be shown; put its tokenizer beside it", path)
        return None
    try:
        import sentencepiece
    except ImportError:
        log.warning("the model's words will not be shown: install sentencepiece to read %s", path)
        return None
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise TokenizerUnfit(str(path), f"is no SentencePiece model ({error}); download it again") from error
    size = processor.get_piece_size()
    if size > tokens:
        raise TokenizerUnfit(
            str(path),
            f"has {size} pieces, but the language model knows {tokens}. Use the tokenizer that was published with it",
        )
    pieces = [processor.id_to_piece(token) for token in range(size)]
    quiet = silent | {token for token in range(size) if processor.is_control(token) or processor.is_unknown(token)}
    return Tokenizer(
        lambda: Pieces(pieces, frozenset(quiet)), lambda text: tuple(int(token) for token in processor.encode(text))
    )
