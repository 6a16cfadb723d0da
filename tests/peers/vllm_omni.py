"""A server of vLLM-Omni's duplex protocol (0.30) whose model is a rule: it hears loudness and answers with a tone.

Events, their order and their fields are those of the published `/v1/realtime?duplex=1`; the published client talks to
it (`tests/conformance/test_vllm_omni_peer.py`). `--fault` makes it do what a server does on a bad day.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import secrets
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

Message = dict[str, object]
RATE = 24_000
PIECE_MS = 400
WORDS = ("One", " two", " three", " four", " five", " six", " seven", " eight", " nine", " ten")

FAULTS = (
    "drop",  # the connection goes in the middle of the first response; the session stays
    "drop-always",  # every connection goes at its first audio
    "die",  # the process goes in the middle of the first response
    "silent",  # from the first response on nothing is said any more, not even to a heartbeat
    "stall",  # the first response stops in its middle
    "late",  # after a cancel it goes on with the old response, under its old epoch
    "late-new",  # after a cancel it first begins another response that was asked for before it
    "garbage",  # nonsense between the events
    "nonsense",  # nothing but nonsense after the handshake
    "refuse",  # no session without a reference voice
    "full",  # no room
    "backpressure",  # appends are refused for a while
    "flood",  # a minute and a half of audio at once
    "duplicate",  # every numbered event comes twice
    "mute",  # the handshake is never answered
    "call",  # the first question is answered by a call of the first tool that was offered
    "wrong-rate",  # it listens at another rate than it is sent
)


class Session:
    """One session: it outlives its connections."""

    def __init__(self, peer: Peer, session: Mapping[str, object]) -> None:
        self.peer = peer
        self.id = f"duplex-{secrets.token_hex(6)}"
        self.token = secrets.token_urlsafe(16)
        self.given = session
        self.rate = int(str(session.get("sample_rate_hz") or 16_000))
        self.encoding = str(session.get("input_audio_format") or "pcm16")
        self.generation = 1
        self.epoch = 0
        self.journal: list[Message] = []
        self.socket: ServerConnection | None = None
        self.loud_ms = 0.0
        self.quiet_ms = 0.0
        self.answers = 0
        self.active: str | None = None
        self.task: asyncio.Task[None] | None = None
        self.playback: dict[str, int] = defaultdict(int)
        self.silent = False
        self.calls: list[str] = []

    def public(self) -> Message:
        fault = self.peer.faults
        return {
            "object": "realtime.session",
            "type": "realtime",
            "id": self.id,
            "session_id": self.id,
            "model": self.given.get("model"),
            "input_audio_format": self.encoding,
            "sample_rate_hz": 8000 if "wrong-rate" in fault else self.rate,
            "output_audio_format": "pcm16",
            "modalities": ["text", "audio"],
            "turn_detection": self.given.get("turn_detection"),
            "capabilities": {
                "supports_model_native_turn_policy": True,
                "supports_client_commit": not self.peer.continuous,
                "supports_barge_in": not self.peer.continuous,
                "supports_playback_ack": True,
                "supports_session_resume": self.peer.resumes,
                "chunk_period_ms": 80 if self.peer.continuous else self.peer.chunk_ms,
            },
        }

    async def opened(self, kind: str) -> None:
        event: Message = {"type": kind, "session": self.public()}
        if kind == "session.resumed":
            event["session_id"] = self.id
        if self.peer.resumes:
            event |= {"resume_token": self.token, "attachment_generation": self.generation}
        await self.put(event)

    async def put(self, event: Message) -> None:
        """Send an event that has no number."""
        event.setdefault("event_id", f"event_{secrets.token_hex(8)}")
        socket = self.socket
        if socket is not None and not self.silent:
            try:
                await socket.send(json.dumps(event))
            except ConnectionClosed:
                self.socket = None

    async def say(self, event: Message) -> None:
        """Send an event, numbered and kept for a client that comes back."""
        event["server_event_seq"] = len(self.journal) + 1
        self.journal.append(event)
        await self.put(event)
        if "duplicate" in self.peer.faults:
            await self.put(event)
        if "garbage" in self.peer.faults and len(self.journal) % 4 == 0 and self.socket is not None:
            await self.socket.send("{not json")
            await self.socket.send(json.dumps({"type": "response.output_audio.delta", "delta": "!", "response_id": 3}))
            await self.socket.send(json.dumps({"type": "response.haiku", "event_id": "event_x"}))

    # --- input -------------------------------------------------------------------------------------------------------

    async def hear(self, event: Mapping[str, object]) -> None:
        raw = base64.b64decode(str(event.get("audio", "")))
        rate = int(str(event.get("sample_rate_hz") or self.rate))
        if str(event.get("format", self.encoding)) == "pcm_f32le":
            samples = np.frombuffer(raw, "<f4")
        else:
            samples = np.frombuffer(raw, "<i2").astype(np.float32) / 32768
        ms = samples.size * 1000 / rate
        loud = bool(samples.size) and float(np.sqrt(np.mean(samples**2))) > 0.02
        if self.peer.continuous:
            await self.stream(loud, ms)
            return
        if loud:
            self.loud_ms, self.quiet_ms = self.loud_ms + ms, 0.0
            if self.active is not None and self.loud_ms >= 300:
                await self.cancel(self.active, "turn_detected")
        else:
            self.quiet_ms += ms
            if self.loud_ms >= 200 and self.quiet_ms >= 300 and self.active is None:
                self.loud_ms = 0.0
                self.answer()

    def answer(self) -> None:
        self.answers += 1
        tools = self.given.get("tools")
        if "call" in self.peer.faults and self.answers == 1 and isinstance(tools, list):
            self.task = asyncio.create_task(self.call(str(tools[0]["name"])))
            return
        self.active = f"resp_{self.id[-4:]}_{self.answers}"
        self.task = asyncio.create_task(self.respond(self.active, self.epoch))

    async def call(self, name: str) -> None:
        """A tool's call is a response of its own."""
        self.calls.append(f"call_{self.id[-4:]}_{self.answers}")
        response, item = f"resp_{self.calls[-1]}", f"item_{self.calls[-1]}"
        arguments = '{"city":"Ulm"}'
        shown: Message = {
            "id": item,
            "object": "realtime.item",
            "type": "function_call",
            "status": "completed",
            "name": name,
            "call_id": self.calls[-1],
            "arguments": arguments,
        }
        whole: Message = {"id": response, "object": "realtime.response", "metadata": {}}
        place: Message = {"response_id": response, "output_index": 0}
        begun = {**whole, "status": "in_progress", "output": []}
        await self.say({"type": "response.created", "response_id": response, "response": begun})
        await self.say({"type": "conversation.item.added", "previous_item_id": None, "item": shown})
        await self.say({"type": "response.output_item.added", "item": shown, **place})
        said: Message = {"item_id": item, "call_id": self.calls[-1], **place}
        await self.say({"type": "response.function_call_arguments.delta", "delta": arguments, **said})
        await self.say({"type": "response.function_call_arguments.done", "arguments": arguments, **said})
        await self.say({"type": "response.output_item.done", "item": shown, **place})
        done = {**whole, "status": "completed", "output": [shown]}
        await self.say({"type": "response.done", "response_id": response, "response": done})

    async def take(self, item: Mapping[str, object]) -> None:
        """An item that the client made. The answer to a call goes on where the call was."""
        if item.get("type") == "function_call_output":
            if item.get("call_id") not in self.calls:
                told = "function_call_output requires the call_id of a completed function call"
                await error(self, "invalid_function_call_output", told)
                return
            self.answer()
        await self.say({"type": "conversation.item.created", "previous_item_id": None, "item": dict(item)})

    # --- output ------------------------------------------------------------------------------------------------------

    async def stream(self, loud: bool, ms: float) -> None:
        """One endless response: as much output as input, silence unless there was speech before."""
        response = f"resp_{self.id[-4:]}"
        if self.active is None:
            self.active = response
            await self.begin(response, self.epoch)
        self.loud_ms = 800.0 if loud else max(0.0, self.loud_ms - ms)
        pcm = tone(ms, 440.0 if self.loud_ms and not loud else 0.0)
        await self.piece(response, self.epoch, pcm, "")

    async def begin(self, response: str, epoch: int) -> None:
        item = f"item_{response}"
        shown = {"id": item, "object": "realtime.item", "type": "message", "role": "assistant"}
        await self.say(
            {
                "type": "response.created",
                "response_id": response,
                "response": {
                    "id": response,
                    "object": "realtime.response",
                    "status": "in_progress",
                    "status_details": None,
                    "output": [],
                    "modalities": ["audio", "text"],
                    "metadata": {"duplex_event": {"type": "response.created", "epoch": epoch}},
                },
            }
        )
        for kind in ("conversation.item.added", "conversation.item.created"):
            await self.say({"type": kind, "previous_item_id": None, "item": {**shown, "status": "in_progress"}})
        place: Message = {"response_id": response, "output_index": 0}
        await self.say({"type": "response.output_item.added", "item": shown, **place})
        part: Message = {"type": "audio", "transcript": ""}
        await self.say(
            {"type": "response.content_part.added", "item_id": item, "content_index": 0, "part": part, **place}
        )
        await self.say(
            {
                "type": "response.speak",
                "item_id": item,
                "content_index": 0,
                "metadata": {"session_id": self.id, "epoch": epoch, "model_speak": True},
                **place,
            }
        )

    async def piece(self, response: str, epoch: int, pcm: bytes, text: str) -> None:
        self.playback[response] += len(pcm) * 1000 // 2 // RATE
        place: Message = {
            "response_id": response,
            "item_id": f"item_{response}",
            "output_index": 0,
            "content_index": 0,
        }
        await self.say(
            {
                "type": "response.output_audio.delta",
                "delta": base64.b64encode(pcm).decode(),
                "format": "pcm16",
                "sample_rate_hz": RATE,
                "metadata": {
                    "session_id": self.id,
                    "epoch": epoch,
                    "model_speak": True,
                    "audio_duration_ms": self.playback[response],
                },
                **place,
            }
        )
        await self.say({"type": "response.output_audio_transcript.delta", "delta": text, **place})

    async def respond(self, response: str, epoch: int) -> None:
        faults = self.peer.faults
        await self.begin(response, epoch)
        for number, word in enumerate(WORDS):
            await self.piece(response, epoch, self.peer.sound(number), word)
            first = self.answers == 1
            if number == 2 and "drop" in faults and first and self.socket is not None:
                self.socket.transport.abort()
            if "drop-always" in faults and self.socket is not None:
                self.socket.transport.abort()
            if number == 2 and "die" in faults:
                os._exit(1)
            if number == 2 and "silent" in faults and first:
                self.silent = True
            if number == 2 and "stall" in faults and first:
                await asyncio.Event().wait()
            if "flood" in faults:
                for _ in range(22):
                    await self.piece(response, epoch, self.peer.sound(number), "")
            else:
                # Twenty times as fast as it sounds.
                await asyncio.sleep(PIECE_MS / 20_000)
        await self.end(response, epoch, "completed")

    async def end(self, response: str, epoch: int, status: str, reason: str = "stop") -> None:
        self.active = None
        item = f"item_{response}"
        place: Message = {"response_id": response, "item_id": item, "output_index": 0, "content_index": 0}
        whole = "".join(WORDS)
        shown: Message = {
            "id": item,
            "object": "realtime.item",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [{"type": "output_audio", "transcript": whole}],
        }
        await self.say({"type": "response.output_audio.done", **place})
        await self.say({"type": "response.output_audio_transcript.done", "transcript": whole, **place})
        part = {"type": "audio", "transcript": whole}
        await self.say({"type": "response.content_part.done", "part": part, **place})
        await self.say({"type": "response.output_item.done", "response_id": response, "output_index": 0, "item": shown})
        await self.say({"type": "conversation.item.done", "previous_item_id": None, "item": shown})
        await self.say(
            {
                "type": "response.done",
                "response_id": response,
                "response": {
                    "id": response,
                    "object": "realtime.response",
                    "status": status,
                    "status_details": {"type": status, "reason": reason},
                    "output": [shown],
                    "metadata": {"epoch": epoch},
                },
            }
        )
        await self.say({"type": "rate_limits.updated", "rate_limits": []})

    async def cancel(self, response: str, reason: str) -> None:
        if response != self.active:
            return
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
        old, self.epoch = self.epoch, self.epoch + 1
        if "late-new" in self.peer.faults:
            begun = f"{response}_late"
            await self.begin(begun, old)
            await self.piece(begun, old, self.peer.sound(0), "Late")
        await self.end(response, self.epoch, "cancelled", reason)
        if "late" in self.peer.faults:
            for number in range(3):
                await self.piece(response, old, self.peer.sound(number), " late")


