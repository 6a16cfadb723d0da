from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from server.dialects import realtime_session as schema
from server.dialects.checks import Rejected
from sessions.core.config import SessionConfig, Tool, TurnConfig

BASE = SessionConfig(instructions="be brief", voice="alloy", temperature=0.3, lead=4800)
SERVER = {"type": "server_vad"}


def merged(**fields: Any) -> dict[str, Any]:
    return dict(schema.merge(schema.initial("m", BASE), {"type": "realtime", **fields}))


def config(**fields: Any) -> SessionConfig:
    return schema.to_config(merged(**fields), BASE)


def detection(value: Any) -> dict[str, Any]:
    return {"audio": {"input": {"turn_detection": value}}}


@pytest.mark.parametrize(
    "base",
    [
        BASE,
        SessionConfig(turns=None, modality="text", transcribe_input=True, max_output_tokens=77),
        SessionConfig(turns=TurnConfig(kind="semantic_vad", max_silence_ms=8000, resume_ms=99), speed=1.25),
        SessionConfig(turns=TurnConfig(threshold=0.7, silence_ms=350, idle_timeout_ms=9000, create_response=False)),
        SessionConfig(tools=(Tool(name="add", description="sum", parameters='{"type":"object"}'),), tool_choice="add"),
    ],
)
def test_the_servers_defaults_survive_being_put_into_the_protocols_words(base: SessionConfig) -> None:
    assert schema.to_config(schema.initial("m", base), base) == base


def test_an_empty_update_changes_nothing() -> None:
    assert merged() == schema.initial("m", BASE)


def test_an_update_changes_only_what_it_names() -> None:
    before = schema.initial("m", BASE)
    after = merged(audio={"output": {"speed": 1.2}}, instructions="sing")
    assert after["instructions"] == "sing"
    assert after["audio"]["output"] == {**before["audio"]["output"], "speed": 1.2}  # type: ignore[index, call-overload, dict-item]
    assert after["audio"]["input"] == before["audio"]["input"]  # type: ignore[index, call-overload]


def test_unknown_fields_are_passed_over() -> None:
    assert merged(input_audio_format="pcm16", future={"x": 1}, audio={"input": {"beam": 3}}) == merged()


def test_a_null_field_goes_back_to_its_default_or_stays() -> None:
    after = merged(instructions=None, tools=None, tool_choice=None, max_output_tokens=None, audio=None, model=None)
    assert after == {**merged(), "instructions": ""}


@pytest.mark.parametrize(("word", "ms"), [("low", 8000), ("medium", 4000), ("high", 2000), ("auto", 4000)])
def test_eagerness_is_the_longest_silence_of_an_unfinished_turn(word: str, ms: int) -> None:
    turns = config(**detection({"type": "semantic_vad", "eagerness": word})).turns
    assert turns is not None
    assert (turns.kind, turns.max_silence_ms) == ("semantic_vad", ms)


def test_server_vad_fields_reach_the_core() -> None:
    turns = config(
        **detection(
            {
                "type": "server_vad",
                "threshold": 0.8,
                "prefix_padding_ms": 120,
                "silence_duration_ms": 700,
                "idle_timeout_ms": 6000,
                "create_response": False,
                "interrupt_response": False,
                "x_commit_ms": 260,
                "x_resume_ms": 200,
                "x_echo_gate": False,
            }
        )
    ).turns
    assert turns == TurnConfig(
        threshold=0.8,
        prefix_padding_ms=120,
        silence_ms=700,
        idle_timeout_ms=6000,
        create_response=False,
        interrupt_response=False,
        commit_ms=260,
        resume_ms=200,
        echo=schema.NO_ECHO_GATE,
    )


def test_the_commit_time_of_semantic_vad_is_its_own() -> None:
    turns = config(**detection({"type": "semantic_vad", "x_commit_ms": 900})).turns
    assert turns is not None
    assert (turns.semantic_commit_ms, turns.commit_ms) == (900, TurnConfig().commit_ms)


