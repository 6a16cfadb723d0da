"""The command line: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from server import cli
from tests.servers import ROOT, ServerProcess, free_port

WITHIN = 10.0
"""Seconds in which a process has to end; it takes one, with a peer that does not read three."""
COMMANDS = ("serve", "talk", "say", "doctor", "prepare", "replay")
SIGNALS = pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)], ids=["ctrl-c", "terminate"]
)


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "server.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        timeout=60,
        check=False,
    )


# --- help ----------------------------------------------------------------------------------------------------------


def test_help_names_every_command_and_gives_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^    {command} +\w", shown, re.M)
    assert "examples:" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_examples_are_commands_that_it_understands(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    examples = re.findall(r"^  (?:echo .* \| )?talkover (.*)$", shown, re.M)
    for example in examples:
        cli._parser().parse_args(shlex.split(example))
    assert examples or command in ("prepare", "replay")


def test_the_options_of_serve_stand_in_groups_and_name_their_variables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{group} (") for group in ("server", "models", "access", "recording")]
    assert places == sorted(places)
    for variable in ("TALKOVER_PORT", "TALKOVER_API_KEYS", "TALKOVER_API_KEYS_FILE", "TALKOVER_TLS_SELF_SIGNED"):
        assert f"[{variable}]" in shown


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"talkover \d+\.\d+\S*\n", capsys.readouterr().out)


# --- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--host", "0.0.0.0"], "--insecure-no-auth"),
        (["serve", "--host", "::"], "API keys are needed"),
        (["serve", "--host", "0.0.0.0", "--api-key", "short"], "at least 16"),
        (["serve", "--port", "99999"], "port 99999"),
        (["serve", "--tls-cert", "cert.pem"], "go together"),
        (["serve", "--tls-cert", "/nonexistent/c", "--tls-key", "/nonexistent/k"], "/nonexistent/c cannot be read"),
        (["serve", "--api-keys-file", "/nonexistent/keys"], "/nonexistent/keys cannot be read"),
        (["doctor", "--host", "0.0.0.0"], "--insecure-no-auth"),
        (["replay", "/nonexistent"], "/nonexistent"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.startswith(f"talkover {arguments[0]}: ")
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_a_port_in_use_is_a_mistake_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = run("serve", "--port", str(port), env={"TALKOVER_CACHE": str(tmp_path), "PIP_NO_INDEX": "1"})
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith(f"talkover serve: cannot listen on 127.0.0.1 port {port}; ")


def test_a_wrong_key_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--api-key", "my secret key"]) == 2
    assert "secret key" not in capsys.readouterr().err


# --- threads -------------------------------------------------------------------------------------------------------


def test_numpy_is_imported_after_its_threads_are_forbidden() -> None:
    code = (
        "import sys, os; os.environ.pop('OPENBLAS_NUM_THREADS', None); import server.cli; "
        "print('numpy' in sys.modules, os.environ['OPENBLAS_NUM_THREADS'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.split() == ["False", "1"]


def test_a_number_of_threads_that_the_user_set_is_kept() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import server.cli, os; print(os.environ['OPENBLAS_NUM_THREADS'])"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "3"},
        check=True,
    )
    assert result.stdout.strip() == "3"


# --- ends ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def silent_index() -> Iterator[tuple[str, threading.Event]]:
    """A package index that takes requests and never answers, so that a preparation goes on for ever. Its URL, and what
    is set when it was asked."""
    held: list[socket.socket] = []
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(listener.accept()[0])
                    asked.set()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/simple", asked
        for connection in held:
            connection.close()


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def process(log: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        started = subprocess.Popen(
            [sys.executable, "-m", "server.cli", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            start_new_session=True,
        )
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def wait_for(what: str, log: Path, running: subprocess.Popen[bytes]) -> None:
    """Until `what` stands in the log."""
    deadline = time.monotonic() + 60
    while what not in log.read_text():
        assert running.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)  # another process has no event to wait for


@pytest.mark.skipif(sys.platform != "linux", reason="looks at child processes")
@pytest.mark.parametrize("command", ["serve", "prepare"])
@SIGNALS
def test_a_preparation_ends_with_its_downloads(tmp_path: Path, command: str, number: int, status: int) -> None:
    log = tmp_path / "log"
    with silent_index() as (index, asked):
        env = {"PIP_INDEX_URL": index, "PIP_EXTRA_INDEX_URL": "", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "0"}
        env |= {"TALKOVER_CACHE": str(tmp_path / "cache"), "TALKOVER_PORT": str(free_port())}
        with process(log, command, env=env) as running:
            assert asked.wait(60), log.read_text()
            downloads = children(running.pid)
            assert downloads
            running.send_signal(number)
            # Serving ends as the signal ends any process, once all is in order; preparing exits with what a shell says.
            assert running.wait(WITHIN) == (143 if (command, status) == ("prepare", -15) else status)
            assert "Traceback" not in log.read_text()
            assert not any(alive(pid) for pid in downloads)
    assert not list((tmp_path / "cache").glob(".work-*"))


TONE = "[[reply]]\ntone_hz = 440\nseconds = 60\n"


@pytest.fixture
def serving() -> Iterator[ServerProcess]:
    with ServerProcess("scripted", TONE) as server:
        yield server


def end(server: ServerProcess, number: int) -> int:
    os.kill(server.pid, number)
    process = server._process
    assert process is not None
    return process.wait(WITHIN)


@pytest.mark.models
@SIGNALS
def test_an_idle_server_ends(serving: ServerProcess, number: int, status: int) -> None:
    assert end(serving, number) == status
    assert "Traceback" not in serving.log


@pytest.mark.models
@SIGNALS
def test_a_server_with_sessions_open_tells_them_and_ends(serving: ServerProcess, number: int, status: int) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    with connect(serving.realtime_url, proxy=None) as talking, connect(serving.realtime_url, proxy=None) as idle:
        talking.send(json.dumps({"type": "conversation.item.create", "item": item}))
        talking.send(json.dumps({"type": "response.create"}))
        while json.loads(talking.recv())["type"] != "response.output_audio.delta":
            pass
        assert end(serving, number) == status
        for client in (talking, idle):
            with contextlib.suppress(Exception):
                while True:
                    client.recv(timeout=5)
            assert client.close_code in (1001, 1012)
    assert "Traceback" not in serving.log


@pytest.mark.models
@SIGNALS
def test_a_server_whose_peer_does_not_read_ends_too(serving: ServerProcess, number: int, status: int) -> None:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", serving.port))
    with peer:
        peer.sendall(
            b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        update = {"type": "session.update", "session": {"type": "realtime", "instructions": "x" * 60_000}}
        payload = json.dumps(update).encode()
        frame = b"\x81\xfe" + len(payload).to_bytes(2, "big") + bytes(4) + payload
        for _ in range(20):
            peer.sendall(frame)
        wait = time.monotonic() + 30
        while "unsent_bytes 0\n" in httpx.get(f"http://127.0.0.1:{serving.port}/metrics", trust_env=False).text:
            assert time.monotonic() < wait
        assert end(serving, number) == status
    assert "Traceback" not in serving.log


@pytest.mark.models
@SIGNALS
def test_a_server_that_loads_its_models_ends(tmp_path: Path, number: int, status: int) -> None:
    script, log = tmp_path / "script.toml", tmp_path / "log"
    script.write_text('[[reply]]\ntext = "Hello."\n')  # so that a voice is loaded as well
    arguments = ["serve", "--engine", "scripted", "--script", str(script), "--port", "0"]
    with process(log, *arguments) as running:
        wait_for("loading the models", log, running)
        running.send_signal(number)
        assert running.wait(WITHIN) == status
    assert "Traceback" not in log.read_text()


@pytest.mark.models
def test_keys_stay_out_of_the_log_at_every_level(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# for tests\nthe-key-that-must-not-be-seen\n")
    arguments = ["--api-keys-file", str(keys), "--log-level", "debug"]
    with ServerProcess(
        "scripted", TONE, env={"TALKOVER_API_KEYS": "another-secret-key-of-ours"}, arguments=arguments
    ) as server:
        for key in ("the-key-that-must-not-be-seen", "another-secret-key-of-ours"):
            offered = {"Authorization": f"Bearer {key}"}
            with connect(server.realtime_url, additional_headers=offered, proxy=None) as client:
                client.recv()
            minted = httpx.post(f"{server.base_url}/realtime/client_secrets", headers=offered, trust_env=False).json()
            names = [Subprotocol("realtime"), Subprotocol(f"openai-insecure-api-key.{minted['value']}")]
            with connect(server.realtime_url, subprotocols=names, proxy=None) as client:
                client.recv()
        offered = {"Authorization": "Bearer wrong-and-secret"}
        with pytest.raises(InvalidStatus), connect(server.realtime_url, additional_headers=offered, proxy=None):
            pass
        server.stop()
        log = server.log
    assert "Talkover serves" in log
    for secret in ("must-not-be-seen", "another-secret", "wrong-and-secret", minted["value"]):
        assert secret not in log
