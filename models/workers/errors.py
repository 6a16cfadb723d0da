"""Errors of workers, and how those of a model cross the border of its process."""

from __future__ import annotations

import importlib

from .messages import LoadFailed

_PACKAGES = ("models.", "codec.")
"""Where typed errors live that may come back as themselves."""


class WorkerError(Exception):
    """A worker could not be started, or does not do what a worker does."""


class WorkerLost(WorkerError):
    """The worker ended before it was ready."""


class WorkerChanged(WorkerError):
    """What came back after a restart is another model than the one that sessions were promised."""


def describe(error: Exception) -> LoadFailed:
    """`error` as data. Of its attributes only plain ones are kept."""
    plain = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, str | int | float | bool | None | tuple) and not name.startswith("_")
    }
    return LoadFailed(type(error).__module__, type(error).__qualname__, str(error), plain)


def restored(failed: LoadFailed) -> Exception:
    """The error that a worker met, as the same type where that is one of ours; else a WorkerError with its message."""
    kind: object = None
    if failed.module.startswith(_PACKAGES):
        kind = getattr(importlib.import_module(failed.module), failed.name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return WorkerError(f"{failed.name}: {failed.message}")
    # Not by calling it: what its constructor takes is not what it says.
    error = kind.__new__(kind)
    error.args = (failed.message,)
    for name, value in failed.attributes.items():
        setattr(error, name, value)
    return error


__all__ = ["WorkerChanged", "WorkerError", "WorkerLost", "describe", "restored"]
