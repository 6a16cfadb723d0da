"""The embedded thinker: SmolLM2-135M-Instruct on CTranslate2, int8, one core.

Decoding is greedy with a mild repetition penalty: at this size sampling costs the right answer, and a run repeats
itself exactly without a seed per request (the runtime has none), so `temperature` and `seed` are not used here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ctranslate2
import numpy as np
from tokenizers import Tokenizer

from sessions.core.config import Tool

from ...caches import CacheMetrics
from ...checkpoint import Checkpoint
from . import chatml
from .clauses import ends_sentence
from .gate import Gate, Urgency
from .runtime import Prefixes, Runtime, load
from .stop import Stop
from .thinker import TextPiece, ThinkerError, Thinking, ThinkRequest, Thought, ToolCall
from .tool_calls import demanded_call, parse_calls

_POSITIONS = 2048
_REPETITION_PENALTY = 1.1
_SPOKEN_SENTENCES = 3
_SPOKEN_TOKENS, _WRITTEN_TOKENS = 96, 400
"""Where a reply ends if nobody set a limit."""
_ENOUGH = 48
"""Tokens after which a spoken reply ends with the sentence."""

TOKEN_BYTES = 30 * 2 * 3 * 64 * 4
"""Keys and values of one position: 30 layers, 3 heads of 64, float32. What the runtime allocates besides is not in."""
PREFIX_BUDGET = 64 << 20
"""Bytes of keys and values that are kept of prompts' beginnings: about 1,400 positions."""
SHORTEST_PREFIX = 48
"""Tokens of instructions and tools from which they are read ahead; to read fewer again costs less than to keep them."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens after the preamble: `head` is the same for every response of a session, `tail` is not."""

    head: Sequence[str]
    tail: Sequence[str]

    def __len__(self) -> int:
        return len(self.head) + len(self.tail)


