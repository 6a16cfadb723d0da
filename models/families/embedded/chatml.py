"""SmolLM2's prompt: ChatML, with the system prompt that it was trained under."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sessions.core.config import Tool
from sessions.core.context import ContextEntry

_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""The model's own system prompt: with another one in its place it answers nonsense."""
_MANNER = "Answer in one or two short sentences."
_EXAMPLES = (
    ("Hi there.", "Hello! What would you like to talk about?"),
    ("Who are you?", "I am SmolLM, a small assistant that runs on this computer."),
    ("How many days are in a week?", "There are seven days in a week."),
    ("Why do leaves fall in autumn?", "Trees drop their leaves in autumn to save water and energy for the winter."),
)
"""Exchanges in the manner of speech. A model of this size follows examples better than instructions."""

TURN_END = "<|im_end|>"
CALL_START, CALL_END = "<tool_call>", "</tool_call>"


def turn(role: str, text: str) -> str:
    """One turn. `text` cannot end it and begin another: what looks like a control token in it is none."""
    return f"{opening(role)}{text.replace('<|', '< |')}{TURN_END}\n"


def opening(role: str) -> str:
    return f"<|im_start|>{role}\n"


def preamble() -> str:
    """What stands before every conversation; always the same, so its key-value state is computed once."""
    examples = (turn("user", question) + turn("assistant", answer) for question, answer in _EXAMPLES)
    return turn("system", f"{_SYSTEM}. {_MANNER}") + "".join(examples)


def rules(instructions: str, tools: Sequence[Tool]) -> str:
    """The session's own system turn, with SmolLM2's function calling format where there are tools to choose from."""
    parts = [instructions.strip()] if instructions.strip() else []
    if tools:
        signatures = [
            {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters or "{}")}
            for tool in tools
        ]
        parts.append(
            f"You have these tools: <tools>{json.dumps(signatures)}</tools>. To use one, answer only with "
            f'{CALL_START}[{{"name": "tool name", "arguments": {{"name": "value"}}}}]{CALL_END}.'
        )
    return turn("system", "\n".join(parts)) if parts else ""


def call_text(name: str, arguments: str) -> str:
    return f'{CALL_START}[{{"name": {json.dumps(name)}, "arguments": {arguments or "{}"}}}]{CALL_END}'


def entry_turn(entry: ContextEntry) -> str:
    if entry.kind == "function_call":
        return turn("assistant", call_text(entry.name, entry.text))
    if entry.kind == "function_call_output":
        return turn("tool", entry.text)
    return turn(entry.role, entry.text)


def history(context: Sequence[ContextEntry], budget: int, count: Callable[[str], int]) -> str:
    """The newest turns that fit into `budget` tokens, oldest first; `count` gives the tokens of a text.

    The last entry is always there, cut to its end if need be. A tool's output is not kept without its call.
    """
    turns: list[str] = []
    left = budget
    entries = list(context)
    while entries:
        entry = entries.pop()
        group = entry_turn(entry)
        if entry.kind == "function_call_output" and entries and entries[-1].kind == "function_call":
            group = entry_turn(entries.pop()) + group
        size = count(group)
        if size > left and turns:
            break
        if size > left:
            # About four characters make a token; white space to white space, so that no word is cut.
            kept = entry.text[-max(1, 3 * left) :].split(" ", 1)[-1]
            group = entry_turn(ContextEntry(entry.role, entry.kind, kept, entry.call, entry.name))
        turns.append(group)
        left -= size
    return "".join(reversed(turns))
