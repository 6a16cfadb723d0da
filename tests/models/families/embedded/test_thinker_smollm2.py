"""`models.families.embedded.thinker_smollm2` and the whole embedded engine, with the real models."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from models import assets
from models.families.embedded import chatml
from models.families.embedded.engine import EmbeddedEngine
from models.families.embedded.stop import Stop
from models.families.embedded.talker_hibari import HibariTalker
from models.families.embedded.thinker import TextPiece, ThinkerError, Thinking, ThinkRequest, Thought, ToolCall
from models.families.embedded.thinker_smollm2 import TOKEN_BYTES, Prompt, SmolLM2Thinker
from sessions.core.config import SessionConfig, Tool
from sessions.core.context import ContextEntry
from sessions.core.events import EngineDone
from sessions.core.timeline import from_ms

from ..hearing import PATIENCE, Ear, fence, shut, start

pytestmark = pytest.mark.models

WEATHER = Tool(
    name="get_weather",
    description="The weather of a city",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
        }
    ),
)
LIGHT = Tool(
    name="set_light",
    description="Turn a light on or off",
    parameters=json.dumps({"properties": {"room": {"enum": ["kitchen", "hall"]}, "on": {"type": "boolean"}}}),
)


@pytest.fixture(scope="module")
def thinker() -> Iterator[SmolLM2Thinker]:
    thinker = SmolLM2Thinker(assets.ensure(["smollm2"])["smollm2"])
    yield thinker
    thinker.close()


def said(text: str) -> ContextEntry:
    return ContextEntry("user", "message", text)


def request(*context: ContextEntry, **changes: object) -> ThinkRequest:
    blank = ThinkRequest(context, "", (), "auto", None, 0.8, True, 7, lambda: (0, 0))
    return replace(blank, **changes)  # type: ignore[arg-type]


def think(thinker: SmolLM2Thinker, asked: ThinkRequest) -> tuple[str, list[ToolCall], Thinking]:
    told: list[Thought] = []
    thinking = thinker.think(asked, told.append, Stop())
    text = "".join(thought.text for thought in told if isinstance(thought, TextPiece))
    return text, [thought for thought in told if isinstance(thought, ToolCall)], thinking


def test_a_question_gets_a_short_right_answer(thinker: SmolLM2Thinker) -> None:
    text, _, thinking = think(thinker, request(said("What is the capital of France?")))
    assert "Paris" in text
    assert len(text.split()) < 12
    assert thinking.reason == "completed"
    assert thinking.output_tokens < 20
    assert thinking.input_tokens > 100


def test_the_history_is_read(thinker: SmolLM2Thinker) -> None:
    context = (
        said("What is the capital of France?"),
        ContextEntry("assistant", "message", "The capital of France is Paris."),
        said("And what is the capital of Italy?"),
    )
    assert "Rome" in think(thinker, request(*context))[0]


def test_the_same_request_gets_the_same_answer(thinker: SmolLM2Thinker) -> None:
    asked = request(said("Tell me something about the sea."))
    assert think(thinker, asked) == think(thinker, asked)


def test_a_spoken_answer_ends_with_a_sentence_after_a_while(thinker: SmolLM2Thinker) -> None:
    text, _, thinking = think(thinker, request(said("Tell me the whole history of Rome in great detail.")))
    assert thinking.reason == "completed"
    assert thinking.output_tokens <= 96
    assert text.rstrip()[-1] in ".!?"


def test_a_limit_of_tokens_is_kept_and_named_as_the_reason(thinker: SmolLM2Thinker) -> None:
    text, _, thinking = think(thinker, request(said("Tell me the history of Rome."), max_output_tokens=5))
    assert thinking.output_tokens == 5
    assert thinking.reason == "max_output_tokens"
    assert text


def test_very_long_histories_and_instructions_are_cut_and_answered(thinker: SmolLM2Thinker) -> None:
    context = [said("I like rivers and mountains. " * 20) for _ in range(30)] + [said("What is the capital of France?")]
    text, _, thinking = think(thinker, request(*context, instructions="Be kind. " * 2000))
    assert text
    assert thinking.input_tokens < 1200


def test_a_stop_ends_the_computing_within_a_token(thinker: SmolLM2Thinker) -> None:
    stop, told = Stop(), []

    def tell(thought: Thought) -> None:
        told.append(thought)
        if len(told) == 3:
            stop.set()

    thinking = thinker.think(request(said("Tell me the history of Rome."), spoken=False), tell, stop)
    assert len(told) == 3
    assert thinking.output_tokens <= 4


def test_a_stop_before_the_first_token_tells_nothing(thinker: SmolLM2Thinker) -> None:
    stop = Stop()
    stop.set()
    told: list[Thought] = []
    thinker.think(request(said("Hello.")), told.append, stop)
    assert told == []


def test_a_demanded_call_has_arguments_from_the_question_that_validate(thinker: SmolLM2Thinker) -> None:
    asked = request(said("What will the weather be like in Paris in the next 3 days?"), tools=(WEATHER, LIGHT))
    _, (call,), _ = think(thinker, replace(asked, tool_choice="get_weather"))
    assert call.name == "get_weather"
    arguments = json.loads(call.arguments)
    assert "Paris" in arguments["city"]
    assert 1 <= arguments["days"] <= 7


def test_of_several_tools_the_fitting_one_is_called(thinker: SmolLM2Thinker) -> None:
    asked = request(said("Please turn on the lights in the kitchen."), tools=(WEATHER, LIGHT), tool_choice="required")
    _, (call,), _ = think(thinker, asked)
    assert call.name == "set_light"
    assert json.loads(call.arguments)["room"] == "kitchen"


def test_two_tools_that_nothing_tells_apart_are_chosen_between_by_the_model(thinker: SmolLM2Thinker) -> None:
    tools = (Tool(name="alpha"), Tool(name="alpine"), Tool(name="beta"))
    _, (call,), _ = think(thinker, request(said("Do it."), tools=tools, tool_choice="required"))
    assert call.name in ("alpha", "alpine", "beta")
    assert call.arguments == "{}"


def test_after_a_tools_output_it_speaks(thinker: SmolLM2Thinker) -> None:
    context = (
        said("What is the weather like in Paris?"),
        ContextEntry("assistant", "function_call", '{"city": "Paris", "days": 1}', "c1", "get_weather"),
        ContextEntry("user", "function_call_output", '{"sky": "sunny"}', "c1"),
    )
    text, calls, _ = think(thinker, request(*context, tools=(WEATHER,)))
    assert text
    assert calls == []


class _Asked(Stop):
    """Tells when it is looked at: by somebody who has just got in the line of the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def __bool__(self) -> bool:
        self.asked.set()
        return super().__bool__()


