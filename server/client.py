"""A Realtime client with a microphone and a loudspeaker: one clock, absolute deadlines, everything kept.

The microphone behaves like one: a 20 ms frame leaves when its last sample has been captured. The loudspeaker is
computed afterwards from what arrived and when (`Playout`), as a client with a plain playback buffer would have played
it: from the first audio on, without a gap as long as there is audio, emptied when `speech_started` arrives.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
import soxr
import websockets
from numpy.typing import NDArray

RATE = 24_000
"""Hz of PCM on the wire (Realtime GA knows no other)."""

FRAME_MS = 20
FRAME = RATE * FRAME_MS // 1000

Pcm = NDArray[np.int16]


class ClientError(Exception):
    """The server did not do what the scenario waits for; the message says what was waited for and what came instead."""


@dataclass(frozen=True, slots=True)
class Received:
    """One server event and when it arrived, in seconds on the client's clock."""

    at: float
    body: Mapping[str, object]

    @property
    def type(self) -> str:
        return self.text("type")

    def text(self, *path: str) -> str:
        """The string at `path`, "" if there is none."""
        value = self._at(path)
        return value if isinstance(value, str) else ""

    def number(self, *path: str) -> float | None:
        """The number at `path`, None if there is none."""
        value = self._at(path)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def response(self) -> str:
        """Id of the response that the event belongs to, "" if to none."""
        return self.text("response_id") or self.text("response", "id")

    def pcm(self) -> Pcm:
        """Samples of a `response.output_audio.delta`: int16 [samples] at 24 kHz."""
        return np.frombuffer(base64.b64decode(self.text("delta")), "<i2")

    def _at(self, path: Iterable[str]) -> object:
        value: object = self.body
        for key in path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value


@dataclass(slots=True)
class Utterance:
    """A clip in the microphone: when its first sample was captured, in seconds on the client's clock."""

    pcm: Pcm
    began: asyncio.Future[float]
    offset: int = 0

    async def time_of(self, sample: int) -> float:
        """When `sample` of the clip (at 24 kHz) was captured; waits until the clip has begun."""
        return await self.began + sample / RATE


def to_wire_rate(pcm: Pcm, rate: int) -> Pcm:
    """int16 [samples] at `rate` Hz to int16 at 24 kHz."""
    return pcm if rate == RATE else np.asarray(soxr.resample(pcm, rate, RATE, quality="HQ"), np.int16)


class RealtimeClient:
    """One session. An async context manager; `events` keeps everything that arrived, in order."""

    def __init__(
        self,
        url: str,
        session: Mapping[str, object] | None = None,
        *,
        key: str = "none",
        floor_dbfs: float = -70.0,
    ) -> None:
        self.url = url
        self._key = key
        self.events: list[Received] = []
        self._session = session
        self._queue: list[Utterance] = []
        self._news = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        # Room noise, the same in every run: no microphone gives digital silence.
        noise = np.random.default_rng(20).normal(size=10 * RATE) * 32768 * 10 ** (floor_dbfs / 20)
        self._noise = np.round(noise).astype(np.int16)
        self.frames_sent = 0
        self.microphone_began = float("nan")
        """Clock time of the first sample that was captured: where the server's input track begins."""
        self.late_frames = 0
        self._finished: BaseException | None = None

    @property
    def session(self) -> str:
        """Id of the session, once connected."""
        return next((event.text("session", "id") for event in self.events if event.type == "session.created"), "")

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def __aenter__(self) -> RealtimeClient:
        self._socket = await websockets.connect(
            self.url,
            additional_headers={"Authorization": f"Bearer {self._key}"},
            max_size=None,
            compression=None,
            proxy=None,
        )
        self._tasks.append(asyncio.create_task(self._read(), name="client-reader"))
        await self.wait_for("session.created")
        if self._session is not None:
            await self.send({"type": "session.update", "session": self._session})
            await self.wait_for("session.updated")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._socket.close()

    # --- events ----------------------------------------------------------------------------------------------------

    async def send(self, event: Mapping[str, object]) -> None:
        await self._socket.send(json.dumps(event))

    async def wait_for(
        self,
        wanted: str | Callable[[Received], bool],
        *,
        after: int = 0,
        within: float = 30.0,
    ) -> Received:
        """The first event from index `after` on that is of type `wanted` or satisfies it.

        Raises ClientError when none came in `within` seconds, or the connection ended before.
        """
        found: list[Received] = []
        seen = after

        def look() -> bool:
            nonlocal seen
            while seen < len(self.events):
                event = self.events[seen]
                seen += 1
                if event.type == wanted if isinstance(wanted, str) else wanted(event):
                    found.append(event)
                    return True
            return self._finished is not None

        what = wanted if isinstance(wanted, str) else getattr(wanted, "__doc__", None) or "a certain event"
        try:
            async with asyncio.timeout(within), self._news:
                await self._news.wait_for(look)
        except TimeoutError:
            raise ClientError(f"waited {within:.0f} s for {what}; last came {self._tail(after)}") from None
        if not found:
            raise ClientError(f"connection ended while waiting for {what}: {self._finished}; last {self._tail(after)}")
        return found[0]

    def of(self, *types: str, after: int = 0) -> list[Received]:
        """The events of these types from index `after` on."""
        return [event for event in self.events[after:] if event.type in types]

    def _tail(self, after: int) -> str:
        types = [event.type if event.type != "error" else str(event.body) for event in self.events[after:]]
        return ", ".join(types[-6:]) or "nothing"

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                at = self.now
                if isinstance(message, bytes):
                    raise ClientError("a binary frame on a JSON socket")
                self.events.append(Received(at, json.loads(message)))
                async with self._news:
                    self._news.notify_all()
            self._finished = ClientError("closed by the server")
        except websockets.ConnectionClosed as closed:
            self._finished = closed
        except ClientError as error:
            self._finished = error
        async with self._news:
            self._news.notify_all()

    # --- microphone ------------------------------------------------------------------------------------------------

    def open_microphone(self) -> None:
        """Start capturing: room noise from here on, and whatever `say` puts in."""
        self._tasks.append(asyncio.create_task(self._capture(), name="client-microphone"))

    def say(self, pcm: Pcm, rate: int = RATE) -> Utterance:
        """Put a clip into the microphone; it begins with the next frame that is not yet taken by another clip."""
        utterance = Utterance(to_wire_rate(pcm, rate), asyncio.get_running_loop().create_future())
        self._queue.append(utterance)
        return utterance

    async def pause(self, seconds: float) -> None:
        """Let the microphone run for so long: the scenario's own pacing, not a wait for the server."""
        await asyncio.sleep(seconds)

    def _next_frame(self, began: float) -> Pcm:
        start = self.frames_sent * FRAME % (len(self._noise) - FRAME)
        frame = self._noise[start : start + FRAME].astype(np.int32)
        filled = 0
        while filled < FRAME and self._queue:
            utterance = self._queue[0]
            if utterance.offset == 0 and not utterance.began.done():
                utterance.began.set_result(began + filled / RATE)
            piece = utterance.pcm[utterance.offset : utterance.offset + FRAME - filled]
            frame[filled : filled + len(piece)] += piece
            utterance.offset += len(piece)
            filled += len(piece)
            if utterance.offset >= len(utterance.pcm):
                self._queue.pop(0)
        return np.clip(frame, -32768, 32767).astype("<i2")

    async def _capture(self) -> None:
        start, index = self.now, 0
        self.microphone_began = start
        while True:
            began = start + index * FRAME_MS / 1000
            due = began + FRAME_MS / 1000
            frame = self._next_frame(began)
            await asyncio.sleep(due - self.now)
            if self.now - due > FRAME_MS / 1000:
                self.late_frames += 1
            audio = base64.b64encode(frame.tobytes()).decode()
            try:
                await self._socket.send('{"type":"input_audio_buffer.append","audio":"' + audio + '"}')
            except websockets.ConnectionClosed:
                return
            self.frames_sent += 1
            index += 1


