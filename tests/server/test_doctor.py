"""`talkover doctor`: each examination finds what is wrong when something is, and nothing when nothing is."""

from __future__ import annotations

import asyncio
import http.server
import importlib.metadata
import json
import os
import re
import shutil
import socket
import threading
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codec import opus
from models.assets import cache_directory, ready
from models.perception.perception import ASSETS
from server import cli, doctor_checks, doctor_speed
from server.doctor import Finding, doctor, examine
from server.doctor_checks import meets
from server.settings import Settings
from server.tls import self_signed
from tests.server.serving import served
from tests.servers import ROOT, free_port


def verdicts(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.subject: finding.verdict for finding in findings}


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    assert (finding.verdict == "ok") == (finding.remedy == "")
    return finding


# --- libraries -----------------------------------------------------------------------------------------------------


def test_every_library_here_is_as_it_should_be() -> None:
    findings = list(doctor_checks.libraries(Settings()))
    assert {finding.verdict for finding in findings} == {"ok"}
    assert {"numpy", "uvicorn", "onnxruntime", "hibari-tts"} <= {finding.subject for finding in findings}


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [
        ("1.22.0", ">=1.22", True),
        ("1.9", ">=1.22", False),
        ("2.0", ">=1.22", True),
        ("1.21.9", ">=1.22", False),
        ("0.2.1", "==0.2.1", True),
        ("0.2.10", "==0.2.1", False),
        ("2.13.0+cpu", ">=2.13", True),
        ("anything", "", True),
    ],
)
def test_versions_are_compared_by_number(version: str, wanted: str, holds: bool) -> None:
    assert meets(version, wanted) is holds


