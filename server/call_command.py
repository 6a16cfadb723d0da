"""`talkover call`: a recording as a caller, through one vendor's protocol, against any server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

import numpy as np
import soundfile
import soxr
import websockets
from websockets.typing import Subprotocol

from codec.pcm import Samples

from .client import RATE as SPEECH_RATE
from .dialects.telephony.base import Message
from .phone_peers import FRAME_MS, PEERS, Clear, Mark, Playout, Said, Sound, VendorPeer
from .serve import run
from .talk import TalkError, read_speech

QUIET_AFTER: Final = 2.0
"""Seconds of silence after an answer that end the call."""
ANSWER_WITHIN: Final = 30.0


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that came from the server, and when: seconds from the start of the call."""

    at: float
    what: str
    detail: str = ""


@dataclass(slots=True)
class Figures:
    """What a call was like. Times in seconds from its start, None where it did not come to that."""

    vendor: str
    seconds: float = 0.0
    sound_seconds: float = 0.0
    first_sound: float | None = None
    answer_after: float | None = None
    """From the end of what the caller said to the first sound of the answer."""
    marks: int = 0
    clears: int = 0
    deepest_ms: float = 0.0
    """The most that the vendor's buffer held."""
    closed: str = ""
    happenings: list[Happening] = field(default_factory=list)


