"""`talkover talk`: recordings as a microphone, a loudspeaker that writes down what it played, and a timeline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import soundfile
import websockets

from .app import Talkover
from .client import RATE, ClientError, Pcm, Played, RealtimeClient, Received, Utterance, play_out, to_wire_rate
from .serve import listening_port, run, server_for
from .settings import Settings
from .timeline import Entry, Figures, figures, timeline

TRAILING = 1.0
"""Seconds of room noise after the last answer has been heard."""
ANSWER_WITHIN = 60.0
NOTICED_WITHIN = 1.0
"""Seconds after a clip over the agent by which a server that heard speech in it has said so."""


TRANSCRIBED = "conversation.item.input_audio_transcription.completed"


class TalkError(Exception):
    """The talk cannot be held; says why and what to do."""


def talk(
    *,
    file: Path,
    interrupt_at: Sequence[Sequence[str]],
    out: Path | None,
    url: str | None,
    key: str,
    turns: str,
    instructions: str,
    json: Path | None,
    settings: Settings,
) -> int:
    """Hold the talk, print its timeline; returns the exit status."""
    try:
        question = read_speech(file)
        others = [(_seconds(at), read_speech(Path(name))) for at, name in interrupt_at]
        return run(_talk(question, others, out, url, key, turns, instructions, json, settings))
    except (TalkError, ClientError) as error:
        print(f"talkover talk: {error}", file=sys.stderr)
        return 1


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 3600:
        raise TalkError(f"--interrupt-at {text}: give the seconds after the answer begins, such as 2.5")
    return value


def read_speech(path: Path) -> Pcm:
    """A recording as int16 [samples] at 24 kHz, mono. Raises TalkError."""
    try:
        pcm, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise TalkError(f"{path} cannot be read as audio ({error}); give a WAV, FLAC or Ogg file") from None
    if not len(pcm):
        raise TalkError(f"{path} holds no audio")
    mono = np.round(np.clip(pcm.mean(axis=1), -1.0, 1.0) * 32767).astype(np.int16)
    return to_wire_rate(mono, rate)


@contextlib.asynccontextmanager
async def _own_server(settings: Settings) -> AsyncIterator[str]:
    """A server of our own on a free port of loopback."""
    from models.assets import TerminalProgress

    app = Talkover(settings)
    server = server_for(app)
    serving = asyncio.create_task(server.serve(), name="server")
    bar = TerminalProgress(sys.stderr)
    try:
        while not app.ready.is_set() and not serving.done():
            bar(app.stage, app.fraction)
            await asyncio.wait([serving], timeout=0.1)
        bar.close()
        if app.failure is not None or serving.done():
            raise TalkError(f"the server did not start: {app.failure or 'see above'}")
        yield f"ws://127.0.0.1:{listening_port(server)}/v1/realtime"
    finally:
        server.should_exit = True
        await serving


async def _talk(
    question: Pcm,
    others: Sequence[tuple[float, Pcm]],
    out: Path | None,
    url: str | None,
    key: str,
    turns: str,
    instructions: str,
    report: Path | None,
    settings: Settings,
) -> int:
    async with contextlib.AsyncExitStack() as stack:
        if url is None:
            url = await stack.enter_async_context(_own_server(settings))
        session = {
            "type": "realtime",
            "instructions": instructions,
            "audio": {"input": {"turn_detection": {"type": turns}, "transcription": {"model": "default"}}},
            "x_talkover": {"notices": True},
        }
        try:
            client = await stack.enter_async_context(RealtimeClient(url, session, key=key))
        except (OSError, websockets.WebSocketException) as error:
            raise TalkError(f"no conversation at {url}: {error}; is the server running there?") from None
        began = client.now
        client.open_microphone()
        await client.pause(0.3)
        said = [client.say(question)]
        await _answer(client, 0)
        for after, words in others:
            playing = _newest_audio(client)
            await client.pause(max(0.0, playing + after - client.now))
            mark = len(client.events)
            said.append(client.say(words))
            await _reaction(client, said[-1], mark)
        await _played_to_the_end(client)
        await client.pause(TRAILING)
        ended = client.now
    entries = timeline(client.events, said, began)
    for entry in entries:
        print(entry)
    summary = figures(client.events, said)
    print(summary)
    if out is not None:
        write_stereo(out, client, said, began, ended)
        print(f"heard: {out} (user left, agent right)")
    if report is not None:
        _write_report(report, entries, summary)
    if settings.record is not None:
        print(f"recorded: {settings.record / client.session}")
    return 0


def _write_report(path: Path, entries: Sequence[Entry], summary: Figures) -> None:
    report = {"timeline": [entry.plain() for entry in entries], "figures": summary.plain()}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


async def _reaction(client: RealtimeClient, over: Utterance, after: int) -> None:
    """Wait for what comes of a clip over the agent: an answer, or that it goes on. Of a sound in which nobody hears
    speech nothing comes."""
    answer = asyncio.create_task(_answer(client, after))
    ends = await over.time_of(len(over.pcm))
    await asyncio.wait([answer], timeout=max(0.0, ends + NOTICED_WITHIN - client.now))
    if not answer.done() and not client.of("x_talkover.held", "input_audio_buffer.speech_started", after=after):
        answer.cancel()
    await asyncio.gather(answer, return_exceptions=answer.cancelling() > 0)


def _newest_audio(client: RealtimeClient) -> float:
    """When the newest answer began to sound."""
    deltas = client.of("response.output_audio.delta")
    newest = deltas[-1].response
    return next(delta.at for delta in deltas if delta.response == newest)


async def _answer(client: RealtimeClient, after: int) -> None:
    """Wait until an answer to what was said after event `after` sounds, or the agent goes on where it was held; what
    had no words over an earlier answer gets none."""
    known = {event.response for event in client.events[:after]}

    def sounds(event: Received) -> bool:
        """the answer's first audio"""
        if event.type == "error":
            raise ClientError(f"the server says: {event.text('error', 'message')}")
        new = event.type == "response.output_audio.delta" and event.response not in known
        wordless = bool(known) and event.type == TRANSCRIBED and not event.text("transcript").strip()
        return new or wordless or event.type == "x_talkover.resumed"

    await client.wait_for(sounds, after=after, within=ANSWER_WITHIN)


