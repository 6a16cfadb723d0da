"""The session object of the Realtime API: defaults, partial merge with full validation, and what it means to the core.

https://platform.openai.com/docs/api-reference/realtime-client-events/session/update (GA). The object that is kept
here is always the full effective one, in the protocol's own spelling, so echoing it is free.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Literal

from sessions.core.config import SessionConfig, Tool, TurnConfig

from . import realtime_transcription as kinds
from .checks import (
    INVALID_VALUE,
    UNSUPPORTED,
    Json,
    Object,
    Rejected,
    a_bool,
    a_list,
    a_number,
    a_string,
    an_integer,
    an_object,
    one_of,
    required,
)

EAGERNESS_MS: Final[Mapping[str, int]] = {"low": 8000, "medium": 4000, "high": 2000, "auto": 4000}
"""Longest silence that an unfinished turn is given, by `eagerness`."""

LOGPROBS: Final = "item.input_audio_transcription.logprobs"
INCLUDABLE: Final = (LOGPROBS,)
_CHOICES: Final = ("auto", "none", "required")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

MAX_OUTPUT_TOKENS: Final = 4096

VENDOR_VOICES: Final = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse")
)
"""Names that SDKs send by themselves. They are echoed, and spoken with the server's default voice."""


def initial(model: str, config: SessionConfig, kind: str = "realtime") -> Object:
    """The effective session object before the client asked for anything, without its id.

    `model` is the name that the client asked for, `config` the server's defaults, `kind` "realtime" or "transcription".
    """
    turns = config.turns
    listens = kind == "transcription"
    session: Object = {
        "type": kind,
        "object": "realtime.transcription_session" if listens else "realtime.session",
        "model": model,
        "instructions": config.instructions,
        "output_modalities": [config.modality],
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "noise_reduction": None,
                "transcription": {"model": "default"} if config.transcribe_input or listens else None,
                "turn_detection": None if turns is None else _detection_of(turns),
            },
            "output": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "voice": config.voice,
                "speed": config.speed,
            },
        },
        "tools": [_tool_echo(tool) for tool in config.tools],
        "tool_choice": (
            config.tool_choice if config.tool_choice in _CHOICES else {"type": "function", "name": config.tool_choice}
        ),
        "parallel_tool_calls": True,
        "max_output_tokens": "inf" if config.max_output_tokens is None else config.max_output_tokens,
        "truncation": "auto",
        "tracing": None,
        "prompt": None,
        "reasoning": None,
        "include": None,
        "x_talkover": {"notices": False},
    }
    return kinds.without_responses(session) if listens else session


def merge(current: Object, patch: Json, path: str = "session") -> Object:
    """`current` with the fields of `patch` put in, everything else left as it is.

    Raises Rejected with the path of the first wrong field; `current` is never changed. Fields that the protocol does
    not know are passed over, as clients of other versions send them.
    """
    changes = an_object(patch, path)
    kind = str(current["type"])
    kinds.check_kind(changes, kind, path)
    if kind == "transcription":
        kinds.check(changes, path)
        return kinds.without_responses(_merge_fields(current, changes, path, _SESSION))
    merged = _merge_fields(current, changes, path, _SESSION)
    _check_tool_choice(merged, path)
    return merged


def to_config(session: Object, base: SessionConfig) -> SessionConfig:
    """What the effective `session` object means to the core; whatever it does not say comes from `base`."""
    hears, speaks = input_of(session), output_of(session)
    limit, modalities = session["max_output_tokens"], session["output_modalities"]
    instructions, speed, temperature = session["instructions"], speaks["speed"], session.get("temperature")
    transcription, detection, include = hears["transcription"], hears["turn_detection"], session["include"]
    language = transcription.get("language") if isinstance(transcription, Mapping) else None
    return replace(
        base,
        instructions=instructions if isinstance(instructions, str) else "",
        modality="text" if modalities == ["text"] else "audio",
        voice=base.voice if voice_of(session) in VENDOR_VOICES else voice_of(session),
        speed=float(speed) if isinstance(speed, int | float) else base.speed,
        turns=_turns(detection, base.turns or TurnConfig()) if isinstance(detection, Mapping) else None,
        responses=session["type"] == "realtime",
        transcribe_input=transcription is not None,
        transcript_logprobs=isinstance(include, list) and LOGPROBS in include,
        denoise=hears["noise_reduction"] is not None,
        language=language if isinstance(language, str) else base.language,
        tools=to_tools(session["tools"]),
        tool_choice=to_tool_choice(session["tool_choice"]),
        max_output_tokens=limit if isinstance(limit, int) else None,
        temperature=float(temperature) if isinstance(temperature, int | float) else base.temperature,
        recording_consent=_consent_of(session) or base.recording_consent,
    )