def test_turn_detection_null_is_push_to_talk() -> None:
    assert config(**detection(None)).turns is None


def test_turn_detection_is_echoed_whole() -> None:
    echoed = merged(**detection({"type": "semantic_vad"}))["audio"]["input"]["turn_detection"]
    assert echoed == {
        "type": "semantic_vad",
        "eagerness": "auto",
        "create_response": True,
        "interrupt_response": True,
        "x_commit_ms": TurnConfig().semantic_commit_ms,
        "x_resume_ms": 160,
        "x_echo_gate": True,
    }


def test_a_second_update_of_the_same_kind_keeps_the_first() -> None:
    first = schema.merge(schema.initial("m", BASE), {"type": "realtime", **detection({**SERVER, "threshold": 0.9})})
    second = schema.merge(first, {"type": "realtime", **detection({**SERVER, "silence_duration_ms": 300})})
    turns = schema.to_config(second, BASE).turns
    assert turns is not None
    assert (turns.threshold, turns.silence_ms) == (0.9, 300)


def test_another_kind_begins_with_its_own_defaults() -> None:
    first = schema.merge(schema.initial("m", BASE), {"type": "realtime", **detection({**SERVER, "x_resume_ms": 700})})
    second = schema.merge(first, {"type": "realtime", **detection({"type": "semantic_vad"})})
    turns = schema.to_config(second, BASE).turns
    assert turns is not None
    assert turns.resume_ms == TurnConfig().resume_ms


def test_tools_reach_the_core_with_their_schema_as_text() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    made = config(
        tools=[{"type": "function", "name": "weather", "description": "now", "parameters": parameters}],
        tool_choice={"type": "function", "name": "weather"},
    )
    assert made.tool_choice == "weather"
    assert [tool.name for tool in made.tools] == ["weather"]
    assert json.loads(made.tools[0].parameters) == parameters


def test_everything_that_is_only_accepted_is_echoed() -> None:
    fields = {
        "tracing": {"workflow_name": "w"},
        "prompt": {"id": "pmpt_1", "variables": {"a": "b"}},
        "truncation": {"type": "retention_ratio", "retention_ratio": 0.8},
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": False,
    }
    after = merged(**fields, audio={"input": {"noise_reduction": {"type": "near_field"}}})
    assert {key: after[key] for key in fields} == fields
    assert after["audio"]["input"]["noise_reduction"] == {"type": "near_field"}


def test_what_is_included_is_asked_for() -> None:
    logprobs = ["item.input_audio_transcription.logprobs"]
    assert merged(include=logprobs)["include"] == logprobs
    assert config(include=logprobs).transcript_logprobs
    assert not config(include=[]).transcript_logprobs
    assert not config(include=None).transcript_logprobs


def test_transcription_switches_captions_and_language() -> None:
    made = config(audio={"input": {"transcription": {"model": "whisper-1", "language": "de"}}})
    assert (made.transcribe_input, made.language) == (True, "de")
    assert not config(audio={"input": {"transcription": None}}).transcribe_input


@pytest.mark.parametrize("media", ["audio/pcmu", "audio/pcma"])
def test_each_direction_has_its_own_format(media: str) -> None:
    after = merged(audio={"input": {"format": {"type": media}}})
    assert schema.format_of(schema.input_of(after)) == media
    assert schema.format_of(schema.output_of(after)) == "audio/pcm"


def test_a_custom_voice_is_known_by_its_id() -> None:
    after = merged(audio={"output": {"voice": {"id": "voice_7"}}})
    assert after["audio"]["output"]["voice"] == {"id": "voice_7"}
    assert schema.to_config(after, BASE).voice == "voice_7"


def test_own_notices_are_off_until_asked_for() -> None:
    assert not schema.wants_notices(merged())
    assert schema.wants_notices(merged(x_talkover={"notices": True}))


IN, OUT, TURNS = "session.audio.input", "session.audio.output", "session.audio.input.turn_detection"
FUNCTION = {"type": "function", "name": "f"}

