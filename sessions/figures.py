"""Figures of a conversation, read off what its core does: how long each answer took and where, how it was interrupted.

An observer beside the core: it decides nothing, needs no clock, and gives the same figures for a recorded session as
for a living one. All times are session time in ticks. A position on the input track is taken as the session time at
which it arrived.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from .core.effects import AdmitFrame, Effect, Notify
from .core.notices import (
    EpochBegan,
    Held,
    Notice,
    PlaybackCleared,
    PlaybackStarted,
    PlaybackStopped,
    ResponseClosed,
    ResponseOpened,
    Resumed,
    StageReached,
    TurnEnded,
)
from .core.timeline import Ticks


@dataclass(frozen=True, slots=True)
class Answer:
    """The first sample of an answer has left, or an answer that is text alone is over.

    `speech_end`: the true end of the user's speech, None where the client asked for the answer; `turn_ended`: when that
    was decided; `opened`: when the response was told of; `stages`: when it reached each, "words" among them, which may
    be before the turn had ended; `audible`: when its first sample was admitted, None for text; `asked`: since when it
    was waited for, None where nothing tells.
    """

    response: str
    speech_end: Ticks | None
    turn_ended: Ticks | None
    opened: Ticks
    stages: tuple[tuple[str, Ticks], ...]
    audible: Ticks | None
    asked: Ticks | None = None

    @property
    def latency(self) -> Ticks | None:
        """From the true end of speech to the first sample, None where nobody spoke or nothing is to be heard."""
        if self.speech_end is None or self.audible is None:
            return None
        return self.audible - self.speech_end


@dataclass(frozen=True, slots=True)
class Interruption:
    """An epoch has ended. `onset`: when the sound that caused it began; `held`: when the agent fell silent for it, if
    that was before `at`; `unheard`: ticks of audio that had left and were not heard any more."""

    cause: str
    epoch: int
    at: Ticks
    onset: Ticks | None
    held: Ticks | None
    unheard: Ticks

    @property
    def stopped_after(self) -> Ticks | None:
        """From the onset of the sound to the moment from which nothing more left."""
        stopped = self.at if self.held is None else self.held
        return None if self.onset is None else stopped - self.onset


@dataclass(frozen=True, slots=True)
class Pause:
    """A hold that was no interruption. `words`: what was understood of the sound ("" for none)."""

    onset: Ticks
    held: Ticks
    resumed: Ticks
    words: str


@dataclass(frozen=True, slots=True)
class ResponseEnded:
    """A response is closed. `status` as in its view; `tokens`: (read, written)."""

    response: str
    at: Ticks
    status: str
    modality: str
    tokens: tuple[int, int]
    aside: bool


Figure: TypeAlias = Answer | Interruption | Pause | ResponseEnded


@dataclass(slots=True)
class _Growing:
    """A response on its way to its first sample."""

    opened: Ticks | None = None
    asked: Ticks | None = None
    stages: list[tuple[str, Ticks]] = field(default_factory=list)

    def reach(self, notice: StageReached, now: Ticks) -> None:
        self.stages.append((notice.stage, now))
        if notice.elapsed is not None:
            self.asked = now - notice.elapsed


class Figures:
    """Observer of one session."""

    def __init__(self) -> None:
        self._turn: tuple[Ticks, Ticks] | None = None
        """(end of speech, when that was decided) of a turn that is not answered yet."""
        self._growing: dict[str, _Growing] = {}
        self._sent: dict[str, Ticks] = {}
        self._held: tuple[Ticks, Ticks] | None = None
        """(onset, when the agent was held)."""

    def take(self, effects: Iterable[Effect], now: Ticks, watermark: Ticks) -> list[Figure]:
        """What the `effects` of one event tell. `watermark`: of the input track, after the event."""
        figures: list[Figure] = []
        cut: EpochBegan | None = None
        unheard: Ticks = 0
        for effect in effects:
            if type(effect) is AdmitFrame:
                self._sent[effect.response] = effect.end
            elif type(effect) is Notify:
                notice = effect.notice
                if type(notice) is EpochBegan:
                    cut = notice
                elif type(notice) is PlaybackCleared:
                    unheard += self._sent.pop(notice.response, notice.heard) - notice.heard
                else:
                    self._notice(notice, now, watermark, figures)
        if cut is not None:
            figures.append(self._interruption(cut, now, watermark, unheard))
        return figures

    def _notice(self, notice: Notice, now: Ticks, watermark: Ticks, figures: list[Figure]) -> None:
        match notice:
            case TurnEnded():
                self._turn = now - (watermark - notice.speech_end), now
            case StageReached() if notice.response:
                self._growing.setdefault(notice.response, _Growing()).reach(notice, now)
            case ResponseOpened():
                self._growing.setdefault(notice.response.id, _Growing()).opened = now
            case PlaybackStarted():
                figures.append(self._answer(notice.response, now))
            case PlaybackStopped():
                self._sent.pop(notice.response, None)
            case ResponseClosed():
                view = notice.response
                if view.modality == "text" and view.id in self._growing and not view.aside:
                    figures.append(self._answer(view.id, now, audible=False))
                self._growing.pop(view.id, None)
                tokens = view.input_tokens, view.output_tokens
                figures.append(ResponseEnded(view.id, now, view.status, view.modality, tokens, view.aside))
            case Held():
                self._held = now - (watermark - notice.at), now
            case Resumed():
                if self._held is not None:
                    figures.append(Pause(*self._held, now, notice.words))
                self._held = None
            case _:
                pass

    def _answer(self, response: str, now: Ticks, *, audible: bool = True) -> Answer:
        growing = self._growing.get(response) or _Growing()
        speech_end, turn_ended = self._turn or (None, None)
        self._turn = None
        # Stages of an answer that was thought of before and thrown away are never told of: its response is another.
        self._growing = {response: growing}
        opened = now if growing.opened is None else growing.opened
        heard = now if audible else None
        return Answer(response, speech_end, turn_ended, opened, tuple(growing.stages), heard, growing.asked)

    def _interruption(self, cut: EpochBegan, now: Ticks, watermark: Ticks, unheard: Ticks) -> Interruption:
        onset = None if cut.at is None else now - (watermark - cut.at)
        held, self._held = self._held, None
        return Interruption(cut.cause, cut.epoch, now, onset, None if held is None else held[1], unheard)
