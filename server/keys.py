"""API keys: read from options and files, kept as digests, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

EPHEMERAL_PREFIX: Final = "ek_"
"""Begins the keys that the server itself hands out; no API key may begin so."""
SHORTEST_ABROAD: Final = 16
"""Least length of a key that others than this machine can try."""
LONGEST: Final = 512
HOUSE: Final = "default"
"""The tenant whose keys are given by options: the only one of a server that knows no others."""
MAKE_ONE: Final = "make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"


class InvalidKey(ValueError):
    """What was given as a key cannot be one. Says where it stands, never what it is, and what to do."""


class KeyRing:
    """The API keys of options and files, as digests: neither a log, a traceback nor a memory dump shows one.

    All of them are one tenant's, `HOUSE`: which of them was used, and in which order they stand, means nothing.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """`keys` as `split_keys` and `read_keys` give them."""
        self._digests = tuple(dict.fromkeys(digest(key) for key in keys))

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, key: object) -> bool:
        """Takes the same time wherever `key` differs and whichever it is."""
        if not isinstance(key, str):
            return False
        presented = digest(key)
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, presented)
        return found


def digest(key: str) -> bytes:
    """SHA-256 of a key, whatever characters a peer sent in it."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def split_keys(text: str, where: str) -> tuple[str, ...]:
    """Keys separated by commas. `where` names the setting. Raises InvalidKey."""
    return _checked([part.strip() for part in text.split(",") if part.strip()], where)


def read_keys(path: Path, where: str) -> tuple[str, ...]:
    """Keys of a file, one a line; empty lines and lines that begin with # are passed over. Raises InvalidKey."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise InvalidKey(f"{where} {path} cannot be read: {reason}") from None
    stripped = [line.strip() for line in lines]
    keys = _checked([line for line in stripped if line and not line.startswith("#")], f"{where} {path}")
    if not keys:
        raise InvalidKey(f"{where} {path} holds no key; write one a line ({MAKE_ONE})")
    return keys


def check_length_abroad(keys: Sequence[str], host: str) -> None:
    """Raises InvalidKey where one of `keys` could be guessed from elsewhere."""
    for number, key in enumerate(keys, 1):
        if len(key) < SHORTEST_ABROAD:
            raise InvalidKey(
                f"API key {number} has {len(key)} characters; on {host} anybody can try, so use at least "
                f"{SHORTEST_ABROAD} ({MAKE_ONE})"
            )


def _checked(keys: Sequence[str], where: str) -> tuple[str, ...]:
    for number, key in enumerate(keys, 1):
        which = f"{where}: key {number}"
        if not all("!" <= character <= "~" for character in key) or "," in key:
            raise InvalidKey(f"{which} has a space, a comma or a character beyond ASCII; {MAKE_ONE}")
        if len(key) > LONGEST:
            raise InvalidKey(f"{which} has {len(key)} characters; at most {LONGEST} are taken")
        if key.startswith(EPHEMERAL_PREFIX):
            raise InvalidKey(f"{which} begins with {EPHEMERAL_PREFIX!r}, as only ephemeral keys do; use another one")
    return tuple(keys)