def _consent_of(session: Object) -> Literal["", "given", "refused"]:
    own = session["x_talkover"]
    match own.get("recording_consent") if isinstance(own, Mapping) else None:
        case "given":
            return "given"
        case "refused":
            return "refused"
        case _:
            return ""


def input_of(session: Object) -> Object:
    return an_object(an_object(session["audio"], "session.audio")["input"], "session.audio.input")


def output_of(session: Object) -> Object:
    return an_object(an_object(session["audio"], "session.audio")["output"], "session.audio.output")


def format_of(side: Object) -> str:
    """The media type of `side`, one of `input_of` and `output_of`: "audio/pcm", "audio/pcmu" or "audio/pcma"."""
    return str(an_object(side["format"], "session.audio.format")["type"])


def voice_of(session: Object) -> str:
    return voice_name(output_of(session)["voice"])


def voice_name(given: Json) -> str:
    """The name in a voice of either form."""
    return str(given["id"]) if isinstance(given, Mapping) else str(given)


def wants_notices(session: Object) -> bool:
    own = session["x_talkover"]
    return isinstance(own, Mapping) and own.get("notices") is True


def to_tools(tools: Json) -> tuple[Tool, ...]:
    return tuple(
        Tool(
            name=str(tool["name"]),
            description=str(tool["description"]),
            parameters=json.dumps(tool["parameters"], separators=(",", ":")),
        )
        for tool in (tools if isinstance(tools, list) else [])
    )


def to_tool_choice(choice: Json) -> str:
    return str(choice["name"]) if isinstance(choice, Mapping) else str(choice)


# --- one check per field -------------------------------------------------------------------------------------------
# Each takes (new value, path, value in force) and returns what is kept and echoed.

_Field = Callable[[Json, str, Json], Json]


def _merge_fields(current: Object, changes: Object, path: str, fields: Mapping[str, _Field]) -> Object:
    merged = dict(current)
    for key, value in changes.items():
        if key in fields:
            merged[key] = fields[key](value, f"{path}.{key}", current.get(key))
    return merged


def _text(value: Json, path: str, _: Json) -> Json:
    return "" if value is None else a_string(value, path)


def _model(value: Json, path: str, current: Json) -> Json:
    return current if value is None else a_string(value, path, longest=256, shortest=1)


def modalities(value: Json, path: str, current: Json = None) -> Json:
    if value is None:
        return current
    entries = [one_of(entry, path, ("audio", "text")) for entry in a_list(value, path, longest=2)]
    if len(entries) != 1:
        raise Rejected(INVALID_VALUE, f"{path!r} takes ['audio'] (with a transcript) or ['text']", path)
    return entries


def token_limit(value: Json, path: str, _: Json = None) -> Json:
    if value is None or value == "inf":
        return "inf"
    if isinstance(value, str):
        raise Rejected(INVALID_VALUE, f"{path!r} takes an integer from 1 to {MAX_OUTPUT_TOKENS} or 'inf'", path)
    return an_integer(value, path, 1, MAX_OUTPUT_TOKENS)


def tools(value: Json, path: str, _: Json = None) -> Json:
    if value is None:
        return []
    seen: set[str] = set()
    kept: list[Json] = []
    for index, entry in enumerate(a_list(value, path, longest=128)):
        kept.append(_tool(entry, f"{path}[{index}]", seen))
    return kept