def test_a_library_that_is_missing_old_or_broken_is_a_failure_with_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = doctor_checks._library("no-such-library", "no_such_library", "")
    assert (missing.verdict, missing.found) == ("fail", "not installed")
    old = doctor_checks._library("numpy", "numpy", ">=99")
    assert old.verdict == "fail"
    assert ">=99 is needed" in old.found
    (tmp_path / "broken_on_import.py").write_text("raise OSError('libsomething.so: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    broken = doctor_checks._library("numpy", "broken_on_import", "")
    assert broken.verdict == "fail"
    assert "libsomething.so" in broken.found
    assert all("pip install" in finding.remedy for finding in (missing, old, broken))


def test_opus_is_found_or_its_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_checks._opus().verdict == "ok"

    def missing() -> str:
        raise opus.OpusUnavailable("libopus was not found, so WebRTC cannot carry audio; install it. Tried: /x: no")

    monkeypatch.setattr(opus, "version", missing)
    finding = doctor_checks._opus()
    assert (finding.verdict, finding.remedy) == ("fail", "install it.")
    assert "WebRTC" in finding.found


def test_the_libraries_are_those_that_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [re.split(r"[>=;]", line)[0] for line in project["dependencies"]]
    asked += [re.split(r"[>=;]", line)[0] for line in project["optional-dependencies"]["embedded"]]
    assert sorted(asked) == sorted(name for name, _ in (*doctor_checks.LIBRARIES, *doctor_checks.EMBEDDED))
    least = doctor_checks._requirements()
    assert least["hibari-tts"].startswith("==")
    assert least["numpy"].startswith(">=")
    assert all(meets(importlib.metadata.version(name), least[name]) for name in asked if name in least)


# --- models and cache ----------------------------------------------------------------------------------------------


@pytest.mark.models
def test_prepared_models_are_complete() -> None:
    findings = list(doctor_checks.models(Settings()))
    assert verdicts(findings) == {f"model {name}": "ok" for name in (*ASSETS, "hibari", "smollm2")}
    without = doctor_checks.models(Settings(llm_url="http://x", llm_model="y"))
    assert "model smollm2" not in verdicts(without)


@pytest.mark.models
def test_a_damaged_model_is_found_and_its_folder_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = cache_directory()
    for folder in original.glob("*-*"):
        (tmp_path / folder.name).symlink_to(folder)
    damaged = next(tmp_path.glob("smart-turn-*"))
    incomplete = next(tmp_path.glob("smollm2-*"))
    for link in (damaged, incomplete):
        target = link.resolve()
        link.unlink()
        shutil.copytree(target, link)
    with (damaged / "smart_turn.onnx").open("r+b") as file:
        file.seek(1000)
        file.write(b"\x00" * 100)
    next(incomplete.glob("*.bin")).unlink()
    monkeypatch.setenv("TALKOVER_CACHE", str(tmp_path))
    findings = {finding.subject: finding for finding in doctor_checks.models(Settings())}
    for link, file_name in ((damaged, "smart_turn.onnx"), (incomplete, "model.bin")):
        finding = findings[f"model {link.name.rpartition('-')[0]}"]
        assert finding.verdict == "fail"
        assert file_name in finding.found
        assert str(link) in finding.remedy
        assert "talkover prepare" in finding.remedy
    assert findings["model silero-vad"].verdict == "ok"


def test_models_that_are_not_prepared_are_a_warning_with_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALKOVER_CACHE", str(tmp_path / "not" / "there"))
    findings = {finding.subject: finding for finding in doctor_checks.models(Settings())}
    assert findings["model whisper-base"].verdict == "warn"
    assert "150 MB" in findings["model whisper-base"].remedy
    assert findings["model hibari"].verdict == "ok"
    assert only(doctor_checks.cache(Settings())).verdict == "ok"
    assert not (tmp_path / "not").exists()
    assert only(doctor_speed.speed(Settings())).verdict == "warn"


def test_a_folder_of_the_users_own_that_lacks_files_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALKOVER_MODEL_WHISPER_BASE", str(tmp_path))
    findings = {finding.subject: finding for finding in doctor_checks.models(Settings())}
    assert findings["model whisper-base"].verdict == "fail"
    assert "TALKOVER_MODEL_WHISPER_BASE" in findings["model whisper-base"].found


def test_a_cache_that_cannot_be_used_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TALKOVER_CACHE", str(tmp_path / "file" / "cache"))
    finding = only(doctor_checks.cache(Settings()))
    assert finding.verdict == "fail"
    assert "--cache" in finding.remedy
    monkeypatch.setenv("TALKOVER_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100_000_000})())
    finding = only(doctor_checks.cache(Settings()))
    assert finding.verdict == "fail"
    assert "0.1 GB free" in finding.found


def test_recordings_need_a_folder_and_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(doctor_checks.recordings(Settings())) == []
    assert only(doctor_checks.recordings(Settings(record=tmp_path / "new"))).verdict == "ok"
    (tmp_path / "file").write_text("")
    assert only(doctor_checks.recordings(Settings(record=tmp_path / "file" / "x"))).verdict == "fail"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1_000_000})())
    assert only(doctor_checks.recordings(Settings(record=tmp_path))).verdict == "warn"


