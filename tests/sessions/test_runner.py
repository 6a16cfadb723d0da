"""What comes while nothing waits is handled as it comes; the rest in its turn, and nothing ever overtakes."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from sessions.core.config import SessionConfig
from sessions.core.effects import Effect
from sessions.core.events import AudioArrived, Event, InputClear, ResponseCreate, SpeechProbability
from sessions.core.notices import InputCleared, Notice, PlaybackStarted
from sessions.core.timeline import TICK_RATE, Ticks, from_ms
from sessions.handle import SessionHandle
from sessions.manager import SessionManager
from sessions.ports import TOGETHER, OutputFrame
from sessions.runner import AT_EASE, BATCH, EASE, GRID, SHORT, STRETCH
from sessions.virtual_clock import run
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier

CONFIG = SessionConfig(transcribe_input=True)
FRAME = bytes(960)
WINDOW: Ticks = from_ms(32)


def test_audio_is_heard_before_the_call_that_brought_it_returns() -> None:
    async def scenario() -> None:
        perception = LoudnessPerception()
        manager = SessionManager(CountingEngine(), perception)
        handle = manager.open(NotebookCarrier(), CONFIG)
        handle.audio(FRAME, 24_000)
        assert perception.fed[handle.session] == [(0, FRAME, 24_000)]
        await manager.close()

    run(scenario())


def test_what_waits_is_not_overtaken() -> None:
    async def scenario() -> None:
        perception, carrier = LoudnessPerception(), NotebookCarrier()
        manager = SessionManager(CountingEngine(), perception)
        handle = manager.open(carrier, CONFIG)
        handle.post(InputClear())
        handle.audio(FRAME, 24_000)
        assert perception.fed[handle.session] == []
        await asyncio.sleep(0)
        assert any(isinstance(notice, InputCleared) for notice in carrier.notices)
        assert len(perception.fed[handle.session]) == 1
        await manager.close()

    run(scenario())


def test_who_sends_many_or_much_at_once_waits_for_a_turn() -> None:
    async def scenario() -> None:
        perception = Silent()
        manager = SessionManager(CountingEngine(), perception)
        handle = manager.open(NotebookCarrier(), CONFIG)
        fed = perception.fed[handle.session]
        handle.audio(bytes(SHORT + 2), 24_000)
        assert fed == []
        await asyncio.sleep(0)
        assert len(fed) == 1
        await asyncio.sleep(STRETCH / 48_000)
        for _ in range(3 * BATCH):
            handle.audio(FRAME, 24_000)
        assert len(fed) == 1 + BATCH
        await asyncio.sleep(0.001)
        assert len(fed) == 1 + 3 * BATCH
        starts = [start for start, _, _ in fed]
        assert starts == sorted(starts)
        await manager.close()

    run(scenario())


class Silent(LoudnessPerception):
    """Hears and says nothing."""

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        self.fed[session].append((start, pcm, rate))


class Deaf(LoudnessPerception):
    """Fails at what it hears."""

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        raise RuntimeError("no ear")


def test_a_fault_of_ours_ends_the_session_and_not_the_caller() -> None:
    async def scenario() -> None:
        carrier = NotebookCarrier()
        manager = SessionManager(CountingEngine(), Deaf())
        handle = manager.open(carrier, CONFIG)
        handle.audio(FRAME, 24_000)
        handle.audio(FRAME, 24_000)
        await handle.closed()
        assert carrier.ended == "internal_error"
        assert manager.counters["session_fault"] == 1
        assert len(manager) == 0

    run(scenario())


class Chatty(NotebookCarrier):
    """Puts audio in from within what it is told: the session is at work then."""

    handle: SessionHandle

    def admit(self, *frames: OutputFrame) -> None:
        super().admit(*frames)
        for _ in frames:
            self.handle.audio(FRAME, 24_000)


def test_what_comes_while_the_session_is_at_work_comes_afterwards() -> None:
    async def scenario() -> None:
        carrier, perception = Chatty(), LoudnessPerception()
        manager = SessionManager(CountingEngine(seconds=1.0, delay=0.0), perception)
        carrier.handle = manager.open(carrier, SessionConfig(turns=None))
        carrier.handle.post(ResponseCreate())
        await asyncio.sleep(2.0)
        assert [frame.sequence for _, frame in carrier.frames] == list(range(50))
        assert len(perception.fed[carrier.handle.session]) == 50
        await manager.close()

    run(scenario())


def test_events_of_other_threads_are_handled_when_they_have_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        seen: list[Event] = []
        manager = SessionManager(CountingEngine(), LoudnessPerception())
        handle = manager.open(NotebookCarrier(), CONFIG)
        runner = handle._runner
        whole = runner._core.handle

        def spy(event: Event, now: Ticks) -> list[Effect]:
            seen.append(event)
            return whole(event, now)

        monkeypatch.setattr(runner._core, "handle", spy)
        handle.audio(FRAME, 24_000)
        events = [SpeechProbability(n * 960, (n + 1) * 960, 0.01) for n in range(5)]

        def tell() -> None:
            for event in events:
                runner.emit(event)

        thread = threading.Thread(target=tell)
        thread.start()
        thread.join()
        assert [event for event in seen if isinstance(event, AudioArrived)] == [AudioArrived(0, 960)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        crossed = [event for event in seen if isinstance(event, SpeechProbability)]
        assert crossed[-5:] == events
        await manager.close()

    run(scenario())


def spoken(config: SessionConfig) -> list[tuple[float, Ticks]]:
    """When each frame of a second of speech left, in seconds of the loop, and how far ahead of its end that was."""
    found: list[tuple[float, Ticks]] = []

    async def scenario() -> None:
        carrier = NotebookCarrier()
        manager = SessionManager(CountingEngine(seconds=1.0, delay=0.0), LoudnessPerception())
        began = asyncio.get_running_loop().time()
        manager.open(carrier, config).post(ResponseCreate())
        await asyncio.sleep(2.0)
        for at, frame in carrier.frames:
            found.append((at, frame.placed_at + frame.end - frame.start - round((at - began) * TICK_RATE)))
        assert [frame.sequence for _, frame in carrier.frames] == list(range(50))
        await manager.close()

    run(scenario())
    return found


def test_who_has_lead_to_spare_is_woken_for_several_frames_at_once_and_when_others_are() -> None:
    config = SessionConfig(turns=None)
    assert config.lead >= AT_EASE * config.frame
    sent = spoken(config)
    first, *later = sorted({at for at, _ in sent})
    assert [at for at, _ in sent].count(first) == config.lead // config.frame, "the lead itself is filled at once"
    assert all(at / GRID == pytest.approx(round(at / GRID)) for at in later)
    assert len(later) == math.ceil((50 - config.lead // config.frame) / EASE)
    spared = EASE * config.frame + round(GRID * TICK_RATE)
    assert all(config.lead - spared < ahead <= config.lead for at, ahead in sent if at > first)


def test_who_has_little_lead_is_woken_for_every_frame_when_it_may_leave() -> None:
    config = SessionConfig(turns=None, lead=from_ms(60))
    sent = spoken(config)
    assert len({at for at, _ in sent}) == 50 - config.lead // config.frame + 1
    assert all(ahead == pytest.approx(config.lead, abs=1) for _, ahead in sent[config.lead // config.frame :])


class Grouping(NotebookCarrier):
    """Writes down which frames it was given at once, and what came between."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[object] = []

    def admit(self, *frames: OutputFrame) -> None:
        super().admit(*frames)
        self.given.append([frame.sequence for frame in frames])

    def notify(self, notice: Notice) -> None:
        super().notify(notice)
        self.given.append(type(notice))


