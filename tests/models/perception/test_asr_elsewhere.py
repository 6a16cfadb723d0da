"""`asr_openai` and `asr_kyutai`, each against a process that speaks the published protocol."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from models.perception.asr import LanguageUnsupported
from models.perception.asr_kyutai import KyutaiRecognizer
from models.perception.asr_openai import OpenAIRecognizer
from models.remote.errors import RemoteError
from tests.peers.process import PeerProcess

SENTENCE = "What is the capital of France?"
RATE = 16_000


def utterance() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    samples = np.zeros(2 * RATE, np.float32)
    samples[RATE // 2 : RATE + RATE // 2] = 0.3
    return samples


def openai(peer: PeerProcess, key: str = "peer-key", timeout: float = 5.0) -> OpenAIRecognizer:
    return OpenAIRecognizer(f"{peer.http}/v1", "m", key, timeout=timeout)


def kyutai(peer: PeerProcess, key: str = "", timeout: float = 5.0) -> KyutaiRecognizer:
    return KyutaiRecognizer(peer.ws, key, timeout=timeout)


Make = Callable[[PeerProcess], OpenAIRecognizer | KyutaiRecognizer]


@pytest.mark.parametrize(
    ("module", "quirks", "make", "timed"),
    [
        ("openai_speech", (), openai, True),
        ("openai_speech", ("--quirk", "plain"), openai, False),
        ("openai_speech", ("--quirk", "busy-once"), openai, True),
        ("kyutai", (), kyutai, True),
    ],
)
def test_an_utterance_comes_back_as_text_with_words_that_join_to_it(
    module: str, quirks: tuple[str, ...], make: Make, timed: bool
) -> None:
    with PeerProcess(module, "--sentence", SENTENCE, *quirks) as peer:
        recognizer = make(peer)
        heard = recognizer.recognize(utterance(), "en-US", times=True)
        assert heard.text == SENTENCE
        assert "".join(word.text for word in heard.words) == SENTENCE
        begin, end = (0.5, 1.5) if timed else (0.0, 2.0)
        assert heard.words[0].start == pytest.approx(begin, abs=0.02)
        assert heard.words[-1].end == pytest.approx(end, abs=0.02)
        assert [word.start for word in heard.words] == sorted(word.start for word in heard.words)
        assert recognizer.recognize(utterance(), "en").words == ()
        assert recognizer.recognize(np.zeros(RATE, np.float32), "en").text == ""
        assert recognizer.recognize(np.zeros(10, np.float32), "en").text == ""
        recognizer.close()


@pytest.mark.parametrize(("module", "make"), [("openai_speech", openai), ("kyutai", kyutai)])
def test_several_threads_ask_at_once(module: str, make: Make) -> None:
    with PeerProcess(module, "--sentence", SENTENCE) as peer, ThreadPoolExecutor(4) as pool:
        recognizer = make(peer)
        texts = list(pool.map(lambda _: recognizer.recognize(utterance()).text, range(8)))
        recognizer.close()
    assert texts == [SENTENCE] * 8


@pytest.mark.parametrize(
    ("module", "fault", "make", "code", "told"),
    [
        ("openai_speech", "busy", openai, "remote_http_status", "overloaded"),
        ("openai_speech", "no-text", openai, "remote_bad_response", "no text"),
        ("openai_speech", "hang", lambda peer: openai(peer, timeout=0.2), "remote_timeout", "overloaded"),
        ("openai_speech", None, lambda peer: openai(peer, key="wrong"), "remote_http_status", "check the key"),
        ("kyutai", "error", kyutai, "remote_refused", "no free channels"),
        ("kyutai", "nonsense", kyutai, "remote_bad_response", "MessagePack"),
        ("kyutai", "close", kyutai, "remote_lost", "asr-url"),
        ("kyutai", "hang", lambda peer: kyutai(peer, timeout=0.2), "remote_timeout", "silent"),
        ("kyutai", "no-marker", lambda peer: kyutai(peer, timeout=0.3), "remote_timeout", "silent"),
    ],
)
def test_what_goes_wrong_there_is_a_typed_error_here(
    module: str, fault: str | None, make: Make, code: str, told: str
) -> None:
    option = "--quirk" if module == "openai_speech" else "--fault"
    with PeerProcess(module, "--sentence", SENTENCE, *((option, fault) if fault else ())) as peer:
        recognizer = make(peer)
        with pytest.raises(RemoteError, match="asr-url") as failed:
            recognizer.recognize(utterance(), times=True)
        recognizer.close()
        assert failed.value.code == code
        assert told in str(failed.value)


@pytest.mark.parametrize("make", [OpenAIRecognizer, KyutaiRecognizer])
def test_a_language_that_it_is_not_said_to_know_is_refused(
    make: type[OpenAIRecognizer] | type[KyutaiRecognizer],
) -> None:
    url = "http://h" if make is OpenAIRecognizer else "ws://h"
    recognizer = make(url, "m", languages=("en", "de"))
    with pytest.raises(LanguageUnsupported, match="--asr-language sv"):
        recognizer.recognize(utterance(), "sv-SE")
    recognizer.close()