class Caller:
    """One call by `peer`, in real time. An async context manager; `figures` grows while it lasts."""

    def __init__(
        self, url: str, peer: VendorPeer, headers: Mapping[str, str] | None = None, *, noise: float = 4.0
    ) -> None:
        """`url`: ws:// or wss:// and the host, without a path; for AudioSocket tcp://host:port. `noise`: of the
        caller's room, RMS in units of a sample."""
        self._noise = noise
        self.peer = peer
        self.playout = Playout(peer.rate)
        self.figures = Figures(peer.vendor)
        self.heard: list[Samples] = []
        """Everything that the server sent, as it came."""
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._queue: list[Samples] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._began = 0.0
        self._socket: websockets.ClientConnection | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.spoken = asyncio.Event()
        """Set while everything that was to be said is said."""
        self.spoken.set()
        self.said_until = 0.0
        self.news = asyncio.Event()
        """Set at each thing that comes from the server; whoever waits clears it."""
        self.over = asyncio.Event()

    @property
    def now(self) -> float:
        """Seconds since the call started."""
        return asyncio.get_running_loop().time() - self._began

    async def __aenter__(self) -> Caller:
        self._began = asyncio.get_running_loop().time()
        if self.peer.vendor == "audiosocket":
            where = urlsplit(self._url)
            reader, self._writer = await asyncio.open_connection(where.hostname, where.port)
            reading = self._read_stream(reader)
        else:
            offered = [Subprotocol(name) for name in self.peer.subprotocols] or None
            self._socket = await websockets.connect(
                self._url + self.peer.path,
                additional_headers=self._headers,
                subprotocols=offered,
                compression=None,
                proxy=None,
            )
            reading = self._read_socket(self._socket)
        for message in self.peer.begin():
            await self.send(message)
        self._tasks = [asyncio.create_task(reading), asyncio.create_task(self._pace())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.figures.seconds = round(self.now, 2)
        self.figures.deepest_ms = round(self.playout.deepest_ms, 1)
        if kind is None and not self.over.is_set():
            for message in self.peer.end():
                await self.send(message)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            await self._socket.close()
        if self._writer is not None:
            self._writer.close()

    async def send(self, message: Message) -> None:
        """A message of the vendor; nothing where the server has closed."""
        try:
            if self._socket is not None:
                await self._socket.send(message)
            elif self._writer is not None:
                self._writer.write(message if isinstance(message, bytes) else message.encode())
        except (websockets.ConnectionClosed, ConnectionError):
            self._end()

    def _end(self) -> None:
        """The server has hung up: who waits for anything of this call waits no longer."""
        for event in (self.over, self.spoken, self.news):
            event.set()

    def say(self, pcm: Samples) -> None:
        """Say `pcm`, at the peer's rate, after what is being said."""
        self._queue.append(pcm)
        self.spoken.clear()

    async def _pace(self) -> None:
        size = self.peer.rate * FRAME_MS // 1000
        noise = np.round(np.random.default_rng(5).normal(size=50 * size) * self._noise).astype(np.int16)
        due = asyncio.get_running_loop().time()
        tick = 0
        while not self.over.is_set():
            frame = noise[tick % 50 * size :][:size].copy()
            if self._queue:
                head = self._queue[0][:size]
                frame[: len(head)] = head
                self._queue[0] = self._queue[0][size:]
                if not len(self._queue[0]):
                    del self._queue[0]
                    if not self._queue:
                        self.said_until = self.now
                        self.spoken.set()
            await self.send(self.peer.speak(frame))
            _, replies = self.playout.tick()
            for reply in replies:
                await self.send(reply)
            tick += 1
            due += FRAME_MS / 1000
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

    async def _read_socket(self, socket: websockets.ClientConnection) -> None:
        try:
            async for message in socket:
                await self._take(message)
        finally:
            self.figures.closed = f"{socket.close_code} {socket.close_reason}".strip()
            self._end()

    async def _read_stream(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(4096):
            await self._take(data)
        self.figures.closed = "closed"
        self._end()

    async def _take(self, message: Message) -> None:
        figures = self.figures
        for happened in self.peer.take(message):
            if isinstance(happened, Sound):
                if figures.first_sound is None:
                    figures.first_sound = round(self.now, 3)
                if self.said_until and figures.answer_after is None and self.spoken.is_set():
                    figures.answer_after = round(self.now - self.said_until, 3)
                figures.sound_seconds += len(happened.pcm) / self.peer.rate
                self.heard.append(happened.pcm)
            elif isinstance(happened, Mark):
                figures.marks += 1
            elif isinstance(happened, Clear):
                figures.clears += 1
                figures.happenings.append(Happening(round(self.now, 3), "clear"))
            elif isinstance(happened, Said):
                figures.happenings.append(Happening(round(self.now, 3), "said", str(happened.message)[:200]))
            for reply in self.playout.take(happened):
                await self.send(reply)
        self.news.set()

    async def quiet(self, seconds: float, within: float = ANSWER_WITHIN) -> None:
        """Wait until everything is said and an answer was heard to its end, `seconds` of silence after it."""
        deadline = self.now + within
        await self.spoken.wait()
        sounds = len(self.heard)
        while not self.over.is_set() and self.now < deadline:
            self.news.clear()
            left = seconds if len(self.heard) > sounds or self.figures.answer_after is not None else deadline - self.now
            try:
                async with asyncio.timeout(max(0.05, left)):
                    await self.news.wait()
            except TimeoutError:
                if not self.playout.waiting:
                    return


def call(
    *,
    file: Path,
    vendor: str,
    url: str,
    out: Path | None,
    parameters: Sequence[str],
    digits: str,
    interrupt_at: Sequence[Sequence[str]],
    as_json: bool,
) -> int:
    """Make the call and print what came of it; returns the exit status."""
    try:
        given = dict(_parameter(one) for one in parameters)
        others = [(float(at), read_speech(Path(name))) for at, name in interrupt_at]
        return run(_call(read_speech(file), others, PEERS[vendor](f"sim-{vendor}", given), url, out, digits, as_json))
    except (TalkError, ValueError) as error:
        print(f"talkover call: {error}", file=sys.stderr)
        return 2
    except (OSError, websockets.WebSocketException) as error:
        print(f"talkover call: no call at {url}: {error}; is the server running there?", file=sys.stderr)
        return 1


def _parameter(given: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not separator or not name:
        raise TalkError(f"--param {given}: give NAME=VALUE")
    return name, value


def at_rate(pcm: Samples, rate: int, to: int) -> Samples:
    """int16 at `rate` to int16 at `to`."""
    return pcm if rate == to else np.asarray(soxr.resample(pcm, rate, to, quality="HQ"), np.int16)


async def _call(
    speech: Samples,
    others: Sequence[tuple[float, Samples]],
    peer: VendorPeer,
    url: str,
    out: Path | None,
    digits: str,
    as_json: bool,
) -> int:
    if peer.vendor == "audiosocket":
        peer.call = "5a1e0000000040008000000000000001"
    async with Caller(url, peer) as caller:
        caller.say(at_rate(speech, SPEECH_RATE, peer.rate))
        for after, pcm in others:
            while caller.figures.first_sound is None and not caller.over.is_set():
                caller.news.clear()
                await caller.news.wait()
            await asyncio.sleep(max(0.0, (caller.figures.first_sound or 0.0) + after - caller.now))
            caller.say(at_rate(pcm, SPEECH_RATE, peer.rate))
        for digit in digits:
            await caller.send(peer.press(digit))
        await caller.quiet(QUIET_AFTER)
    figures = caller.figures
    if out is not None:
        heard = np.concatenate(caller.playout.played) if caller.playout.played else np.zeros(1, np.int16)
        soundfile.write(out, heard, peer.rate)
    plain = {name: getattr(figures, name) for name in figures.__dataclass_fields__ if name != "happenings"}
    plain["sound_seconds"] = round(figures.sound_seconds, 2)
    if as_json:
        plain["happenings"] = [[one.at, one.what, one.detail] for one in figures.happenings]
        print(json.dumps(plain, indent=1))
    else:
        for one in figures.happenings:
            print(f"{one.at:8.3f}  {one.what:6} {one.detail}")
        print("  ".join(f"{name} {value}" for name, value in plain.items() if value not in (None, "")))
        if out is not None:
            print(f"heard: {out}")
    return 0 if figures.first_sound is not None else 1
