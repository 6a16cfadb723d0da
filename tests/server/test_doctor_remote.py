"""`talkover doctor` and models that run elsewhere: each is asked in its own protocol, and told what to do about."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from server.doctor import Finding, examine
from server.doctor_checks import EXAMINATIONS
from server.doctor_remote import SLOW_MS, _timed, remote_engine, remote_recognizer, remote_voice
from server.settings import Settings
from tests.peers.process import PeerProcess
from tests.servers import free_port


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    assert (finding.verdict == "ok") == (finding.remedy == "")
    return finding


def engine(url: str) -> Settings:
    return Settings(engine="vllm-omni", engine_url=url, engine_model="tone")


def test_nothing_is_asked_where_everything_runs_here() -> None:
    for examination in (remote_engine, remote_voice, remote_recognizer):
        assert list(examination(Settings())) == []
        assert examination in EXAMINATIONS


def test_an_engine_says_what_it_can_do() -> None:
    with PeerProcess("vllm_omni") as peer:
        finding = only(remote_engine(engine(peer.ws)))
        assert finding.verdict == "ok"
        assert finding.found == f"{peer.ws} serves tone: turns of its own, barge-in, playback reports, resume"
        assert peer.seen()["session.close"]


def test_an_engine_whose_sessions_are_lost_with_their_connection_is_a_warning() -> None:
    with PeerProcess("vllm_omni", "--no-resume") as peer:
        finding = only(remote_engine(engine(peer.ws)))
    assert (finding.verdict, "no resume" in finding.found) == ("warn", True)
    assert "enable session resume" in finding.remedy


@pytest.mark.parametrize(
    ("examination", "make"),
    [
        (remote_engine, lambda port: engine(f"ws://127.0.0.1:{port}")),
        (remote_voice, lambda port: Settings(tts_url=f"http://127.0.0.1:{port}/v1", tts_model="m")),
        (remote_voice, lambda port: Settings(tts_url=f"ws://127.0.0.1:{port}")),
        (remote_recognizer, lambda port: Settings(asr_url=f"http://127.0.0.1:{port}/v1", asr_model="m")),
        (remote_recognizer, lambda port: Settings(asr_url=f"ws://127.0.0.1:{port}")),
    ],
)
def test_a_server_that_is_not_there_is_a_failure_that_names_setting_and_remedy(
    examination: Callable[[Settings], Iterable[Finding]], make: Callable[[int], Settings]
) -> None:
    finding = only(examination(make(free_port())))
    assert finding.verdict == "fail"
    assert "-url" in finding.found
    assert finding.remedy == "check address and network"


@pytest.mark.parametrize(
    ("fault", "remedy"), [("refuse", "see the log of that server"), ("full", "see the log of that server")]
)
def test_an_engine_that_refuses_a_session_is_a_failure_with_its_reason(fault: str, remedy: str) -> None:
    with PeerProcess("vllm_omni", "--fault", fault) as peer:
        finding = only(remote_engine(engine(peer.ws)))
    assert (finding.verdict, finding.remedy) == ("fail", remedy)
    assert "no session like that" in finding.found


def test_a_server_that_speaks_another_protocol_is_told_from_one_that_is_away() -> None:
    with PeerProcess("openai_speech", "--sentence", "x") as peer:
        finding = only(remote_engine(engine(peer.ws)))
        assert finding.verdict == "fail"
        assert "answered 40" in finding.found
        voice = only(remote_voice(Settings(tts_url=peer.ws)))
        assert voice.verdict == "fail"


def test_a_voice_is_asked_for_a_word_and_a_recognizer_for_a_second() -> None:
    with PeerProcess("openai_speech", "--sentence", "x") as peer:
        url = f"{peer.http}/v1"
        voice = only(remote_voice(Settings(tts_url=url, tts_model="m", tts_key="peer-key")))
        assert voice.found.startswith(f"{url} said 'Testing.': ")
        assert voice.verdict in ("ok", "warn")
        ear = only(remote_recognizer(Settings(asr_url=url, asr_model="m", asr_key="peer-key")))
        assert ear.found.startswith(f"{url} heard '' in a second of silence")
        assert ear.verdict in ("ok", "warn")
        wrong = only(remote_voice(Settings(tts_url=url, tts_model="m", tts_key="another")))
        assert (wrong.verdict, wrong.remedy) == ("fail", "check the key")
        assert "another" not in wrong.found


def test_kyutais_servers_are_asked_in_their_own_protocol() -> None:
    with PeerProcess("kyutai", "--sentence", "x") as peer:
        assert only(remote_voice(Settings(tts_url=peer.ws))).found.startswith(f"{peer.ws} said 'Testing.'")
        assert only(remote_recognizer(Settings(asr_url=peer.ws))).found.startswith(f"{peer.ws} heard ''")
        wrong = only(remote_recognizer(Settings(asr_url=peer.ws, asr_key="another")))
        assert wrong.verdict == "fail"


def test_a_voice_that_answers_nonsense_is_a_failure() -> None:
    with PeerProcess("openai_speech", "--sentence", "x", "--quirk", "json-audio") as peer:
        finding = only(remote_voice(Settings(tts_url=f"{peer.http}/v1", tts_model="m", tts_key="peer-key")))
    assert finding.verdict == "fail"
    assert "text came instead of audio" in f"{finding.found}; {finding.remedy}"


def test_what_takes_long_is_a_warning() -> None:
    assert only([_timed("remote voice", "it spoke", SLOW_MS)]).verdict == "ok"
    slow = only([_timed("remote voice", "it spoke", SLOW_MS + 1)])
    assert (slow.verdict, slow.found) == ("warn", f"it spoke, {SLOW_MS + 1:.0f} ms")


def test_an_examination_that_breaks_is_told_and_does_not_end_the_others() -> None:
    settings = Settings(engine="vllm-omni", engine_url="gopher://x", engine_model="m")
    findings = list(examine(settings, [remote_engine, remote_voice]))
    assert [finding.verdict for finding in findings] == ["fail"]
    assert "ws://" in f"{findings[0].found} {findings[0].remedy}"