def test_an_urgent_newcomer_goes_first_and_the_other_is_finished_later() -> None:
    thinker = SmolLM2Thinker(assets.ensure(["smollm2"])["smollm2"], cores=1)
    asked = request(said("Tell me the history of Rome."), urgency=lambda: (1, from_ms(60_000)))
    context = chatml.history(asked.context, 256, lambda text: len(thinker.tokens(text)))
    prompt = thinker.fit(chatml.rules("", ()), context + chatml.opening("assistant"))
    told: list[Thought] = []
    heard: list[int] = []
    """How much the newcomer had told at each token of the other."""
    begun, newcomer = threading.Event(), _Asked()

    def write(after: list[str], hear: Callable[[int], None]) -> list[int]:
        """The ids with which the model goes on after these tokens, at most 40 with them."""
        ids: list[int] = []

        def each(token: int) -> bool:
            ids.append(token)
            hear(token)
            return False

        thinker.generate(Prompt(prompt.head, [*prompt.tail, *after]), 40 - len(after), asked, Stop(), each)
        return ids

    def hold(_: int) -> None:
        heard.append(len(told))
        begun.set()
        assert newcomer.asked.wait(PATIENCE)

    interrupted: list[int] = []

    working = threading.Thread(target=lambda: interrupted.extend(write([], hold)))
    working.start()
    try:
        assert begun.wait(PATIENCE)
        thinker.think(request(said("What is the capital of France?")), told.append, newcomer)
        working.join(PATIENCE)
        assert heard[0] == 0
        assert all(heard[1:])
        assert "Paris" in "".join(piece.text for piece in told if isinstance(piece, TextPiece))
        # It was put aside after its first token. Nothing is missing, doubled or cut off there: what comes later is what
        # the model writes after that token, alone and without a pause.
        alone = write([], lambda _: None)
        first = thinker._tokenizer.id_to_token(alone[0])
        assert interrupted == [alone[0], *write([first], lambda _: None)]
        assert len(interrupted) > 1
    finally:
        newcomer.asked.set()
        working.join(PATIENCE)
        thinker.close()


def test_a_folder_without_a_model_is_a_typed_failure(tmp_path: Path) -> None:
    with pytest.raises(ThinkerError) as failed:
        SmolLM2Thinker(tmp_path)
    assert failed.value.code == "thinker_missing"


@pytest.mark.parametrize(("name", "value"), [("cores", 0), ("history_tokens", 0), ("history_tokens", 5000)])
def test_settings_out_of_range_are_refused(tmp_path: Path, name: str, value: int) -> None:
    make: Callable[..., SmolLM2Thinker] = SmolLM2Thinker
    with pytest.raises(ValueError, match=name):
        make(tmp_path, **{name: value})