class Peer:
    def __init__(self, faults: frozenset[str], *, resumes: bool, continuous: bool, voice: bytes, chunk_ms: int) -> None:
        self.chunk_ms = chunk_ms
        self.faults = faults
        self.resumes = resumes
        self.continuous = continuous
        self.voice = voice
        self.sessions: dict[str, Session] = {}
        self.seen: dict[str, list[Message]] = defaultdict(list)
        self.connections = 0

    def sound(self, number: int) -> bytes:
        if not self.voice:
            return tone(PIECE_MS, 440.0 + 20 * number)
        size = PIECE_MS * RATE // 1000 * 2
        return self.voice[number * size : (number + 1) * size]

    async def handle(self, socket: ServerConnection) -> None:
        request = socket.request
        assert request is not None
        path = urlsplit(request.path)
        if path.path == "/seen":
            await socket.send(json.dumps(self.seen))
            return
        query = parse_qs(path.query)
        if path.path != "/v1/realtime" or query.get("duplex") != ["1"]:
            await socket.close(4404, "the duplex endpoint is /v1/realtime?duplex=1")
            return
        self.connections += 1
        self.seen["connection"].append({"query": query, "authorization": request.headers.get("Authorization")})
        try:
            session = await self.handshake(socket)
            if session is not None:
                await self.listen(socket, session)
        except ConnectionClosed:
            pass

    async def handshake(self, socket: ServerConnection) -> Session | None:
        first = json.loads(await socket.recv())
        self.seen[first["type"]].append(first)
        if "mute" in self.faults:
            await asyncio.Event().wait()
        if first["type"] == "session.resume":
            return await self.resume(socket, first)
        refusals = {"refuse": "ref_audio_required", "full": "resource_exhausted"}
        for fault, code in refusals.items():
            if fault in self.faults:
                await refuse(socket, code, "no session like that")
                return None
        given = first.get("session")
        session = Session(self, given if isinstance(given, dict) else {})
        self.sessions[session.id] = session
        session.socket = socket
        await session.opened("session.created")
        await session.say({"type": "session.updated", "session": session.public()})
        if "nonsense" in self.faults:
            for _ in range(40):
                await socket.send("nonsense")
        return session

    async def resume(self, socket: ServerConnection, asked: Mapping[str, object]) -> Session | None:
        session = self.sessions.get(str(asked.get("session_id")))
        if session is None or not self.resumes:
            await refuse(socket, "session_resume_expired", "unknown or expired duplex session")
            return None
        if asked.get("resume_token") != session.token:
            await refuse(socket, "invalid_resume_token", "invalid duplex session resume token")
            return None
        session.token = secrets.token_urlsafe(16)
        session.generation += 1
        session.silent = False
        after = int(str(asked.get("last_received_server_event_seq", 0)))
        missed = session.journal[after:]
        session.socket = socket
        await session.opened("session.resumed")
        for event in missed:
            await session.put(event)
        return session

    async def listen(self, socket: ServerConnection, session: Session) -> None:
        appended = 0
        async for raw in socket:
            event = json.loads(raw)
            kind = event.get("type")
            if kind == "input_audio_buffer.append":
                self.seen[kind].append({name: value for name, value in event.items() if name != "audio"})
                appended += 1
                if "backpressure" in self.faults and appended <= 3:
                    await error(session, "input_backpressure", "Duplex session pending input exceeds server limit")
                else:
                    await session.hear(event)
                continue
            self.seen[str(kind)].append(event)
            if kind == "conversation.item.create":
                await session.take(event["item"])
            elif kind == "session.update":
                changed = event.get("session")
                session.given = {**session.given, **(changed if isinstance(changed, dict) else {})}
                await session.say({"type": "session.updated", "session": session.public()})
            elif kind == "response.cancel":
                await session.cancel(str(event.get("response_id") or session.active), "client_cancelled")
            elif kind == "output_audio_buffer.clear":
                cleared = {"type": "output_audio_buffer.cleared", "response_id": event.get("response_id")}
                await session.say(cleared)
            elif kind == "input_audio_buffer.commit":
                await session.say(
                    {
                        "type": "input_audio_buffer.committed",
                        "previous_item_id": None,
                        "item_id": "item_user",
                        "event": {},
                    }
                )
                if session.active is None:
                    session.answer()
            elif kind == "playback.ack":
                await session.say({"type": "playback.acknowledged", "event": acknowledged(session, event)})
            elif kind == "session.heartbeat":
                await session.put({"type": "session.heartbeat_ack", "session_id": session.id})
            elif kind == "session.event_ack":
                pass
            elif kind == "session.close":
                closed = {"type": "session.closed", "session_id": session.id, "reason": "client_close"}
                await session.say({**closed, "event": closed})
                self.sessions.pop(session.id, None)
                return
            else:
                await error(session, "unknown_event", f"unknown event {kind}", event.get("event_id"))


