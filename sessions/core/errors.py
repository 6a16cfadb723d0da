"""Refusals of client commands."""

from __future__ import annotations


class CommandError(Exception):
    """A command that cannot be carried out; becomes a `CommandFailed` notice and changes nothing.

    `code` is stable and machine-readable, `message` says what is wrong and what to do, `param` names the field.
    """

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
