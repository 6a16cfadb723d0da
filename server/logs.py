"""What is logged, and how: lines to read or JSON, and never a secret.

Nothing of a conversation is logged. What looks like a key, and every key that the settings hold, is taken out of the
finished line, whoever wrote it: a library's warning or a traceback may quote what it was given.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from sessions.recording.redaction import MARK, Redactor

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_SUBPROTOCOL: Final = re.compile(r"(?<=openai-insecure-api-key\.)[^\s,\"']+")
_NUMBER: Final = re.compile(r"\+\d{8,15}\b")
"""Telephone numbers as E.164 has them."""
_SESSION: Final = re.compile(r"\bsess_[0-9a-f]{16}\b")


class Clean:
    """Takes out of a line what must not stand there."""

    def __init__(self, secrets: Iterable[str] = (), *, numbers: bool = False) -> None:
        """`secrets`: texts that are secret whatever they look like. `numbers`: telephone numbers may stand."""
        self._redactor = Redactor(secrets)
        self._numbers = numbers

    def __call__(self, line: str) -> str:
        cleaned = _SUBPROTOCOL.sub(MARK, self._redactor.line(line))
        return cleaned if self._numbers else _NUMBER.sub(MARK, cleaned)


class TextFormatter(logging.Formatter):
    """Lines to read."""

    def __init__(self, clean: Clean) -> None:
        super().__init__(TEXT)
        self._clean = clean

    def format(self, record: logging.LogRecord) -> str:
        return self._clean(super().format(record))


class JsonFormatter(logging.Formatter):
    """One object a line: time (ISO 8601, UTC), level, logger, message; session where one is named; error and its
    traceback where there is one."""

    def __init__(self, clean: Clean) -> None:
        super().__init__()
        self._clean = clean

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        if (session := _SESSION.search(message)) is not None:
            told["session"] = session[0]
        if record.exc_info and record.exc_info[0] is not None:
            told["error"] = record.exc_info[0].__name__
            told["traceback"] = self.formatException(record.exc_info)
        return self._clean(json.dumps(told, ensure_ascii=False))


def _worth_telling(record: logging.LogRecord) -> bool:
    """uvicorn tells each handshake that was refused as an error, one line for every stranger; it is counted instead."""
    return record.msg != "ASGI callable returned without completing handshake."


def start_logging(
    level: str,
    form: str = "text",
    secrets: Iterable[str] = (),
    *,
    numbers: bool = False,
) -> None:
    """Log to standard error from `level` on, as "text" or "json". See `Clean`."""
    clean = Clean(secrets, numbers=numbers)
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(clean) if form == "json" else TextFormatter(clean))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("uvicorn.error").addFilter(_worth_telling)
    least = max(logging.getLogger().level, logging.WARNING)
    # At its debug level uvicorn writes every header of a handshake down, and a key stands in one of them. At its info
    # level it tells each connection, and where it listens, which is told better elsewhere. httpx tells every address
    # that is asked, httpcore and websockets what goes over the wire, aioice every pair of addresses that a call tries.
    for name in ("uvicorn", "httpx", "httpcore", "websockets", "aioice", "aiortc"):
        logging.getLogger(name).setLevel(least)
