"""Who has which row of the batch, and for how long."""

from __future__ import annotations


class Rows:
    """A session keeps its row from answer to answer, with what the thinker has read of it; what comes beside (a
    response outside the conversation) borrows one of the spare rows. Not safe for threads; the engine's worker owns it.
    """

    def __init__(self, sessions: int, spare: int) -> None:
        self.count = sessions + spare
        self._free = list(reversed(range(self.count)))
        self._own: dict[str, int] = {}
        self._busy: set[int] = set()

    @property
    def busy(self) -> int:
        """Rows that compute."""
        return len(self._busy)

    def can_take(self, session: str) -> bool:
        """Whether `take` would find a row."""
        return bool(self._free) or self._own.get(session, -1) not in {-1, *self._busy}

    def take(self, session: str) -> int | None:
        """A row for one answer of `session`: its own unless that is at work; None where there is none."""
        row = self._own.get(session)
        if row is None or row in self._busy:
            if not self._free:
                return None
            row = self._free.pop()
            self._own.setdefault(session, row)
        self._busy.add(row)
        return row

    def leave(self, session: str, row: int) -> bool:
        """The answer is over. True: the row was borrowed, or its session is gone, and it is free for anybody."""
        self._busy.discard(row)
        if self._own.get(session) == row:
            return False
        self._free.append(row)
        return True

    def forget(self, session: str) -> int | None:
        """The session is gone. Returns its row where that is free now; one at work is freed by `leave`."""
        row = self._own.pop(session, None)
        if row is None or row in self._busy:
            return None
        self._free.append(row)
        return row