def test_the_engine_speaks_what_the_model_thinks_and_stops_when_told() -> None:
    engine = EmbeddedEngine(SmolLM2Thinker(assets.ensure(["smollm2"])["smollm2"]), HibariTalker())
    ear = Ear()
    with shut(engine):
        engine.open(fence(), SessionConfig(), ear)
        engine.start(start("r1", context=(said("What is the capital of France?"),)))
        assert isinstance(ear.wait_for_end("r1"), EngineDone)
        assert "Paris" in ear.spoken("r1")
        assert ear.length("r1") == len(ear.pcm("r1"))  # two bytes and two ticks per sample
        assert ear.words("r1")[-1].end <= ear.length("r1")
        engine.start(start("r2", context=(said("Tell me the history of Rome."),)))
        ear.wait(lambda ear: ear.length("r2") > 0)
        engine.cancel(fence(), "r2")
        assert engine.active == 0
        engine.start(start("r3", context=(said("What is the capital of France?"),)))
        ear.wait_for_end("r3")
        assert ear.end("r2") is None
        assert ear.pcm("r3") == ear.pcm("r1")


def test_a_process_that_ends_without_a_shutdown_ends_cleanly() -> None:
    folder = assets.ensure(["smollm2"])["smollm2"]
    program = f"""
from pathlib import Path
from models.families.embedded.engine import EmbeddedEngine
from models.families.embedded.talker_hibari import HibariTalker
from models.families.embedded.thinker_smollm2 import TOKEN_BYTES, SmolLM2Thinker
from sessions.core.config import SessionConfig
from tests.models.families.hearing import Ear, fence, start
engine, ear = EmbeddedEngine(SmolLM2Thinker(Path({str(folder)!r})), HibariTalker()), Ear()
engine.open(fence(), SessionConfig(), ear)
engine.start(start(instructions="Tell me the history of Rome."))
ear.wait(lambda ear: ear.length() > 0)
"""
    root = Path(assets.__file__).parent.parent
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=root, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


LONG = (
    "You answer the telephone of a dental practice in Leeds. Be brief and kind. Opening hours are nine to five on "
    "working days. Never give medical advice. Somebody in pain gets the emergency slot at eleven. Prices are not told."
)


def test_instructions_that_were_read_ahead_change_no_word_and_serve_only_their_tenant(thinker: SmolLM2Thinker) -> None:
    asked = request(said("Are you open on Tuesday?"), instructions=LONG)
    plain, _, _ = think(thinker, asked)
    before = thinker.prefixes
    thinker.read_ahead("clinic", "s", LONG, (), Stop())
    ahead, _, counted = think(thinker, replace(asked, tenant="clinic"))
    assert ahead == plain
    assert thinker.prefixes.hits > before.hits
    hits = thinker.prefixes.hits
    other, _, counted_other = think(thinker, replace(asked, tenant="another"))
    assert other == plain
    assert thinker.prefixes.hits == hits
    assert counted.input_tokens == counted_other.input_tokens
    thinker.release("s")
    again, _, _ = think(thinker, replace(asked, tenant="clinic"))
    assert again == plain
    assert thinker.prefixes.hits > hits


def test_what_is_kept_stays_within_its_budget_and_outlives_a_fresh_runtime() -> None:
    folder = assets.ensure(["smollm2"])["smollm2"]
    budget = 500 * TOKEN_BYTES
    thinker = SmolLM2Thinker(folder, prefix_budget=budget)
    try:
        first = thinker._prefixes._runtime
        for number in range(3):  # 205 tokens each with the preamble: the third has no room beside the first two
            thinker.read_ahead(f"t{number}", "s", f"{LONG} You are number {number}.", (), Stop())
            assert 0 < thinker.prefixes.bytes <= budget
            assert thinker._prefixes._runtime is first or number == 2
            thinker.release("s")
        assert thinker._prefixes._runtime is not first
        asked = request(said("Are you open?"), instructions=f"{LONG} You are number 2.", max_output_tokens=4)
        ahead, _, _ = think(thinker, replace(asked, tenant="t2"))
        assert thinker.prefixes.hits == 1
        assert think(thinker, asked)[0] == ahead
    finally:
        thinker.close()


def test_short_instructions_and_a_session_that_is_over_are_not_read_ahead(thinker: SmolLM2Thinker) -> None:
    before = thinker.prefixes.entries
    gone = Stop()
    gone.set()
    thinker.read_ahead("short", "s", "Be kind.", (), Stop())
    thinker.read_ahead("gone", "s", LONG, (), gone)
    assert thinker.prefixes.entries == before


def test_a_closed_thinker_says_so_and_reads_nothing_ahead() -> None:
    thinker = SmolLM2Thinker(assets.ensure(["smollm2"])["smollm2"])
    thinker.close()
    thinker.read_ahead("clinic", "s", LONG, (), Stop())
    with pytest.raises(ThinkerError, match="start the server again"):
        think(thinker, request(said("Hello.")))