WRONG: list[tuple[Any, str | None, str]] = [
    ("text", "session", "invalid_type"),
    (None, "session", "invalid_type"),
    ({}, "session.type", "missing_required_parameter"),
    ({"type": "chat"}, "session.type", "invalid_value"),
    ({"type": "transcription"}, "session.type", "cannot_update_session_type"),
    ({"model": ""}, "session.model", "invalid_value"),
    ({"instructions": 5}, "session.instructions", "invalid_type"),
    ({"output_modalities": ["audio", "text"]}, "session.output_modalities", "invalid_value"),
    ({"output_modalities": ["video"]}, "session.output_modalities", "invalid_value"),
    ({"output_modalities": []}, "session.output_modalities", "invalid_value"),
    ({"output_modalities": "audio"}, "session.output_modalities", "invalid_type"),
    ({"audio": []}, "session.audio", "invalid_type"),
    ({"audio": {"input": 1}}, IN, "invalid_type"),
    ({"audio": {"input": {"format": "pcm16"}}}, f"{IN}.format", "invalid_type"),
    ({"audio": {"input": {"format": {}}}}, f"{IN}.format.type", "missing_required_parameter"),
    ({"audio": {"input": {"format": {"type": "audio/opus"}}}}, f"{IN}.format.type", "invalid_value"),
    ({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}}, f"{IN}.format.rate", "invalid_value"),
    ({"audio": {"output": {"format": {"type": "audio/pcm", "rate": "x"}}}}, f"{OUT}.format.rate", "invalid_type"),
    ({"audio": {"input": {"noise_reduction": {"type": "loud"}}}}, f"{IN}.noise_reduction.type", "invalid_value"),
    (
        {"audio": {"input": {"noise_reduction": {"type": "far_field", "strength": 3}}}},
        f"{IN}.noise_reduction.strength",
        "invalid_value",
    ),
    ({"audio": {"input": {"transcription": {"model": 3}}}}, f"{IN}.transcription.model", "invalid_type"),
    ({"audio": {"input": {"transcription": {"keywords": [1]}}}}, f"{IN}.transcription.keywords[0]", "invalid_type"),
    ({"audio": {"input": {"transcription": {"delay": "now"}}}}, f"{IN}.transcription.delay", "invalid_value"),
    (detection("server_vad"), TURNS, "invalid_type"),
    (detection({"type": "vad"}), f"{TURNS}.type", "invalid_value"),
    (detection({**SERVER, "threshold": 1.5}), f"{TURNS}.threshold", "invalid_value"),
    (detection({**SERVER, "threshold": "high"}), f"{TURNS}.threshold", "invalid_type"),
    (detection({**SERVER, "prefix_padding_ms": -1}), f"{TURNS}.prefix_padding_ms", "invalid_value"),
    (detection({**SERVER, "silence_duration_ms": 1.5}), f"{TURNS}.silence_duration_ms", "invalid_type"),
    (detection({**SERVER, "idle_timeout_ms": 1}), f"{TURNS}.idle_timeout_ms", "invalid_value"),
    (detection({**SERVER, "create_response": "yes"}), f"{TURNS}.create_response", "invalid_type"),
    (detection({**SERVER, "interrupt_response": 1}), f"{TURNS}.interrupt_response", "invalid_type"),
    (detection({**SERVER, "x_commit_ms": 0}), f"{TURNS}.x_commit_ms", "invalid_value"),
    (detection({**SERVER, "x_resume_ms": "1"}), f"{TURNS}.x_resume_ms", "invalid_type"),
    (detection({**SERVER, "x_echo_gate": 1}), f"{TURNS}.x_echo_gate", "invalid_type"),
    (detection({"type": "semantic_vad", "eagerness": "wild"}), f"{TURNS}.eagerness", "invalid_value"),
    ({"audio": {"output": {"voice": ""}}}, f"{OUT}.voice", "invalid_value"),
    ({"audio": {"output": {"voice": {}}}}, f"{OUT}.voice.id", "missing_required_parameter"),
    ({"audio": {"output": {"speed": 3}}}, f"{OUT}.speed", "invalid_value"),
    ({"tools": {}}, "session.tools", "invalid_type"),
    ({"tools": [FUNCTION, 5]}, "session.tools[1]", "invalid_type"),
    ({"tools": [{"name": "f"}]}, "session.tools[0].type", "missing_required_parameter"),
    ({"tools": [{"type": "mcp", "server_label": "x"}]}, "session.tools[0].type", "unsupported"),
    ({"tools": [{"type": "function"}]}, "session.tools[0].name", "missing_required_parameter"),
    ({"tools": [{"type": "function", "name": "no spaces"}]}, "session.tools[0].name", "invalid_value"),
    ({"tools": [{"type": "function", "name": "auto"}]}, "session.tools[0].name", "invalid_value"),
    ({"tools": [FUNCTION, FUNCTION]}, "session.tools[1].name", "invalid_value"),
    ({"tools": [{**FUNCTION, "description": 1}]}, "session.tools[0].description", "invalid_type"),
    ({"tools": [{**FUNCTION, "parameters": "{}"}]}, "session.tools[0].parameters", "invalid_type"),
    ({"tool_choice": "maybe"}, "session.tool_choice", "invalid_value"),
    ({"tool_choice": 5}, "session.tool_choice", "invalid_type"),
    ({"tool_choice": {"type": "function"}}, "session.tool_choice.name", "missing_required_parameter"),
    ({"tool_choice": {"type": "mcp"}}, "session.tool_choice.type", "unsupported"),
    ({"tool_choice": {"type": "function", "name": "g"}}, "session.tool_choice.name", "invalid_value"),
    ({"parallel_tool_calls": "no"}, "session.parallel_tool_calls", "invalid_type"),
    ({"max_output_tokens": 0}, "session.max_output_tokens", "invalid_value"),
    ({"max_output_tokens": "many"}, "session.max_output_tokens", "invalid_value"),
    ({"max_output_tokens": 5.5}, "session.max_output_tokens", "invalid_type"),
    ({"truncation": "hard"}, "session.truncation", "invalid_value"),
    (
        {"truncation": {"type": "retention_ratio", "retention_ratio": 2}},
        "session.truncation.retention_ratio",
        "invalid_value",
    ),
    ({"tracing": "on"}, "session.tracing", "invalid_value"),
    ({"prompt": {}}, "session.prompt.id", "missing_required_parameter"),
    ({"reasoning": {"effort": "huge"}}, "session.reasoning.effort", "invalid_value"),
    ({"include": ["everything"]}, "session.include", "invalid_value"),
    ({"x_talkover": {"notices": "yes"}}, "session.x_talkover.notices", "invalid_type"),
    ({"x_talkover": 1}, "session.x_talkover", "invalid_type"),
]