def test_frames_with_nothing_between_them_leave_together_and_not_too_many() -> None:
    carrier = Grouping()

    async def scenario() -> None:
        manager = SessionManager(CountingEngine(seconds=1.0, delay=0.0), LoudnessPerception())
        manager.open(carrier, SessionConfig(turns=None)).post(ResponseCreate())
        await asyncio.sleep(2.0)
        await manager.close()

    run(scenario())
    groups = [given for given in carrier.given if isinstance(given, list)]
    assert [number for group in groups for number in group] == list(range(50))
    assert max(map(len, groups)) == TOGETHER
    assert sorted({len(group) for group in groups}) != [1]
    began = carrier.given.index(PlaybackStarted)
    assert not any(isinstance(given, list) for given in carrier.given[:began]), "a notice is not overtaken"


class Heedful(LoudnessPerception):
    """Is told who has the floor."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bool] = []

    def floor(self, session: str, taken: bool) -> None:
        self.told.append(taken)


def test_a_perception_that_heeds_it_is_told_when_the_user_has_the_floor() -> None:
    async def scenario() -> None:
        perception = Heedful()
        manager = SessionManager(CountingEngine(), perception)
        runner = manager.open(NotebookCarrier(), CONFIG)._runner
        for number, chance in enumerate([0.0] * 3 + [0.9] * 10 + [0.0] * 40):
            runner.emit(SpeechProbability(number * WINDOW, (number + 1) * WINDOW, chance))
            await asyncio.sleep(WINDOW / TICK_RATE)
        assert perception.told == [True, False]
        await manager.close()

    run(scenario())
