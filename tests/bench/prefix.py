"""What reading a session's instructions ahead saves before the first token, in CPU time.

`python -m tests.bench.prefix` asks the embedded thinker the same question with instructions of several lengths: as a
tenant for whom nothing was read ahead, and as one for whom it was. CPU time of the whole process, the least of several.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from models import assets
from models.families.embedded import chatml
from models.families.embedded.stop import Stop
from models.families.embedded.thinker import ThinkRequest, Thought
from models.families.embedded.thinker_smollm2 import TOKEN_BYTES, SmolLM2Thinker
from sessions.core.context import ContextEntry
from tests.bench.report import table

SENTENCES = (
    "You answer the telephone of a dental practice in Leeds.",
    "Opening hours are nine to five on working days.",
    "Never give medical advice, and never tell prices on the phone.",
    "Somebody in pain gets the emergency slot at eleven.",
    "Ask for the name and the date of birth before you move an appointment.",
    "Say goodbye by name.",
)


def instructions(thinker: SmolLM2Thinker, tokens: int) -> str:
    """Instructions that make about `tokens` tokens of the prompt."""
    said: list[str] = []
    while len(thinker.tokens(chatml.rules(" ".join(said), ()))) < tokens:
        said.append(SENTENCES[len(said) % len(SENTENCES)])
    return " ".join(said)


def first_token(thinker: SmolLM2Thinker, request: ThinkRequest) -> float:
    """CPU seconds until the first piece of text; the response is stopped there."""
    stop = Stop()
    told: list[float] = []

    def tell(thought: Thought) -> None:
        told.append(time.process_time())
        stop.set()

    began = time.process_time()
    thinker.think(request, tell, stop)
    return told[0] - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="times that each is asked (default: 5)")
    rounds = parser.parse_args().rounds
    thinker = SmolLM2Thinker(assets.ensure(["smollm2"])["smollm2"], prefix_budget=1 << 30)
    question = ContextEntry("user", "message", "Can I come tomorrow at ten?")
    rows: list[list[object]] = []
    try:
        for size in (48, 96, 160, 256, 384):
            text = instructions(thinker, size)
            request = ThinkRequest((question,), text, (), "auto", None, 0.8, True, 0, lambda: (0, 0))
            plain = min(first_token(thinker, request) for _ in range(rounds))
            began = time.process_time()
            thinker.read_ahead("bench", "session", text, (), Stop())
            ahead = time.process_time() - began
            kept = min(first_token(thinker, replace(request, tenant="bench")) for _ in range(rounds))
            tokens = len(thinker.tokens(chatml.rules(text, ())))
            megabytes = (tokens + len(thinker.tokens(chatml.preamble()))) * TOKEN_BYTES / 1e6
            rows.append([tokens, *(round(1000 * value) for value in (plain, kept, plain - kept, ahead)), megabytes])
    finally:
        thinker.close()
    head = ("tokens of instructions", "first token ms", "read ahead ms", "saved ms", "reading ahead ms", "kept MB")
    print(table(rows, head))


if __name__ == "__main__":
    main()