class SmolLM2Thinker:
    """`Thinker` on a folder that holds `model.bin`, `config.json`, `vocabulary.json` and `tokenizer.json`.

    `cores`: how many responses compute at the same time, at about 70 MB each; the others wait. One is best where two
    virtual processors are one real core: two at once make no more tokens in all, and both are late. `history_tokens`
    bounds the prompt: each costs about a millisecond before the first token. `prefix_budget` bounds the bytes that are
    kept of the beginnings of sessions' prompts. Raises ThinkerError.

    With a beginning that was read ahead the same prompt is computed in other pieces, so its scores may differ in their
    last digits; the tokens are the same unless two were as good as equally likely.
    """

    def __init__(
        self, folder: Path, *, cores: int = 1, history_tokens: int = 256, prefix_budget: int = PREFIX_BUDGET
    ) -> None:
        if cores < 1:
            raise ValueError(f"cores {cores} must be at least 1")
        if not 0 < history_tokens <= 1024:
            raise ValueError(f"history_tokens {history_tokens} must be in 1..1024")
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._gate = Gate(cores)
            self._preamble = self.tokens(chatml.preamble())
            self._prefixes = Prefixes(
                lambda: load(folder, cores),
                lambda runtime: self._warm_up(runtime, cores),
                self._preamble,
                Checkpoint(folder).version,
                budget=prefix_budget,
                token_bytes=TOKEN_BYTES,
            )
        except Exception as error:
            raise ThinkerError(
                "thinker_missing", f"folder: {folder} holds no usable model ({error}); prepare the models again"
            ) from error
        self._history_tokens = history_tokens

    def think(self, request: ThinkRequest, tell: Callable[[Thought], None], stop: Stop) -> Thinking:
        """See `Thinker.think`."""
        stop.then(self._gate.wake)
        tools = request.tools if request.tool_choice != "none" else ()
        context = chatml.history(request.context, self._history_tokens, lambda text: len(self.tokens(text)))
        if tools and request.tool_choice != "auto":
            return self._call(request, tools, context, tell, stop)
        prompt = self.fit(chatml.rules(request.instructions, tools), context + chatml.opening("assistant"))
        reply = _Reply(self._tokenizer, tell, offers_tools=bool(tools), seed=request.seed, brief=request.spoken)
        limit = request.max_output_tokens or (_SPOKEN_TOKENS if request.spoken else _WRITTEN_TOKENS)
        written = self.generate(prompt, min(limit, _POSITIONS // 2), request, stop, reply.hear)
        reply.finish()
        cut = request.max_output_tokens is not None and written >= request.max_output_tokens and not reply.ended
        return Thinking("max_output_tokens" if cut else "completed", len(self._preamble) + len(prompt), written)

    def _call(
        self, request: ThinkRequest, tools: Sequence[Tool], context: str, tell: Callable[[Thought], None], stop: Stop
    ) -> Thinking:
        """A call that the client demands, filled in by the model."""
        # Signatures help to choose, and cost time before the first field otherwise.
        shown = tools if request.tool_choice == "required" and len(tools) > 1 else ()
        prompt = chatml.rules(request.instructions, shown) + context + chatml.opening("assistant")
        said = (entry.text for entry in reversed(request.context) if entry.role == "user" and entry.kind == "message")
        guided = _Guided(self, request, stop)
        call = demanded_call(guided, prompt, next(said, ""), tools, request.tool_choice, _call_id(request.seed, 0))
        if not stop:
            tell(call)
        return Thinking("completed", guided.read, guided.written)

    def read_ahead(self, tenant: str, session: str, instructions: str, tools: tuple[Tool, ...], stop: Stop) -> None:
        """See `ReadsAhead.read_ahead`."""
        stop.then(self._gate.wake)
        head = self.tokens(chatml.rules(instructions, tools))
        if not SHORTEST_PREFIX <= len(head) <= _POSITIONS // 4:
            return

        def read(runtime: Runtime, tokens: Sequence[str]) -> bool:
            if not self._gate.enter(_unhurried, stop):
                return False
            try:
                runtime.generator.generate_batch(
                    [self.tokens(chatml.opening("assistant"))],
                    max_length=1,
                    static_prompt=tokens,
                    cache_static_prompt=True,
                    include_prompt_in_result=False,
                )
            finally:
                self._gate.leave()
            return True

        if not stop:
            self._prefixes.keep(tenant, session, head, read, stop)

    def release(self, session: str) -> None:
        """See `ReadsAhead.release`."""
        self._prefixes.release(session)

    def held(self, tenant: str) -> int:
        """See `ReadsAhead.held`."""
        return self._prefixes.held(tenant)

    def forget(self, tenant: str) -> None:
        """See `ReadsAhead.forget`."""
        self._prefixes.forget(tenant)

    @property
    def prefixes(self) -> CacheMetrics:
        """Figures of what is kept of prompts' beginnings."""
        return self._prefixes.metrics

    def close(self) -> None:
        self._prefixes.close()

    # --- generation -------------------------------------------------------------------------------------------------

    def tokens(self, text: str) -> list[str]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).tokens)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids))

    def fit(self, rules: str, rest: str) -> Prompt:
        """The prompt; over-long instructions lose their end rather than the conversation its."""
        tail = self.tokens(rest)
        room = _POSITIONS // 2 - len(self._preamble) - len(tail)
        head = self.tokens(rules)
        if len(head) > room:
            end = self.tokens(f"{chatml.TURN_END}\n")
            head = head[: max(0, room - len(end))] + end
        return Prompt(head, tail)

    def generate(
        self,
        prompt: Prompt,
        limit: int,
        request: ThinkRequest,
        stop: Stop,
        hear: Callable[[int], bool],
        *,
        penalty: float = _REPETITION_PENALTY,
    ) -> int:
        """Greedy decoding; `hear` gets each token id, and ends it by returning True. Returns the tokens written.

        Where somebody more urgent waits, what has been written becomes part of the prompt and the rest is generated
        later: reading it again costs less than keeping the state of many responses in memory.

        The rest may be worded otherwise than without the pause: read at once the same tokens get slightly other scores
        (int8) than written one by one, and what was written before the pause does not count as a repetition any more.
        """
        written: list[str] = []
        failures: list[Exception] = []
        over = False

        def step(result: ctranslate2.GenerationStepResult) -> bool:
            # Runs on the model's own thread.
            nonlocal over
            over = True
            if stop:
                return True
            written.append(result.token)
            try:
                if hear(result.token_id):
                    return True
            except Exception as error:
                failures.append(error)
                return True
            over = result.is_last
            return over or self._gate.wants_back(request.urgency())

        while not over and not failures and len(written) < limit:
            if not self._gate.enter(request.urgency, stop):
                break
            before = len(written)
            try:
                with self._running() as runtime:
                    beginning, rest = self._split(runtime, request.tenant, prompt)
                    runtime.generator.generate_batch(
                        [[*rest, *written]],
                        max_length=limit - before,
                        sampling_topk=1,
                        repetition_penalty=penalty,
                        static_prompt=beginning,
                        cache_static_prompt=True,
                        include_prompt_in_result=False,
                        end_token=chatml.TURN_END,
                        callback=step,
                    )
            finally:
                self._gate.leave()
            if len(written) == before:
                break
        if failures:
            raise failures[0]
        return len(written)

    def likeliest(self, prompt: Prompt, candidates: Collection[str], request: ThinkRequest, stop: Stop) -> str:
        """Which of `candidates` (tokens) best continues `prompt`."""
        if not self._gate.enter(request.urgency, stop):
            return next(iter(candidates))
        try:
            with self._running() as runtime:
                beginning, rest = self._split(runtime, request.tenant, prompt)
                result = runtime.generator.generate_batch(
                    [rest],
                    max_length=1,
                    static_prompt=beginning,
                    cache_static_prompt=True,
                    include_prompt_in_result=False,
                    return_logits_vocab=True,
                )[0]
        finally:
            self._gate.leave()
        logits = np.asarray(result.logits[0][0]).reshape(-1)
        return max(sorted(candidates), key=lambda token: float(logits[self._tokenizer.token_to_id(token)]))

    @contextmanager
    def _running(self) -> Iterator[Runtime]:
        """The runtime, which is not unloaded meanwhile. Raises ThinkerError once the thinker is closed."""
        runtime = self._prefixes.enter()
        if runtime is None:
            raise ThinkerError("thinker_closed", "the thinker is shut down; start the server again")
        try:
            yield runtime
        finally:
            self._prefixes.leave(runtime)

    def _split(self, runtime: Runtime, tenant: str, prompt: Prompt) -> tuple[Sequence[str], list[str]]:
        """What `runtime` has read already, and what it has to read now."""
        beginning = self._prefixes.beginning(runtime, tenant, prompt.head)
        ahead = len(beginning) > len(self._preamble)
        return beginning, [*(() if ahead else prompt.head), *prompt.tail]

    def _warm_up(self, runtime: Runtime, replicas: int) -> None:
        """Every replica allocates, and reads the preamble, before somebody waits for it."""
        pending = [
            runtime.generator.generate_batch(
                [self.tokens(chatml.turn("user", "Hello.") + chatml.opening("assistant"))],
                max_length=2,
                static_prompt=self._preamble,
                cache_static_prompt=True,
                include_prompt_in_result=False,
                asynchronous=True,
            )
            for _ in range(replicas)
        ]
        for results in pending:
            results[0].result()