def acknowledged(session: Session, event: Mapping[str, object]) -> Message:
    response = str(event.get("response_id"))
    return {
        "type": "playback.acknowledged",
        "session_id": session.id,
        "response_id": response,
        "committed_ms": event.get("committed_ms"),
        "playback": {"sent_ms": session.playback[response], "played_ms": event.get("played_ms")},
    }


async def error(session: Session, code: str, message: str, related: object = None) -> None:
    detail: Message = {"type": "invalid_request_error", "code": code, "message": message}
    if related is not None:
        detail["event_id"] = related
    await session.say({"type": "error", "error": detail})


async def refuse(socket: ServerConnection, code: str, message: str) -> None:
    detail = {"type": "invalid_request_error", "code": code, "message": message}
    await socket.send(json.dumps({"type": "error", "event_id": "event_0", "error": detail}))


def tone(ms: float, hertz: float) -> bytes:
    time = np.arange(round(ms * RATE / 1000)) / RATE
    return (np.sin(2 * np.pi * hertz * time) * 8000).astype("<i2").tobytes()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", action="append", default=[], choices=FAULTS)
    parser.add_argument("--no-resume", action="store_true")
    parser.add_argument("--continuous", action="store_true", help="one endless stream, as a native duplex model")
    parser.add_argument("--voice", help="PCM16 at 24 kHz that is said instead of a tone")
    parser.add_argument("--chunk-ms", type=int, default=1000, help="input that its model takes at once")
    given = parser.parse_args()
    voice = b""
    if given.voice:
        voice = Path(given.voice).read_bytes()
    peer = Peer(
        frozenset(given.fault),
        resumes=not given.no_resume,
        continuous=given.continuous,
        voice=voice,
        chunk_ms=given.chunk_ms,
    )
    async with serve(peer.handle, "127.0.0.1", 0, max_size=16 << 20, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(f"listening {port}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