def test_a_script_is_read(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text("[[reply]]\ntone_hz = 440\nseconds = 1\n")
    settings = Settings(engine="scripted", script=script)
    assert only(doctor_checks.script(settings)).verdict == "ok"
    script.write_text("[[reply]]\ntone_hz = 440\n")
    finding = only(doctor_checks.script(settings))
    assert finding.verdict == "fail"
    assert "seconds" in finding.found


# --- network -------------------------------------------------------------------------------------------------------


def test_a_port_that_is_free_is_free_afterwards_too() -> None:
    port = free_port()
    for _ in range(2):
        assert only(doctor_checks.port(Settings(port=port))).verdict == "ok"
    assert only(doctor_checks.port(Settings(port=0))).verdict == "ok"


def test_a_port_in_use_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def hang_up() -> None:
            for _ in range(2):
                listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        finding = only(doctor_checks.port(Settings(port=listener.getsockname()[1])))
        thread.join()
    assert finding.verdict == "fail"
    assert "--port" in finding.remedy


@pytest.mark.parametrize("tls", [False, True])
async def test_a_port_where_talkover_runs_already_is_told_as_that(tls: bool, tmp_path: Path) -> None:
    async with served(tls_self_signed=tls, cache=tmp_path) as place:
        finding = only(await asyncio.to_thread(lambda: list(doctor_checks.port(Settings(port=place.port)))))
    assert finding.verdict == "fail"
    assert "a Talkover server runs" in finding.found


def test_an_address_that_is_none_is_a_failure() -> None:
    assert only(doctor_checks.port(Settings(host="no.such.host.invalid"))).verdict == "fail"
    assert only(doctor_checks.port(Settings(host="192.0.2.1"))).verdict == "fail"  # RFC 5737: nobody's


def test_access_is_judged_by_who_can_reach_it(tmp_path: Path) -> None:
    assert verdicts(doctor_checks.access(Settings())) == {"access": "ok"}
    opened = verdicts(doctor_checks.access(Settings(host="0.0.0.0", insecure_no_auth=True)))
    assert opened == {"access": "warn", "tls": "warn"}
    key = "a-key-for-this-test"
    assert verdicts(doctor_checks.access(Settings(host="0.0.0.0", api_keys=(key,)))) == {"access": "ok", "tls": "warn"}
    certificate, private = self_signed(tmp_path)
    good = Settings(host="0.0.0.0", api_keys=(key,), tls_cert=certificate, tls_key=private)
    findings = list(doctor_checks.access(good))
    assert verdicts(findings) == {"access": "ok", "tls": "ok"}
    assert not any(key in finding.found for finding in findings)
    bad = Settings(host="0.0.0.0", api_keys=(key,), tls_cert=certificate, tls_key=certificate)
    assert verdicts(doctor_checks.access(bad)) == {"access": "ok", "tls": "fail"}


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[str]]]:
    """An endpoint with one answer to everything, and the keys that it was shown."""
    keys: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(f"{self.path} {self.headers.get('Authorization')}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/", keys
        finally:
            server.shutdown()
            thread.join()


LISTED = b'{"object": "list", "data": [{"id": "qwen3"}, {"id": "other"}]}'


@pytest.mark.parametrize(
    ("status", "body", "verdict", "said"),
    [
        (200, LISTED, "ok", "serves qwen3"),
        (200, b'{"data": [{"id": "other"}, 3, {}]}', "warn", "it lists other"),
        (200, b"<html>", "warn", "no list of models"),
        (200, b'["qwen3"]', "warn", "no list of models"),
        (404, b"", "warn", "404"),
        (500, b"", "warn", "500"),
        (401, b"", "fail", "refuses the key"),
        (403, b"", "fail", "refuses the key"),
    ],
)
def test_an_endpoint_is_asked_for_its_models(
    status: int, body: bytes, verdict: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with answering(status, body) as (url, keys):
        finding = only(doctor_checks.endpoint(Settings(llm_url=url, llm_model="qwen3", llm_key="their-key")))
    assert finding.verdict == verdict
    assert said in finding.found
    assert keys == ["/v1/models Bearer their-key"]
    assert "their-key" not in str(finding)


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/v1", "nonsense", "http://[", "ftp://127.0.0.1/v1"])
def test_an_endpoint_that_is_not_there_is_a_failure(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    settings = Settings(llm_url=url.format(port=free_port()), llm_model="x")
    assert only(doctor_checks.endpoint(settings)).verdict == "fail"
    assert list(doctor_checks.endpoint(Settings())) == []


# --- the machine ---------------------------------------------------------------------------------------------------


def test_limits_of_a_container_are_seen(tmp_path: Path) -> None:
    assert doctor_checks.cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert doctor_checks.cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert doctor_checks.cpu_quota(tmp_path) == 1.5
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:   2000000 kB\n")
    assert doctor_checks.available_memory(tmp_path, meminfo) == 2_048_000_000
    (tmp_path / "memory.max").write_text("1000000000\n")
    (tmp_path / "memory.current").write_text("400000000\n")
    assert doctor_checks.available_memory(tmp_path, meminfo) == 600_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert doctor_checks.available_memory(tmp_path, meminfo) == 2_048_000_000
    meminfo.write_text("")
    assert doctor_checks.available_memory(tmp_path, meminfo) is None


@pytest.mark.parametrize(
    ("cores", "quota", "memory", "expected"),
    [
        (2, None, 8e9, {"cores": "ok", "memory": "ok"}),
        (1, None, 8e9, {"cores": "warn", "memory": "ok"}),
        (8, 1.5, 8e9, {"cores": "warn", "memory": "ok"}),
        (8, None, 1e9, {"cores": "ok", "memory": "warn"}),
        (8, None, None, {"cores": "ok"}),
    ],
)
def test_a_small_machine_is_a_warning(
    cores: int, quota: float | None, memory: float | None, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(doctor_checks, "cpu_quota", lambda: quota)
    monkeypatch.setattr(doctor_checks, "available_memory", lambda: memory)
    assert verdicts(doctor_checks.machine(Settings())) == expected


# --- speed ---------------------------------------------------------------------------------------------------------


@pytest.mark.models
def test_the_ear_understands_the_voice() -> None:
    assert all(ready(name) for name in ASSETS)
    findings = {finding.subject: finding for finding in doctor_speed.speed(Settings())}
    assert list(findings) == ["voice", "speech detection", "end of turn", "words"]
    # A busy machine may be slow, which is a warning; it must not be deaf.
    assert all(finding.verdict != "fail" for finding in findings.values())
    assert "weather" in findings["words"].found


def test_what_is_not_understood_is_a_failure_and_what_is_slow_a_warning() -> None:
    assert doctor_speed.understood(doctor_speed.SENTENCE, 100).verdict == "ok"
    assert doctor_speed.understood("Whether fine to day, going to the park", 100).verdict == "ok"
    assert doctor_speed.understood("Thanks for watching!", 100).verdict == "fail"
    slow = doctor_speed.understood(doctor_speed.SENTENCE, 6000)
    assert slow.verdict == "warn"
    assert "10.0 times slower" in slow.remedy


# --- the whole -----------------------------------------------------------------------------------------------------


def fine(_: Settings) -> Iterator[Finding]:
    yield Finding("ok", "fine", "yes")


def doubtful(_: Settings) -> Iterator[Finding]:
    yield Finding("warn", "doubtful", "perhaps", "look")


def broken(_: Settings) -> Iterator[Finding]:
    yield Finding("ok", "first", "yes")
    raise RuntimeError("of all things")


def test_an_examination_that_breaks_is_a_finding_and_the_others_go_on() -> None:
    findings = list(examine(Settings(), [broken, fine]))
    assert [finding.verdict for finding in findings] == ["ok", "fail", "ok"]
    assert "of all things" in findings[1].found


@pytest.mark.parametrize(
    ("examinations", "status", "last"),
    [
        ([fine], 0, "no problems, no warnings"),
        ([fine, doubtful], 0, "no problems, 1 warning"),
        ([broken, doubtful, doubtful], 1, "1 problem, 2 warnings"),
    ],
)
def test_only_a_problem_changes_the_status(
    examinations: list[object],
    status: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(doctor_checks, "EXAMINATIONS", examinations)
    assert doctor(Settings(), as_json=False) == status
    assert capsys.readouterr().out.splitlines()[-1] == last
    assert doctor(Settings(), as_json=True) == status
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is (status == 0)
    assert all(set(finding) == {"verdict", "subject", "found", "remedy"} for finding in told["findings"])


@pytest.mark.models
def test_the_command_tells_everything_about_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json", "--port", str(free_port())]) == 0
    subjects = [finding["subject"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    for subject in ("python", "onnxruntime", "model whisper-base", "cache", "port", "access", "cores", "words"):
        assert subject in subjects