def _tool(value: Json, path: str, seen: set[str]) -> Json:
    tool = an_object(value, path)
    kind = one_of(required(tool, "type", f"{path}.type"), f"{path}.type", ("function", "mcp"))
    if kind == "mcp":
        raise Rejected(UNSUPPORTED, "MCP tools are not called from here; give the tool as a function", f"{path}.type")
    name = a_string(required(tool, "name", f"{path}.name"), f"{path}.name")
    if not _TOOL_NAME.fullmatch(name) or name in _CHOICES:
        raise Rejected(
            INVALID_VALUE,
            f"{path + '.name'!r} takes 1 to 64 of A-Z a-z 0-9 _ - and none of the words {', '.join(_CHOICES)}",
            f"{path}.name",
        )
    if name in seen:
        raise Rejected(INVALID_VALUE, f"two tools are named {name!r}; names tell them apart", f"{path}.name")
    seen.add(name)
    description, parameters = tool.get("description"), tool.get("parameters")
    return {
        "type": "function",
        "name": name,
        "description": "" if description is None else a_string(description, f"{path}.description"),
        "parameters": {} if parameters is None else an_object(parameters, f"{path}.parameters"),
    }


def _tool_echo(tool: Tool) -> Json:
    parameters: Json = json.loads(tool.parameters)
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": parameters}


def tool_choice(value: Json, path: str, _: Json = None) -> Json:
    if value is None:
        return "auto"
    if isinstance(value, str):
        return one_of(value, path, _CHOICES)
    choice = an_object(value, path)
    kind = one_of(required(choice, "type", f"{path}.type"), f"{path}.type", ("function", "mcp"))
    if kind == "mcp":
        raise Rejected(UNSUPPORTED, "MCP tools are not called from here; name a function", f"{path}.type")
    name = a_string(required(choice, "name", f"{path}.name"), f"{path}.name", longest=64, shortest=1)
    return {"type": "function", "name": name}


def _check_tool_choice(session: Object, path: str) -> None:
    choice = session["tool_choice"]
    if isinstance(choice, Mapping):
        check_known_tool(str(choice["name"]), session["tools"], f"{path}.tool_choice.name")


def check_known_tool(name: str, known: Json, path: str) -> None:
    """Raises Rejected where no tool of the session object's list `known` has that name."""
    if name not in {tool.name for tool in to_tools(known)}:
        raise Rejected(INVALID_VALUE, f"{path!r} names {name!r}, which is none of the session's tools", path)


def _truncation(value: Json, path: str, _: Json) -> Json:
    if value is None:
        return "auto"
    if isinstance(value, str):
        return one_of(value, path, ("auto", "disabled"))
    ratio = an_object(value, path)
    one_of(required(ratio, "type", f"{path}.type"), f"{path}.type", ("retention_ratio",))
    a_number(required(ratio, "retention_ratio", f"{path}.retention_ratio"), f"{path}.retention_ratio", 0, 1)
    return ratio


def _tracing(value: Json, path: str, _: Json) -> Json:
    if value is None:
        return None
    return one_of(value, path, ("auto",)) if isinstance(value, str) else an_object(value, path)


def _prompt(value: Json, path: str, _: Json) -> Json:
    if value is None:
        return None
    prompt = an_object(value, path)
    a_string(required(prompt, "id", f"{path}.id"), f"{path}.id", longest=256, shortest=1)
    return prompt


def _reasoning(value: Json, path: str, _: Json) -> Json:
    if value is None:
        return None
    reasoning = an_object(value, path)
    if reasoning.get("effort") is not None:
        one_of(reasoning["effort"], f"{path}.effort", ("minimal", "low", "medium", "high", "xhigh"))
    return reasoning


def _include(value: Json, path: str, _: Json) -> Json:
    return None if value is None else [one_of(entry, path, INCLUDABLE) for entry in a_list(value, path)]


def _yes_or_no(value: Json, path: str, current: Json) -> Json:
    return current if value is None else a_bool(value, path)


def _own(value: Json, path: str, current: Json) -> Json:
    fields: Mapping[str, _Field] = {"notices": _yes_or_no, "recording_consent": _consent}
    return _merge_fields(an_object(current, path), an_object(value, path), path, fields)


def _consent(value: Json, path: str, current: Json) -> Json:
    return current if value is None else one_of(value, path, ("given", "refused"))


def _audio(value: Json, path: str, current: Json) -> Json:
    if value is None:
        return current
    return _merge_fields(an_object(current, path), an_object(value, path), path, {"input": _input, "output": _output})


def _input(value: Json, path: str, current: Json) -> Json:
    return current if value is None else _merge_fields(an_object(current, path), an_object(value, path), path, _INPUT)


