"""Keys of a telephone: told at once, and where it is configured so a way to interrupt and a turn of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .conversation import Item
from .effects import ClearTimer, Effect, Notify, SetTimer
from .events import DigitPressed
from .listening import Listening
from .notices import DigitHeard, ItemAdded
from .speaking import Cause
from .state import State
from .timeline import from_ms

KEYS_MOST: Final = 64
"""Keys of one turn; more are taken as the next one."""
END: Final = "#"


class Keypad:
    """Effects of pressed keys."""

    def __init__(self, state: State, out: list[Effect], listening: Listening, stop: Callable[[Cause], None]) -> None:
        """`stop` ends what the agent is saying."""
        self._s = state
        self._out = out
        self._listening = listening
        self._stop = stop

    def pressed(self, event: DigitPressed) -> None:
        s = self._s
        self._out.append(Notify(DigitHeard(event.digit, s.input.watermark)))
        if s.config.keys_interrupt and (s.sounding or (s.active is not None and s.active.announced)):
            self._stop("key_pressed")
        if s.config.keys_pause_ms is None:
            return
        s.keys += event.digit
        if event.digit == END or len(s.keys) >= KEYS_MOST:
            self._out.append(ClearTimer("keys"))
            self.entered()
        else:
            self._wait()

    def go_on(self) -> None:
        """The timers of the owner before are gone, and the caller has lost a moment: the pause begins again."""
        if self._s.keys:
            self._wait()

    def _wait(self) -> None:
        self._out.append(SetTimer("keys", self._s.now + from_ms(self._s.config.keys_pause_ms or 0)))

    def entered(self) -> None:
        """Timer "keys": no other key followed; what was pressed is a turn of the user."""
        s = self._s
        keys, s.keys = s.keys, ""
        if not keys:
            return
        item = Item(s.fresh_id("item"), "user", text=f"[keys pressed: {keys}]")
        previous = s.conversation.append(item)
        s.replied = False
        self._out.append(Notify(ItemAdded(item.view(), previous)))
        if s.answers:
            self._listening.answer(s.input.watermark)
