"""`talkover call` plays a vendor against a running server, and says what the call was like."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from server.cli import main
from server.phone_peers import PEERS
from tests.bench.tones import script
from tests.servers import ServerProcess, free_port

OFTEN = ("twilio", "asterisk", "audiosocket")
"""A text protocol, one with binary media, and one over TCP; each call takes some seconds."""


@pytest.fixture(scope="module")
def audiosocket_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(audiosocket_port: int) -> Iterator[ServerProcess]:
    """Greets every caller with a second of tone."""
    arguments = ["--audiosocket-port", str(audiosocket_port), "--phone-greet-ms", "0"]
    with ServerProcess("scripted", script(1.0), arguments=arguments) as process:
        yield process


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """Half a second in which nobody speaks."""
    path = tmp_path / "caller.wav"
    soundfile.write(path, np.zeros(8000, np.int16), 16_000)
    return path


@pytest.mark.parametrize(
    "vendor", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.wide) for name in PEERS]
)
def test_a_call_by_every_vendor_is_greeted_and_told_of(
    vendor: str, server: ServerProcess, audiosocket_port: int, speech: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"tcp://127.0.0.1:{audiosocket_port}" if vendor == "audiosocket" else f"ws://127.0.0.1:{server.port}"
    out = speech.with_name("heard.wav")
    assert main(["call", str(speech), "--vendor", vendor, "--url", url, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["vendor"] == vendor
    assert told["sound_seconds"] == pytest.approx(1.0, abs=0.1)
    assert told["clears"] == 0
    heard, _ = soundfile.read(out)
    assert np.abs(heard).max() > 0.05


@pytest.mark.parametrize(
    ("more", "status", "why"),
    [
        (["--param", "token"], 2, "give NAME=VALUE"),
        (["--url", "ws://127.0.0.1:1"], 1, "is the server running there?"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    more: list[str], status: int, why: str, speech: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["call", str(speech), "--vendor", "twilio", *more]) == status
    said = capsys.readouterr().err
    assert said.startswith("talkover call: ")
    assert why in said


def test_a_file_that_is_not_there_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call", str(tmp_path / "none.wav"), "--vendor", "twilio"]) == 2
    assert "none.wav" in capsys.readouterr().err


def test_a_call_that_the_server_refuses_ends(speech: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the signature that the server wants."""
    with ServerProcess("scripted", script(1.0), arguments=["--phone-secret", "twilio=secret"]) as process:
        status = main(["call", str(speech), "--vendor", "twilio", "--url", f"ws://127.0.0.1:{process.port}"])
    assert status == 1
    said = capsys.readouterr()
    assert "no call at" in said.err or "no sound came" in said.err