def _unhurried() -> Urgency:
    return (2, 0)


class _Reply:
    """Token ids into text as they come; knows when enough has been said, and keeps tool calls apart from speech."""

    def __init__(
        self, tokenizer: Tokenizer, tell: Callable[[Thought], None], *, offers_tools: bool, seed: int, brief: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._tell = tell
        self._offers_tools = offers_tools
        self._seed = seed
        self._brief = brief
        self._ids: list[int] = []
        self._text = ""
        self._told = 0
        self._sentences = 0
        self.ended = False
        """The reply is complete of itself, whatever limit it came near."""

    def hear(self, token: int) -> bool:
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        if text.endswith("\ufffd"):
            return False  # in the middle of a character
        self._text = text
        if self._offers_tools and self._may_be_call():
            return chatml.CALL_END in text
        self._pass_on()
        return self._brief and self._said_enough()

    def finish(self) -> None:
        if self._offers_tools and self._may_be_call():
            calls = parse_calls(self._text)
            if calls:
                for number, (name, arguments) in enumerate(calls):
                    self._tell(ToolCall(_call_id(self._seed, number), name, arguments))
                self.ended = True
                return
        self._pass_on()

    def _may_be_call(self) -> bool:
        head = self._text.lstrip()
        return head.startswith(chatml.CALL_START) or chatml.CALL_START.startswith(head)

    def _pass_on(self) -> None:
        if piece := self._text[self._told :]:
            self._told = len(self._text)
            self._tell(TextPiece(piece))

    def _said_enough(self) -> bool:
        words = self._text.split()
        if not words or self._text[-1].isspace() or not ends_sentence(words[-1]) or re.search(r"\d\.$", words[-1]):
            return False
        self._sentences += 1
        self.ended = self._sentences >= _SPOKEN_SENTENCES or len(self._ids) >= _ENOUGH
        return self.ended


class _Guided:
    """`Guided` on the thinker: a text continued, and continuations weighed."""

    def __init__(self, thinker: SmolLM2Thinker, request: ThinkRequest, stop: Stop) -> None:
        self._thinker = thinker
        self._request = request
        self._stop = stop
        self.read = 0
        self.written = 0

    def complete(self, prompt: str, until: str, limit: int) -> str:
        ids: list[int] = []
        text = ""

        def hear(token: int) -> bool:
            nonlocal text
            ids.append(token)
            text = self._thinker.decode(ids)
            return any(mark in text for mark in until)

        tokens = self._thinker.fit("", prompt)
        self.read = max(self.read, len(tokens))
        self.written += self._thinker.generate(tokens, limit, self._request, self._stop, hear, penalty=1.0)
        ends = [place for mark in until if (place := text.find(mark)) >= 0]
        return text[: min(ends)] if ends else text

    def choose(self, prompt: str, options: Sequence[str]) -> int:
        """Walks the options' tokens from the first one in which they differ, taking the likelier branch each time."""
        left = {index: self._thinker.tokens(option) for index, option in enumerate(options)}
        place = 0
        while len(left) > 1 and not self._stop:
            branches = {index: tokens[place] if place < len(tokens) else "" for index, tokens in left.items()}
            if len(set(branches.values())) > 1:
                shared = next(iter(left.values()))[:place]
                fitted = self._thinker.fit("", prompt)
                best = self._thinker.likeliest(
                    Prompt(fitted.head, [*fitted.tail, *shared]),
                    set(branches.values()) - {""},
                    self._request,
                    self._stop,
                )
                left = {index: tokens for index, tokens in left.items() if branches[index] == best}
                self.written += 1
            elif not any(branches.values()):
                break  # the same option twice
            place += 1
        return next(iter(left))


def _call_id(seed: int, number: int) -> str:
    return f"call_{seed:08x}{number}"