# --- loudspeaker ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Played:
    """A stretch that came out of the loudspeaker without a gap: content [first, first + samples) of `response`."""

    response: str
    at: float
    first: int
    samples: int


@dataclass(slots=True)
class Playout:
    """What a client heard. `pcm` has, by response, all audio that arrived; `played` what of it was heard, and when."""

    pcm: dict[str, Pcm] = field(default_factory=dict)
    played: list[Played] = field(default_factory=list)
    flushed: int = 0
    """Samples that had arrived and were thrown away on `speech_started`."""

    def heard(self, response: str) -> int:
        """Samples of `response` that were heard."""
        return sum(stretch.samples for stretch in self.played if stretch.response == response)


def play_out(events: Iterable[Received], until: float | None = None) -> Playout:
    """What a plain player makes of `events`, up to the clock time `until` (default: until its buffer is empty)."""
    arrived: dict[str, list[Pcm]] = {}
    counts: dict[str, int] = {}
    stretches: list[Played] = []
    out = Playout()
    head = 0.0
    for event in events:
        if until is not None and event.at > until:
            break
        if event.type == "response.output_audio.delta":
            pcm = event.pcm()
            response = event.response
            arrived.setdefault(response, []).append(pcm)
            first = counts.get(response, 0)
            counts[response] = first + len(pcm)
            last = stretches[-1] if stretches else None
            if last is not None and last.response == response and event.at <= head:
                stretches[-1] = Played(response, last.at, last.first, last.samples + len(pcm))
            else:
                head = max(head, event.at)
                stretches.append(Played(response, head, first, len(pcm)))
            head += len(pcm) / RATE
        elif event.type == "input_audio_buffer.speech_started" and head > event.at:
            stretches, cut = _cut(stretches, event.at)
            out.flushed += cut
            head = event.at
    if until is not None:
        stretches, _ = _cut(stretches, until)
    out.pcm = {response: np.concatenate(parts) for response, parts in arrived.items()}
    out.played = stretches
    return out


def _cut(stretches: list[Played], at: float) -> tuple[list[Played], int]:
    """Drop what would have been played after `at`; returns what stays and the number of samples dropped."""
    kept, dropped = [], 0
    for stretch in stretches:
        samples = min(stretch.samples, max(0, round((at - stretch.at) * RATE)))
        dropped += stretch.samples - samples
        if samples:
            kept.append(Played(stretch.response, stretch.at, stretch.first, samples))
    return kept, dropped
