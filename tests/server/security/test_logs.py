"""What is logged: never a key, a token, a word of a conversation or a telephone number."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile
import soxr
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from server.cli import main
from server.logs import Clean, JsonFormatter, TextFormatter
from server.phone_peers import PEERS
from tests.servers import ServerProcess

from .making import make_tenants

CALLER, CALLED = "+15550100123", "+15550199456"
SAID = "my account is zanzibar seventeen"
"""Typed by the user."""
ANSWERED = "the flamingo has left the building"
"""Spoken by the agent."""
SCRIPT = f'[[reply]]\ntext = "{ANSWERED}"\n'
QUESTION = next((Path(__file__).parents[2] / "speech" / "questions").glob("test-how-can-i-fall-asleep-*.flac"))


def record(message: str, *arguments: object, error: Exception | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("server.x", logging.WARNING, "x.py", 1, message, arguments, info)


@pytest.mark.parametrize(
    "secret",
    [
        "tko_0123456789ab_" + "x" * 43,
        "ek_" + "0" * 32,
        "sk-proj-abcdefghijklmnop",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1c2VyIn0.c2lnbmF0dXJlLW9mLWl0",
        "a key of an option",
        CALLER,
    ],
)
def test_what_must_not_be_logged_is_taken_out_wherever_it_stands(secret: str) -> None:
    clean = Clean(["a key of an option"])
    for form in (TextFormatter(clean), JsonFormatter(clean)):
        for entry in (
            record(f"header: Bearer {secret}"),
            record("offered %s", f"openai-insecure-api-key.{secret}"),
            record("%r", {"from": secret}),
            record("failed", error=ValueError(f"what was said: {secret}")),
        ):
            line = form.format(entry)
            assert secret not in line, line
            assert "[redacted]" in line


def test_what_may_be_logged_stays() -> None:
    clean = Clean()
    text = "call phone_0123 of {'from': '+*********23'} began at 1790000060 on 127.0.0.1:8787"
    assert text in TextFormatter(clean).format(record(text))
    assert clean(CALLER) == "[redacted]"
    assert Clean(numbers=True)(CALLER) == CALLER


def test_a_line_of_json_says_when_who_what_and_of_which_session() -> None:
    form = JsonFormatter(Clean())
    told = json.loads(form.format(record('session %s: "odd"\nline', "sess_0123456789abcdef")))
    assert told["level"] == "warning"
    assert told["logger"] == "server.x"
    assert told["message"] == 'session sess_0123456789abcdef: "odd"\nline'
    assert told["session"] == "sess_0123456789abcdef"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", told["time"])
    failed = json.loads(form.format(record("x", error=ValueError("y"))))
    assert failed["error"] == "ValueError"
    assert "ValueError: y" in failed["traceback"]
    assert "\n" not in form.format(record("a\nb", error=ValueError("y")))


# --- the logs of a server that was really talked to -------------------------------------------------------------------


@pytest.fixture(scope="module", params=["text", "json"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("logs")
    keys = make_tenants(folder / "tenants.json", ["acme"])
    arguments = ["--tenants-file", str(folder / "tenants.json"), "--log-level", "debug", "--log-format", request.param]
    arguments += ["--record", str(folder / "recordings"), "--phone-secret", "twilio=the-auth-token-of-twilio"]
    with ServerProcess("scripted", SCRIPT, arguments=arguments) as running:
        running.key = keys["acme"]  # type: ignore[attr-defined]
        yield running


async def until(connection: ClientConnection, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            event: dict[str, Any] = json.loads(await connection.recv())
            if event["type"] == kind:
                return event


async def talk(server: ServerProcess, key: str) -> str:
    """Speak, write and listen; what was understood."""
    recorded, rate = soundfile.read(QUESTION, dtype="int16")
    samples = soxr.resample(recorded, rate, 24_000)
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(server.realtime_url, additional_headers=headers, proxy=None, max_size=None) as connection:
        await until(connection, "session.created")
        heard = {"format": {"type": "audio/pcm", "rate": 24_000}, "transcription": {"model": "whisper"}}
        heard["turn_detection"] = None  # type: ignore[assignment]
        session = {"type": "realtime", "audio": {"input": heard}}
        await connection.send(json.dumps({"type": "session.update", "session": session}))
        await until(connection, "session.updated")
        for start in range(0, len(samples), 4800):
            audio = base64.b64encode(samples[start : start + 4800].tobytes()).decode()
            await connection.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        await connection.send(json.dumps({"type": "input_audio_buffer.commit"}))
        done = await until(connection, "conversation.item.input_audio_transcription.completed")
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": SAID}]}
        await connection.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await connection.send(json.dumps({"type": "response.create"}))
        await until(connection, "response.done")
        await connection.send("{ this is no JSON")
        await connection.send(json.dumps({"type": "session.update", "session": {"voice": SAID, "type": SAID}}))
        await until(connection, "error")
        return str(done["transcript"])


def call(server: ServerProcess, token: str) -> int:
    """A telephone call, as a vendor makes it."""
    arguments = ["call", str(QUESTION), "--vendor", "telnyx", "--url", f"ws://127.0.0.1:{server.port}"]
    for parameter in (f"token={token}", f"from={CALLER}", f"to={CALLED}"):
        arguments += ["--param", parameter]
    return main(arguments)


async def refused_call(server: ServerProcess, token: str) -> None:
    """One that is begun with a wrong key."""
    peer = PEERS["telnyx"]("sim-telnyx", {"token": token, "from": CALLER, "to": CALLED})
    async with connect(f"ws://127.0.0.1:{server.port}{peer.path}", proxy=None) as connection:
        for message in peer.begin():
            await connection.send(message)
        await connection.wait_closed()
        assert connection.close_code == 1008


@pytest.mark.models
async def test_the_logs_of_real_sessions_show_no_key_no_word_and_no_number(server: ServerProcess) -> None:
    key: str = server.key  # type: ignore[attr-defined]
    base = server.base_url
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(trust_env=False, timeout=60, headers=headers) as http:
        minted = (await http.post(f"{base}/realtime/client_secrets", json={})).json()["value"]
        await http.post(f"{base}/realtime/client_secrets", content=SAID, headers={"Content-Type": "application/json"})
        await http.post(f"{base}/realtime/calls", content=f"v=0 {SAID}", headers={"Content-Type": "application/sdp"})
        await http.get(f"{base}/talkover/recordings/{SAID}")
    wrong = ["ek_" + "1" * 32, "tko_0123456789ab_" + "w" * 43, "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"]
    for each in wrong:
        with pytest.raises(InvalidStatus):
            await connect(server.realtime_url, additional_headers={"Authorization": f"Bearer {each}"}, proxy=None)
        with pytest.raises(InvalidStatus):
            await connect(
                server.realtime_url,
                subprotocols=["realtime", f"openai-insecure-api-key.{each}"],
                proxy=None,  # type: ignore[list-item]
            )
    understood = [await talk(server, one) for one in (key, minted)]
    assert all(len(text) > 10 for text in understood)
    assert await asyncio.to_thread(call, server, key) == 0
    await refused_call(server, wrong[1])
    await asyncio.to_thread(server.stop)
    log = server.log
    assert "call phone_" in log, "the log tells of calls"
    assert "handshake" not in log, "strangers do not fill it"
    assert f"*{CALLER[-2:]}" in log
    for secret in (key, minted, *wrong, "the-auth-token-of-twilio"):
        assert secret not in log
        assert secret.split("_", 2)[-1] not in log
    words = [SAID, ANSWERED, "zanzibar", "flamingo", *understood]
    for text in (*words, CALLER, CALLED, CALLER[1:], CALLED[1:], CALLER[-7:]):
        assert text.lower() not in log.lower(), text
    if "--log-format=json" in server.command or "json" in server.command:
        for line in log.splitlines():
            if line.startswith("{"):
                json.loads(line)
