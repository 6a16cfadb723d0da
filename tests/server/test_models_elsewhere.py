"""A server whose models run elsewhere: a spoken question is answered aloud through other people's protocols.

.venv/bin/python -m pytest -m wide tests/server/test_models_elsewhere.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from models.assets import ensure
from models.perception.asr import Recognizer
from tests.bench.words import word_error_rate
from tests.conformance.conftest import question
from tests.peers.process import PeerProcess
from tests.servers import ROOT, ServerProcess

pytestmark = [pytest.mark.models, pytest.mark.wide]

CAPITAL = "What is the capital of France?"
RATE = 16_000


class Talk:
    """One spoken question to a server: what it wrote down and what was heard of it."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        clip = question(CAPITAL)
        asked, heard, told = folder / "question.wav", folder / "heard.wav", folder / "told.json"
        soundfile.write(asked, clip.pcm, RATE)
        command = [sys.executable, "-m", "server.cli", "talk", str(asked), "--url", server.realtime_url]
        command += ["--turns", "server_vad", "--out", str(heard), "--json", str(told)]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        self.timeline = ended.stdout
        self.record = json.loads(told.read_text())
        samples, rate = soundfile.read(heard, dtype="float32")
        assert rate % 8000 == 0
        self.agent = samples[:, 1]
        self.rate = rate

    def spoken(self) -> str:
        """What a recognizer hears of the agent's side."""
        recognizer = Recognizer(ensure(["whisper-base"])["whisper-base"])
        # In long silence it invents what might follow.
        loud = np.flatnonzero(np.abs(self.agent) > 0.01)
        said = self.agent[loud[0] : loud[-1] + 1]
        audible = np.interp(np.arange(said.size * RATE // self.rate) * self.rate / RATE, np.arange(said.size), said)
        text = recognizer.recognize(audible.astype(np.float32)).text
        recognizer.unload()
        return text


def talk(arguments: Sequence[str], folder: Path) -> Talk:
    with ServerProcess("embedded", arguments=arguments) as server:
        made = Talk(server, folder)
        assert server.health()["sessions"] == 0
        return made


@pytest.mark.parametrize("module", ["openai_speech", "kyutai"])
def test_the_cascade_hears_and_speaks_through_models_elsewhere(module: str, tmp_path: Path) -> None:
    with PeerProcess(module) as peer:
        if module == "kyutai":
            arguments = ["--asr-url", peer.ws, "--tts-url", peer.ws]
        else:
            url = f"{peer.http}/v1"
            arguments = ["--asr-url", url, "--asr-model", "whisper", "--asr-key", "peer-key"]
            arguments += ["--tts-url", url, "--tts-model", "hibari", "--tts-key", "peer-key"]
        made = talk(arguments, tmp_path)
    assert CAPITAL in made.timeline
    assert "paris" in made.timeline.lower()
    said = next(line for line in made.timeline.splitlines() if "said:" in line and "agent" in line).split("said:")[1]
    assert word_error_rate([said.strip().strip('"')], [made.spoken()]) <= 0.2


def test_a_remote_engine_answers_a_spoken_question(tmp_path: Path) -> None:
    with PeerProcess("vllm_omni") as peer:
        made = talk(["--engine", "vllm-omni", "--engine-url", peer.ws, "--engine-model", "tone"], tmp_path)
        seen = peer.seen()
    assert "One two three four five six seven eight nine ten" in made.timeline
    assert float(np.abs(made.agent).max()) > 0.1
    # Two sessions: what the server can do was asked for first. Both said goodbye.
    assert len(seen["session.update"]) == len(seen["session.close"]) == 2
    assert seen["playback.ack"]
