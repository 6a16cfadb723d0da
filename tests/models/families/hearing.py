"""What the engine tests share: requests, a session's ear, and a talker and thinkers that need no model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.families.embedded.stop import Stop
from models.families.embedded.talker import Spoken
from models.families.embedded.thinker import Thinking, ThinkRequest, Thought
from sessions.core.effects import StartResponse
from sessions.core.events import EngineAudio, EngineDone, EngineFailed, EngineText, EngineWords, Event
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks, Word, from_ms

E = TypeVar("E")

PATIENCE = 60.0
"""Seconds after which a test that hears nothing has failed."""

MINUTE: Ticks = from_ms(60_000)
WORD_MS = 100


def fence(session: str = "s", epoch: int = 0, incarnation: int = 1) -> Fence:
    return Fence(session, incarnation, epoch)


def start(response: str = "r", at: Fence | None = None, credit: Ticks = MINUTE, **changes: object) -> StartResponse:
    fields: dict[str, object] = {
        "fence": at or fence(),
        "response": response,
        "context": (),
        "instructions": "",
        "modality": "audio",
        "voice": "default",
        "speed": 1.0,
        "tools": (),
        "tool_choice": "auto",
        "max_output_tokens": None,
        "temperature": 0.8,
        "credit": credit,
    }
    return StartResponse(**(fields | changes))  # type: ignore[arg-type]


class Ear:
    """An `Emit` that keeps everything, and lets a test wait for it."""

    def __init__(self) -> None:
        self.heard: list[tuple[Event, bytes | None]] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event, pcm: bytes | None = None) -> None:
        with self._changed:
            self.heard.append((event, pcm))
            self._changed.notify_all()

    def wait(self, condition: Callable[[Ear], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), PATIENCE):
                raise AssertionError(f"heard only {[event for event, _ in self.heard][-20:]}")

    def wait_for_end(self, response: str = "r") -> EngineDone | EngineFailed:
        self.wait(lambda ear: ear.end(response) is not None)
        end = self.end(response)
        assert end is not None
        return end

    def events(self, kind: type[E], response: str | None = None) -> list[E]:
        return [
            event
            for event, _ in list(self.heard)
            if isinstance(event, kind) and response in (None, getattr(event, "response", None))
        ]

    def end(self, response: str = "r") -> EngineDone | EngineFailed | None:
        ends: list[EngineDone | EngineFailed] = [
            *self.events(EngineDone, response),
            *self.events(EngineFailed, response),
        ]
        assert len(ends) <= 1, "a response ends once"
        return ends[0] if ends else None

    def audio(self, response: str = "r") -> list[EngineAudio]:
        return self.events(EngineAudio, response)

    def pcm(self, response: str = "r") -> bytes:
        return b"".join(
            pcm or b""
            for event, pcm in list(self.heard)
            if isinstance(event, EngineAudio) and event.response == response
        )

    def length(self, response: str = "r") -> Ticks:
        audio = self.audio(response)
        return audio[-1].end if audio else 0

    def words(self, response: str = "r") -> list[Word]:
        return [word for event in self.events(EngineWords, response) for word in event.words]

    def spoken(self, response: str = "r") -> str:
        return "".join(word.text for word in self.words(response))

    def text(self, response: str = "r") -> str:
        return "".join(event.text for event in self.events(EngineText, response))


class Metronome:
    """A talker whose every word lasts 100 ms, a constant level that counts the clauses."""

    rate = 24_000
    voices: tuple[str, ...] = ("default",)

    def __init__(self) -> None:
        self.clauses: list[str] = []

    def speak(self, text: str, *, voice: str = "default", speed: float = 1.0, first: bool = True) -> Spoken:
        self.clauses.append(text)
        length = from_ms(WORD_MS)
        words = tuple(
            Word(word if first and not at else " " + word, at * length, (at + 1) * length)
            for at, word in enumerate(text.split())
        )
        level = (len(self.clauses) % 1000 + 1).to_bytes(2, "little")
        return Spoken(level * (len(words) * self.rate * WORD_MS // 1000), words)


class Hummer(Metronome):
    """A talker whose every word is a hum of 70 to 130 ms, at a pitch of its own."""

    voices = ("default", "stranger")

    def speak(self, text: str, *, voice: str = "default", speed: float = 1.0, first: bool = True) -> Spoken:
        self.clauses.append(text)
        words: list[Word] = []
        hums: list[NDArray[np.float64]] = []
        at = 0
        for number, word in enumerate(text.split()):
            samples = 24 * (70 + 17 * len(word) % 61)
            hums.append(0.2 * np.sin(np.arange(samples) * 2 * np.pi * (110 + 13 * len(word)) / 24_000))
            lead = "" if first and not number else " "
            words.append(Word(lead + word, 2 * at, 2 * (at + samples)))
            at += samples
        return Spoken((np.concatenate(hums) * 32767).astype("<i2").tobytes(), tuple(words))


class Reciter:
    """A thinker that tells the same thoughts each time; may be held before each, and counts how far it came."""

    def __init__(self, *thoughts: Thought, thinking: Thinking | None = None, error: Exception | None = None) -> None:
        self.thoughts = thoughts
        self.thinking = thinking or Thinking()
        self.error = error
        self.requests: list[ThinkRequest] = []
        self.stops: list[Stop] = []
        self.told = 0
        self.closed = False
        self.go = threading.Event()
        self.go.set()
        self.ended = threading.Semaphore(0)

    def think(self, request: ThinkRequest, tell: Callable[[Thought], None], stop: Stop) -> Thinking:
        self.requests.append(request)
        self.stops.append(stop)
        stop.then(self.go.set)
        try:
            for thought in self.thoughts:
                self.go.wait(PATIENCE)
                if stop:
                    break
                self.told += 1
                tell(thought)
            if self.error is not None:
                raise self.error
            return self.thinking
        finally:
            self.ended.release()

    def close(self) -> None:
        self.closed = True


class _Engine(Protocol):
    def shutdown(self) -> None: ...


@contextmanager
def shut(*things: _Engine) -> Iterator[None]:
    """Shuts down engines at the end, also of a failed test, so that no thread outlives it."""
    try:
        yield
    finally:
        for thing in things:
            thing.shutdown()