def _output(value: Json, path: str, current: Json) -> Json:
    return current if value is None else _merge_fields(an_object(current, path), an_object(value, path), path, _OUTPUT)


def audio_format(value: Json, path: str, current: Json = None) -> Json:
    if value is None:
        return current
    wanted = an_object(value, path)
    kinds = ("audio/pcm", "audio/pcmu", "audio/pcma")
    kind = one_of(required(wanted, "type", f"{path}.type"), f"{path}.type", kinds)
    if kind != "audio/pcm":
        return {"type": kind}
    rate = wanted.get("rate")
    if rate is not None and an_integer(rate, f"{path}.rate", 1, 1 << 30) != 24000:
        raise Rejected(INVALID_VALUE, f"{path + '.rate'!r} is {rate}; audio/pcm is 24000 Hz here", f"{path}.rate")
    return {"type": kind, "rate": 24000}


def _noise_reduction(value: Json, path: str, _: Json) -> Json:
    if value is None:
        return None
    wanted = an_object(value, path)
    one_of(required(wanted, "type", f"{path}.type"), f"{path}.type", ("near_field", "far_field"))
    if wanted.get("strength") is not None:
        a_number(wanted["strength"], f"{path}.strength", 0, 1)
    return wanted


def _transcription(value: Json, path: str, current: Json) -> Json:
    if value is None:
        return None
    held = current if isinstance(current, Mapping) else {"model": "default"}
    return _merge_fields(held, an_object(value, path), path, _TRANSCRIPTION)


def _word(value: Json, path: str, _: Json) -> Json:
    return None if value is None else a_string(value, path, longest=64, shortest=1)


def _words(value: Json, path: str, _: Json) -> Json:
    if value is None:
        return None
    return [a_string(entry, f"{path}[{n}]", longest=256) for n, entry in enumerate(a_list(value, path))]


def _transcription_delay(value: Json, path: str, _: Json) -> Json:
    return None if value is None else one_of(value, path, ("minimal", "low", "medium", "high", "xhigh"))


def voice(value: Json, path: str, current: Json) -> Json:
    """A voice: a name, or an object with its id; None keeps `current`. Raises Rejected."""
    if value is None:
        return current
    if isinstance(value, str):
        return a_string(value, path, longest=64, shortest=1)
    given = an_object(value, path)
    return {"id": a_string(required(given, "id", f"{path}.id"), f"{path}.id", longest=64, shortest=1)}


def _speed(value: Json, path: str, current: Json) -> Json:
    return current if value is None else a_number(value, path, 0.25, 1.5)


# --- turn detection ------------------------------------------------------------------------------------------------


def _detection(value: Json, path: str, current: Json) -> Json:
    if value is None:
        return None
    wanted = an_object(value, path)
    held = current if isinstance(current, Mapping) else None
    if "type" in wanted or held is None:
        kind = one_of(required(wanted, "type", f"{path}.type"), f"{path}.type", ("server_vad", "semantic_vad"))
        if held is None or held["type"] != kind:
            held = _SERVER_DEFAULTS if kind == "server_vad" else _SEMANTIC_DEFAULTS
    fields = _SERVER_VAD if held["type"] == "server_vad" else _SEMANTIC_VAD
    return _merge_fields(held, wanted, path, fields)


def _detection_of(turns: TurnConfig) -> Object:
    common: Object = {
        "create_response": turns.create_response,
        "interrupt_response": turns.interrupt_response,
        "x_resume_ms": turns.resume_ms,
        "x_echo_gate": turns.echo <= 1,
    }
    if turns.kind == "semantic_vad":
        eagerness = next((word for word, ms in EAGERNESS_MS.items() if ms == turns.max_silence_ms), "auto")
        return {
            "type": "semantic_vad",
            "eagerness": "auto" if eagerness == "medium" else eagerness,
            "x_commit_ms": turns.semantic_commit_ms,
            **common,
        }
    return {
        "type": "server_vad",
        "threshold": turns.threshold,
        "prefix_padding_ms": turns.prefix_padding_ms,
        "silence_duration_ms": turns.silence_ms,
        "idle_timeout_ms": turns.idle_timeout_ms,
        "x_commit_ms": turns.commit_ms,
        **common,
    }


