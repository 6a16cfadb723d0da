"""How a checker says that an invariant does not hold."""

from __future__ import annotations

from collections.abc import Callable


class Violation(AssertionError):
    """An invariant does not hold. `invariant` is its number, or the name of a rule that follows from several."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"invariant {invariant}: {message}")
        self.invariant = invariant


def require(holds: bool, invariant: str, message: str | Callable[[], str]) -> None:
    """A message that costs something to make is given as what makes it: nearly every check holds."""
    if not holds:
        raise Violation(invariant, message if isinstance(message, str) else message())
