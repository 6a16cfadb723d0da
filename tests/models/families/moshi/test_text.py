"""The inner text: pieces, bytes that make a character together, padding."""

from __future__ import annotations

from models.families.moshi.text import Numbers, Pieces, Wordless

PIECES = ["<unk>", "<s>", "</s>", "<pad>", "▁we", "▁say", "ing", "<0xC3>", "<0xA4>", "<0xFF>", "!"]


def read(*tokens: int) -> list[str]:
    decoder = Pieces(PIECES, frozenset({0, 1, 2, 3}))
    return [decoder.feed(token) for token in tokens]


def test_pieces_carry_their_own_spaces_and_padding_says_nothing() -> None:
    assert read(3, 4, 3, 5, 6, 0, 3) == ["", " we", "", " say", "ing", "", ""]


def test_bytes_wait_until_they_make_a_character() -> None:
    assert read(7, 3, 8, 10) == ["", "", "ä", "!"]


def test_bytes_that_make_no_character_are_left_out() -> None:
    assert read(9, 7, 8) == ["", "", "ä"]
    assert read(7, 4, 8, 4) == ["", " we", "", " we"]


def test_a_token_that_is_no_piece_says_nothing() -> None:
    assert read(-1, 99) == ["", ""]


def test_tokens_without_a_tokenizer_are_numbers() -> None:
    decoder = Numbers(frozenset({0, 3}))
    assert [decoder.feed(token) for token in (17, 3, -1, 0, 5)] == [" #17", "", "", "", " #5"]
    assert Wordless().feed(17) == ""