async def _played_to_the_end(client: RealtimeClient) -> None:
    """Wait until no response is open and the loudspeaker has nothing left."""
    while True:
        opened = {event.response for event in client.of("response.created")}
        closed = {event.response for event in client.of("response.done")}
        if opened <= closed:
            break
        mark = len(client.events)
        await client.wait_for("response.done", after=mark, within=ANSWER_WITHIN * 5)
    stretches = play_out(client.events).played
    end = max((stretch.at + stretch.samples / RATE for stretch in stretches), default=client.now)
    await client.pause(max(0.0, end - client.now))


def write_stereo(path: Path, client: RealtimeClient, said: Sequence[Utterance], began: float, ended: float) -> None:
    """What was heard in the room from `began` to `ended`, on the client's clock: user left, agent right, 24 kHz."""
    stereo = np.zeros((max(1, round((ended - began) * RATE)), 2), np.int16)
    for utterance in said:
        if utterance.began.done():
            _place(stereo[:, 0], utterance.pcm, utterance.began.result() - began)
    heard = play_out(client.events, ended)
    for stretch in heard.played:
        _place(stereo[:, 1], _content(heard.pcm, stretch), stretch.at - began)
    soundfile.write(path, stereo, RATE)


def _content(pcm: Mapping[str, Pcm], stretch: Played) -> Pcm:
    return pcm[stretch.response][stretch.first : stretch.first + stretch.samples]


def _place(channel: Pcm, pcm: Pcm, at: float) -> None:
    start = max(0, round(at * RATE))
    piece = pcm[: max(0, len(channel) - start)]
    channel[start : start + len(piece)] = piece
