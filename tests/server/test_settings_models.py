"""Settings of the models and of those that run elsewhere: what goes together, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.settings import Settings, SettingsError, from_environment

VLLM: dict[str, Any] = {"engine": "vllm-omni", "engine_url": "ws://h:1", "engine_model": "m"}
TTS: dict[str, Any] = {"tts_url": "http://h/v1", "tts_model": "m"}
ASR: dict[str, Any] = {"asr_url": "http://h/v1", "asr_model": "m"}


@pytest.mark.parametrize(
    "right",
    [
        {"engine": "qwen3-omni", "random_weights": "tiny"},
        {"engine": "qwen3-omni", "checkpoint": Path()},
        VLLM,
        {**VLLM, "engine_url": "wss://h", "engine_key": "k", "engine_session": Path(__file__)},
        {**TTS, "tts_voice": "v", "tts_key": "k"},
        {"tts_url": "ws://h:2", "tts_voice": "v"},
        {**ASR, "asr_languages": ("en", "de"), "asr_key": "k"},
        {"asr_url": "wss://h"},
        {**VLLM, **ASR},
        {"llm_url": "https://h/v1", "llm_model": "m", "llm_key": "k"},
    ],
)
def test_what_goes_together_is_taken(right: dict[str, Any]) -> None:
    assert Settings(**right).check().engine == right.get("engine", "embedded")


@pytest.mark.parametrize(
    ("wrong", "field", "remedy"),
    [
        ({"engine": "qwen3-omni"}, "--engine qwen3-omni", "needs --checkpoint DIR or --random-weights tiny"),
        (
            {"engine": "qwen3-omni", "random_weights": "tiny", "checkpoint": Path()},
            "--engine qwen3-omni",
            "one of both",
        ),
        ({"engine": "qwen3-omni", "random_weights": "huge"}, "--random-weights huge", "there is only tiny"),
        ({"engine": "qwen3-omni", "checkpoint": Path("/nonexistent")}, "--checkpoint /nonexistent", "no such folder"),
        ({"checkpoint": Path()}, "--checkpoint", "for --engine moshi or --engine qwen3-omni"),
        (
            {"engine": "qwen3-omni", "random_weights": "tiny", "worker": "process"},
            "--worker process",
            "choose one of them",
        ),
        ({"engine": "vllm-omni"}, "--engine vllm-omni", "needs --engine-url ws://HOST:PORT and --engine-model NAME"),
        ({"engine": "vllm-omni", "engine_url": "ws://h"}, "--engine vllm-omni", "--engine-model NAME"),
        ({**VLLM, "engine_url": "h:8099"}, "--engine-url h:8099", "must begin with ws:// or wss://"),
        ({**VLLM, "engine_url": "ws://"}, "--engine-url ws://", "must begin with ws:// or wss://"),
        ({**VLLM, "engine": "embedded"}, "--engine-url", "are for --engine vllm-omni; drop them or choose it"),
        ({"engine_key": "k"}, "--engine-url", "drop them or choose it"),
        ({**VLLM, "engine_session": Path("/nonexistent")}, "--engine-session /nonexistent", "there is no such file"),
        ({**VLLM, "random_weights": "tiny"}, "--random-weights", "drop them or choose one"),
        ({**TTS, "tts_url": "h/v1"}, "--tts-url h/v1", "must begin with http://, https://, ws:// or wss://"),
        ({"tts_url": "http://h/v1"}, "--tts-url http://h/v1", "needs --tts-model NAME"),
        ({"tts_url": "ws://h", "tts_model": "m"}, "--tts-model", "serves one model; drop it"),
        ({"tts_model": "m"}, "--tts-model", "needs --tts-url"),
        ({"tts_voice": "v"}, "--tts-voice", "need --tts-url"),
        ({"tts_key": "k"}, "--tts-key", "need --tts-url"),
        ({**TTS, **VLLM}, "--tts-url", "--engine embedded alone; drop it or choose that engine"),
        ({**TTS, "voice_path": "codes"}, "--voice-path codes", "drop it"),
        ({**ASR, "asr_url": "ftp://h"}, "--asr-url ftp://h", "must begin with http://, https://, ws:// or wss://"),
        ({"asr_url": "http://h/v1"}, "--asr-url http://h/v1", "needs --asr-model NAME"),
        ({"asr_url": "ws://h", "asr_model": "m"}, "--asr-model", "serves one model; drop it"),
        ({"asr_model": "m"}, "--asr-model", "needs --asr-url"),
        ({"asr_languages": ("en",)}, "--asr-language", "need --asr-url"),
        ({"asr_key": "k"}, "--asr-key", "need --asr-url"),
        ({**ASR, "asr_languages": ("en,en-US",)}, "--asr-language en-US", "the code of a language alone, such as en"),
        ({**ASR, "asr_languages": ("English",)}, "--asr-language English", "such as en"),
        ({"llm_url": "h/v1", "llm_model": "m"}, "--llm-url h/v1", "must begin with http:// or https://"),
        ({"llm_key": "k"}, "--llm-key", "needs --llm-url"),
    ],
)
def test_a_wrong_value_is_told_with_the_field_and_the_remedy(wrong: dict[str, Any], field: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(**wrong).check()
    assert field in str(refused.value)
    assert remedy in str(refused.value)


def test_languages_are_read_from_the_variable_separated_by_commas_and_keys_are_never_shown() -> None:
    environment = {
        "TALKOVER_ASR_URL": "http://h/v1",
        "TALKOVER_ASR_MODEL": "m",
        "TALKOVER_ASR_LANGUAGES": "en, de",
        "TALKOVER_ASR_KEY": "secret-a",
        "TALKOVER_TTS_URL": "ws://h",
        "TALKOVER_TTS_KEY": "secret-t",
    }
    settings = from_environment({}, environment)
    assert settings.languages == ("en", "de")
    assert {"secret-a", "secret-t"} <= set(settings.secrets())
    assert "secret" not in repr(settings)
    engine = from_environment(
        {},
        {"TALKOVER_ENGINE": "vllm-omni", "TALKOVER_ENGINE_URL": "ws://h"}
        | {
            "TALKOVER_ENGINE_MODEL": "m",
            "TALKOVER_ENGINE_KEY": "secret-e",
        },
    )
    assert "secret-e" in engine.secrets()
    assert "secret" not in repr(engine)