def _turns(detection: Object, base: TurnConfig) -> TurnConfig:
    def number(key: str) -> int:
        value = detection[key]
        return value if isinstance(value, int) else 0

    common = replace(
        base,
        create_response=detection["create_response"] is True,
        interrupt_response=detection["interrupt_response"] is True,
        resume_ms=number("x_resume_ms"),
        echo=_PLAIN.echo if detection["x_echo_gate"] is True else NO_ECHO_GATE,
    )
    if detection["type"] == "semantic_vad":
        return replace(
            common,
            kind="semantic_vad",
            max_silence_ms=EAGERNESS_MS[str(detection["eagerness"])],
            semantic_commit_ms=number("x_commit_ms"),
            idle_timeout_ms=None,
        )
    threshold, idle = detection["threshold"], detection["idle_timeout_ms"]
    return replace(
        common,
        kind="server_vad",
        threshold=float(threshold) if isinstance(threshold, int | float) else base.threshold,
        prefix_padding_ms=number("prefix_padding_ms"),
        silence_ms=number("silence_duration_ms"),
        commit_ms=number("x_commit_ms"),
        idle_timeout_ms=idle if isinstance(idle, int) else None,
    )


def _milliseconds(low: int, high: int, default: int | None) -> _Field:
    def check(value: Json, path: str, _: Json) -> Json:
        return default if value is None else an_integer(value, path, low, high)

    return check


def _threshold(value: Json, path: str, current: Json) -> Json:
    return current if value is None else a_number(value, path, 0, 1)


def _eagerness(value: Json, path: str, _: Json) -> Json:
    return "auto" if value is None else one_of(value, path, tuple(EAGERNESS_MS))


_PLAIN: Final = TurnConfig()
NO_ECHO_GATE: Final = 2.0
"""A likeness that nothing has."""
_SERVER_DEFAULTS: Final = _detection_of(_PLAIN)
_SEMANTIC_DEFAULTS: Final = _detection_of(replace(_PLAIN, kind="semantic_vad"))

_SERVER_VAD: Final[Mapping[str, _Field]] = {
    "threshold": _threshold,
    "prefix_padding_ms": _milliseconds(0, 5000, _PLAIN.prefix_padding_ms),
    "silence_duration_ms": _milliseconds(50, 10_000, _PLAIN.silence_ms),
    "idle_timeout_ms": _milliseconds(500, 120_000, None),
    "create_response": _yes_or_no,
    "interrupt_response": _yes_or_no,
    "x_commit_ms": _milliseconds(40, 5000, _PLAIN.commit_ms),
    "x_resume_ms": _milliseconds(40, 5000, _PLAIN.resume_ms),
    "x_echo_gate": _yes_or_no,
}
_SEMANTIC_VAD: Final[Mapping[str, _Field]] = {
    "eagerness": _eagerness,
    "create_response": _yes_or_no,
    "interrupt_response": _yes_or_no,
    "x_commit_ms": _milliseconds(40, 5000, _PLAIN.semantic_commit_ms),
    "x_resume_ms": _milliseconds(40, 5000, _PLAIN.resume_ms),
    "x_echo_gate": _yes_or_no,
}
_TRANSCRIPTION: Final[Mapping[str, _Field]] = {
    "model": _word,
    "language": _word,
    "prompt": _text,
    "delay": _transcription_delay,
    "keywords": _words,
    "languages": _words,
}
_INPUT: Final[Mapping[str, _Field]] = {
    "format": audio_format,
    "noise_reduction": _noise_reduction,
    "transcription": _transcription,
    "turn_detection": _detection,
}
_OUTPUT: Final[Mapping[str, _Field]] = {"format": audio_format, "voice": voice, "speed": _speed}
_SESSION: Final[Mapping[str, _Field]] = {
    "model": _model,
    "instructions": _text,
    "output_modalities": modalities,
    "audio": _audio,
    "tools": tools,
    "tool_choice": tool_choice,
    "parallel_tool_calls": _yes_or_no,
    "max_output_tokens": token_limit,
    "truncation": _truncation,
    "tracing": _tracing,
    "prompt": _prompt,
    "reasoning": _reasoning,
    "include": _include,
    "x_talkover": _own,
}
