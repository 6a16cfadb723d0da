"""The server under test, its questions, and an ear for its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soxr

from server.client import to_wire_rate
from tests.conformance.peers.chat_completions import ChatCompletionsPeer
from tests.servers import ServerProcess
from tests.speech import RATE, Clip, load

Hear = Callable[[Path, int], str]


@dataclass(frozen=True, slots=True)
class Remote:
    """A server whose answers another thinks out, `peer`."""

    server: ServerProcess
    peer: ChatCompletionsPeer


@pytest.fixture(scope="session")
def server(speaking_server: ServerProcess) -> ServerProcess:
    """`talkover serve` with the embedded engine."""
    return speaking_server


@pytest.fixture(scope="session")
def remote() -> Iterator[Remote]:
    """`talkover serve` with embedded ears and voice, and a language model behind chat.completions."""
    with ChatCompletionsPeer() as peer:
        arguments = ["--llm-url", peer.url, "--llm-model", "peer", "--llm-key", peer.key]
        with ServerProcess("embedded", arguments=arguments) as process:
            yield Remote(process, peer)


@pytest.fixture(scope="session")
def hear() -> Iterator[Hear]:
    """What a recognizer makes of a file of raw int16 mono PCM at a rate."""
    from models.assets import ensure
    from models.perception.asr import Recognizer

    recognizer = Recognizer(ensure(["whisper-base"], lambda stage, fraction: None)["whisper-base"])

    def listen(path: Path, rate: int) -> str:
        pcm = np.frombuffer(path.read_bytes(), "<i2").astype(np.float32) / 32768
        return recognizer.recognize(np.asarray(soxr.resample(pcm, rate, RATE), np.float32)).text

    yield listen
    recognizer.unload()


def question(text: str) -> Clip:
    """The clip of the questions' test split that asks `text`."""
    return next(clip for clip in load("questions", "test") if clip.text == text)


def wire_file(clip: Clip, folder: Path) -> Path:
    """The clip as raw PCM at 24 kHz."""
    path = folder / f"{clip.name}.24k.raw"
    path.write_bytes(to_wire_rate(clip.pcm, RATE).tobytes())
    return path


def telephone_file(clip: Clip, folder: Path) -> Path:
    """The clip as raw PCM at 8 kHz."""
    path = folder / f"{clip.name}.8k.raw"
    path.write_bytes(np.asarray(soxr.resample(clip.pcm, RATE, 8000), "<i2").tobytes())
    return path