@pytest.mark.parametrize(("patch", "param", "code"), WRONG)
def test_a_wrong_field_is_named_and_nothing_changes(patch: Any, param: str, code: str) -> None:
    before = schema.initial("m", BASE)
    untouched = copy.deepcopy(before)
    if isinstance(patch, dict) and patch and "type" not in patch:
        patch = {"type": "realtime", "instructions": "changed", **patch}
    with pytest.raises(Rejected) as caught:
        schema.merge(before, patch)
    assert (caught.value.param, caught.value.code) == (param, code)
    assert before == untouched


def test_turn_detection_without_a_type_changes_the_one_in_force_but_cannot_switch_one_on() -> None:
    turns = config(**detection({"threshold": 0.2})).turns
    assert turns is not None
    assert turns.threshold == 0.2
    off = schema.merge(schema.initial("m", BASE), {"type": "realtime", **detection(None)})
    with pytest.raises(Rejected, match=r"turn_detection\.type"):
        schema.merge(off, {"type": "realtime", **detection({"threshold": 0.2})})


def test_noise_reduction_is_on_where_it_is_set() -> None:
    assert not config().denoise
    assert config(audio={"input": {"noise_reduction": {"type": "far_field"}}}).denoise
    assert not config(audio={"input": {"noise_reduction": None}}).denoise
