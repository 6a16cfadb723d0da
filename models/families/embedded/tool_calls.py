"""Tool calls of a small model: parsing what it volunteers, and filling in a call that is demanded, field by field.

A model of this size seldom writes a whole valid call by itself, but given the frame `{"city": "` it continues it
well. So a demanded call is built along the tool's JSON schema: the structure is ours, the values are the model's, and
each value is brought into its declared type and bounds. What comes out therefore validates.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, cast

from sessions.core.config import Tool

from .chatml import CALL_END, CALL_START
from .thinker import ThinkerError, ToolCall

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Schema: TypeAlias = Mapping[str, Json]

_MAX_DEPTH = 6
_MAX_FIELDS = 12
_NEAR = 1e-6
"""How far from an exclusive bound a number without a step is put."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Guided(Protocol):
    """What filling in needs of a model."""

    def complete(self, prompt: str, until: str, limit: int) -> str:
        """The model's continuation of `prompt`, up to the first character out of `until`, at most `limit` tokens."""

    def choose(self, prompt: str, options: Sequence[str]) -> int:
        """Index of the likeliest continuation."""


def parse_calls(text: str) -> list[tuple[str, str]]:
    """(name, arguments as JSON text) of each call in `<tool_call>[...]</tool_call>`; empty if malformed."""
    head = text.strip()
    if not head.startswith(CALL_START):
        return []
    body = head.removeprefix(CALL_START).split(CALL_END, 1)[0]
    try:
        parsed = cast(Json, json.loads(body))
    except ValueError:
        return []
    calls = []
    for call in parsed if isinstance(parsed, list) else [parsed]:
        if not isinstance(call, dict) or not isinstance(name := call.get("name"), str):
            return []
        arguments = call.get("arguments", {})
        calls.append((name, arguments if isinstance(arguments, str) else json.dumps(arguments)))
    return calls


def demanded_call(
    guided: Guided, prompt: str, question: str, tools: Sequence[Tool], choice: str, call: str
) -> ToolCall:
    """A call of the tool named `choice`, or of any of `tools` ("required"), with arguments that its schema accepts.

    `prompt` ends where the assistant's turn begins; `question` is the user's last message. Raises ThinkerError for an
    unknown tool and for a schema that cannot be followed.
    """
    if choice != "required":
        tools = [tool for tool in tools if tool.name == choice]
    if not tools:
        raise ThinkerError("unknown_tool", f"tool_choice: there is no tool {choice!r}; name one of the session's tools")
    frame = f'{prompt}{CALL_START}[{{"name": "'
    tool = _closest(tools, question) or tools[guided.choose(frame, [tool.name + '"' for tool in tools])]
    schema = _load_schema(tool)
    filler = _Filler(guided, question, schema, tool.name)
    value, text = filler.fill(schema, f'{frame}{tool.name}", "arguments": ', "", 0)
    if not isinstance(value, dict):
        raise ThinkerError("tool_schema", f"tools: parameters of {tool.name!r} must describe an object")
    return ToolCall(call, tool.name, text)


def _closest(tools: Sequence[Tool], question: str) -> Tool | None:
    """The tool that shares the most words with the question, if one does more than all others.

    Words of four letters and more count, by their first five letters: "lights" finds `set_light`.
    """

    def stems(text: str) -> set[str]:
        return {word[:5] for word in re.findall(r"[a-z]{4,}", text.lower())}

    asked = stems(question)
    shared = [len(asked & stems(f"{tool.name} {tool.description}")) for tool in tools]
    best = max(shared)
    return tools[shared.index(best)] if len(tools) == 1 or (best and shared.count(best) == 1) else None


def _load_schema(tool: Tool) -> Schema:
    try:
        schema = cast(Json, json.loads(tool.parameters or "{}"))
    except ValueError as error:
        raise ThinkerError("tool_schema", f"tools: parameters of {tool.name!r} are not JSON ({error})") from error
    if not isinstance(schema, dict):
        raise ThinkerError("tool_schema", f"tools: parameters of {tool.name!r} must be a JSON object")
    return {"type": "object", **schema}


