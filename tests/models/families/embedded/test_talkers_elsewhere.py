"""`talker_openai` and `talker_kyutai`, each against a process that speaks the published protocol."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from models.families.embedded.talker import Talker, TalkerError
from models.families.embedded.talker_kyutai import KyutaiTalker
from models.families.embedded.talker_openai import OpenAITalker
from sessions.core.timeline import TICK_RATE
from tests.peers.process import PeerProcess

CLAUSE = "Paris, of course."
SECONDS = 0.6
"""Three words of 200 ms."""


def openai(peer: PeerProcess, key: str = "peer-key", timeout: float = 5.0) -> OpenAITalker:
    return OpenAITalker(f"{peer.http}/v1", "m", key, timeout=timeout)


def kyutai(peer: PeerProcess, key: str = "", timeout: float = 5.0) -> KyutaiTalker:
    return KyutaiTalker(peer.ws, key, timeout=timeout)


Make = Callable[[PeerProcess], OpenAITalker | KyutaiTalker]


@pytest.mark.parametrize(
    ("module", "quirks", "make"),
    [
        ("openai_speech", (), openai),
        ("openai_speech", ("--quirk", "wav"), openai),
        ("openai_speech", ("--quirk", "wav-44100"), openai),
        ("openai_speech", ("--quirk", "busy-once"), openai),
        ("kyutai", (), kyutai),
    ],
)
def test_a_clause_comes_without_the_silence_at_its_edges_and_with_its_words(
    module: str, quirks: tuple[str, ...], make: Make
) -> None:
    with PeerProcess(module, "--sentence", "x", *quirks) as peer:
        talker = make(peer)
        typed: Talker = talker
        spoken = typed.speak(CLAUSE, first=False)
        samples = np.frombuffer(spoken.pcm, "<i2")
        assert typed.rate == 24_000
        # 20 ms of silence are left before it and at most 150 behind it.
        assert SECONDS <= samples.size / typed.rate <= SECONDS + 0.2
        assert np.abs(samples[: typed.rate // 10]).max() > 5_000
        assert "".join(word.text for word in spoken.words) == f" {CLAUSE}"
        assert [word.start for word in spoken.words] == sorted(word.start for word in spoken.words)
        assert spoken.words[-1].end <= samples.size * 2
        assert typed.speak(CLAUSE).words[0].text == "Paris,"
        assert typed.speak("…!").pcm == b""
        talker.close()


def test_kyutai_tells_when_each_word_sounds() -> None:
    with PeerProcess("kyutai", "--sentence", "x") as peer:
        talker = kyutai(peer)
        words = talker.speak(CLAUSE).words
        talker.close()
    for place, word in enumerate(words):
        assert word.start == pytest.approx((0.02 + place * 0.2) * TICK_RATE, abs=TICK_RATE * 0.005)


@pytest.mark.parametrize(
    ("module", "fault", "make", "code", "told"),
    [
        ("openai_speech", "busy", openai, "remote_http_status", "overloaded"),
        ("openai_speech", "odd", openai, "remote_bad_response", "even number"),
        ("openai_speech", "json-audio", openai, "remote_bad_response", "instead of audio"),
        ("openai_speech", "silence", openai, "remote_bad_response", "check the voice"),
        ("openai_speech", "huge", openai, "remote_bad_response", "more than"),
        ("openai_speech", "hang", lambda peer: openai(peer, timeout=0.2), "remote_timeout", "overloaded"),
        ("openai_speech", None, lambda peer: openai(peer, key="wrong"), "remote_http_status", "check the key"),
        ("kyutai", "error", kyutai, "remote_refused", "no free channels"),
        ("kyutai", "nonsense", kyutai, "remote_bad_response", "MessagePack"),
        ("kyutai", "text", kyutai, "remote_bad_response", "MessagePack"),
        ("kyutai", "close", kyutai, "remote_", "tts-url"),
        ("kyutai", "hang", lambda peer: kyutai(peer, timeout=0.2), "remote_timeout", "silent"),
        ("kyutai", "endless", kyutai, "remote_bad_response", "longer than"),
        ("kyutai", None, lambda peer: kyutai(peer, key="wrong"), "remote_refused", "unauthorized"),
    ],
)
def test_what_goes_wrong_there_is_a_typed_error_here(
    module: str, fault: str | None, make: Make, code: str, told: str
) -> None:
    option = "--quirk" if module == "openai_speech" else "--fault"
    with PeerProcess(module, "--sentence", "x", *((option, fault) if fault else ())) as peer:
        talker = make(peer)
        with pytest.raises(TalkerError, match="tts-url") as failed:
            talker.speak(CLAUSE)
        talker.close()
        assert failed.value.code.startswith(code)
        assert told in str(failed.value)


def test_a_server_that_is_not_there_is_named_with_its_setting() -> None:
    with PeerProcess("kyutai", "--sentence", "x") as peer:
        talkers = (kyutai(peer), openai(peer))
    for talker in talkers:
        with pytest.raises(TalkerError, match=r"tts-url: .* cannot be reached") as failed:
            talker.speak(CLAUSE)
        assert failed.value.code == "remote_unreachable"
        talker.close()