class _Filler:
    def __init__(self, guided: Guided, question: str, root: Schema, tool: str) -> None:
        self._guided = guided
        self._question = question
        self._root = root
        self._tool = tool

    def fill(self, schema: Schema, before: str, field: str, depth: int) -> tuple[Json, str]:
        """A value for `schema` and its JSON text; `before` is everything written so far."""
        if depth > _MAX_DEPTH:
            raise self._error(field, f"is nested deeper than {_MAX_DEPTH} levels")
        schema = self._resolve(schema, field)
        if "const" in schema:
            return schema["const"], json.dumps(schema["const"])
        options = schema.get("enum")
        if isinstance(options, list) and options:
            return self._choice(options, before)
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, before, depth)
        if kind == "array":
            return self._array(schema, before, field, depth)
        if kind in ("number", "integer"):
            value: Json = self._number(schema, before, field, kind == "integer")
        elif kind == "boolean":
            value = self._choice([True, False], before)[0]
        elif kind == "null":
            value = None
        else:
            value = self._string(schema, before, field)
        return value, json.dumps(value)

    def _object(self, schema: Schema, before: str, depth: int) -> tuple[Json, str]:
        properties = schema.get("properties")
        fields = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else list(fields)
        if len(names) > _MAX_FIELDS and not isinstance(required, list):
            names = names[:_MAX_FIELDS]
        value: dict[str, Json] = {}
        text = "{"
        for name in names:
            member = fields.get(name, {})
            text += f"{', ' if value else ''}{json.dumps(name)}: "
            value[name], written = self.fill(member if isinstance(member, dict) else {}, before + text, name, depth + 1)
            text += written
        return value, text + "}"

    def _array(self, schema: Schema, before: str, field: str, depth: int) -> tuple[Json, str]:
        items = schema.get("items")
        item = items if isinstance(items, dict) else {}
        least = max(1, _integer(schema, "minItems", 0))
        size = min(least, _integer(schema, "maxItems", least))
        value: list[Json] = []
        text = "["
        for _ in range(size):
            text += ", " if value else ""
            member, written = self.fill(item, before + text, field, depth + 1)
            value.append(member)
            text += written
        return value, text + "]"

    def _choice(self, options: Sequence[Json], before: str) -> tuple[Json, str]:
        said = [
            index
            for index, option in enumerate(options)
            if isinstance(option, str)
            and re.search(rf"\b{re.escape(option.replace('_', ' '))}\b", self._question, re.IGNORECASE)
        ]
        texts = [json.dumps(option) for option in options]
        if len(said) == 1:
            # What the user said word for word is a better guide than a small model's taste.
            return options[said[0]], texts[said[0]]
        index = 0 if len(options) == 1 else self._guided.choose(before, texts)
        return options[index], texts[index]

    def _string(self, schema: Schema, before: str, field: str) -> str:
        raw = self._guided.complete(before + '"', '"\n', 32)
        try:
            text = str(json.loads(f'"{raw}"'))
        except ValueError:
            text = raw.replace("\\", "")
        text = text.strip()
        least, most = _integer(schema, "minLength", 0), _integer(schema, "maxLength", len(text))
        if not text or len(text) < least:
            fallback = schema.get("default")
            text = fallback if isinstance(fallback, str) else self._question.strip()
        text = text[: max(least, most)].ljust(least)
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            try:
                if not re.search(pattern, text):
                    found = re.search(pattern.removeprefix("^").removesuffix("$"), self._question)
                    text = found.group() if found else text
                fits = re.search(pattern, text) is not None
            except re.error as error:
                raise self._error(field, f"has a pattern that cannot be used ({error})") from error
            if not fits:
                raise self._error(field, f"has a pattern ({pattern}) that nothing the user said fits")
        return text

    def _number(self, schema: Schema, before: str, field: str, whole: bool) -> int | float:
        raw = self._guided.complete(before, ",}]\n", 12)
        found = _NUMBER.search(raw) or _NUMBER.search(self._question)
        fallback = schema.get("default", 0)
        value = float(found.group()) if found else float(fallback) if isinstance(fallback, int | float) else 0.0
        step = _real(schema, "multipleOf", 1.0 if whole else 0.0)
        low, high = _bounds(schema, step)
        value = min(max(value, low), high)
        if step:
            value = round(value / step) * step
            value = math.ceil(low / step) * step if value < low else value
            value = math.floor(high / step) * step if value > high else value
        if not low <= value <= high:
            raise self._error(field, f"has bounds that leave no value ({low} to {high})")
        return int(value) if whole or value.is_integer() else value

    def _resolve(self, schema: Schema, field: str) -> Schema:
        for _ in range(_MAX_DEPTH):
            if isinstance(reference := schema.get("$ref"), str):
                schema = self._lookup(reference, field)
            elif isinstance(branches := schema.get("anyOf") or schema.get("oneOf"), list):
                usable = [branch for branch in branches if isinstance(branch, dict) and branch.get("type") != "null"]
                if not usable:
                    raise self._error(field, "has no branch that can be filled in")
                schema = usable[0]
            elif isinstance(parts := schema.get("allOf"), list):
                merged: dict[str, Json] = {key: value for key, value in schema.items() if key != "allOf"}
                for part in parts:
                    merged.update(self._resolve(part, field) if isinstance(part, dict) else {})
                schema = merged
            else:
                return schema
        raise self._error(field, "refers to itself")

    def _lookup(self, reference: str, field: str) -> Schema:
        node: Json = dict(self._root)
        for key in reference.removeprefix("#/").split("/"):
            node = node.get(key) if isinstance(node, dict) else None
        if not reference.startswith("#/") or not isinstance(node, dict):
            raise self._error(field, f"refers to {reference}, which is not in the schema")
        return node

    def _error(self, field: str, what: str) -> ThinkerError:
        return ThinkerError(
            "tool_schema", f"tools: in {self._tool!r} the parameter {field!r} {what}; simplify its schema"
        )


def _bounds(schema: Schema, step: float) -> tuple[float, float]:
    low, high = _real(schema, "minimum", -math.inf), _real(schema, "maximum", math.inf)
    beyond, below = _real(schema, "exclusiveMinimum", -math.inf), _real(schema, "exclusiveMaximum", math.inf)
    return max(low, beyond + (step or _NEAR)), min(high, below - (step or _NEAR))


def _kind(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _integer(schema: Schema, key: str, default: int) -> int:
    value = schema.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _real(schema: Schema, key: str, default: float) -> float:
    value = schema.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default
