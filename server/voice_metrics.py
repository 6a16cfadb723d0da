"""Figures of the conversations as Prometheus metrics: latencies by stage, interruptions, what nobody heard.

Seconds everywhere. No label names a session or a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from sessions.core.timeline import TICK_RATE, Ticks
from sessions.figures import Answer, Figure, Interruption, Pause, ResponseEnded
from sessions.ports import EnginePort

from .engine_metrics import EngineMetrics

disable_created_metrics()  # type: ignore[no-untyped-call]

LATENCIES: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
STOPS: Final = (0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 1.0)
UNHEARD: Final = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)


def seconds(ticks: Ticks) -> float:
    return ticks / TICK_RATE


class VoiceMetrics:
    """Observer of all sessions of a process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def seconds_of(name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"talkover_{name}_seconds", about, labels, buckets=buckets, registry=registry)

        end, onset = "From the true end of the user's speech to", "From the onset of the user's speech to"
        self._turn = seconds_of("turn_latency", f"{end} the first sample of the answer", LATENCIES)
        self._endpoint = seconds_of("endpoint_delay", f"{end} the decision that the turn is over", LATENCIES)
        self._stage = seconds_of(
            "stage",
            f"{end} a stage of the answer (turn: spoken), or from the request of a client (asked)",
            LATENCIES,
            "stage",
            "turn",
        )
        self._stop = seconds_of("interruption_stop", f"{onset} the moment from which nothing more was sent", STOPS)
        self._commit = seconds_of("interruption_commit", f"{onset} the decision that it is an interruption", STOPS)
        self._unheard = seconds_of(
            "unheard_audio", "Audio that had been sent and was not heard any more, for each interruption", UNHEARD
        )
        self._epochs = Counter(
            "talkover_interruptions", "Ends of what was being said, by cause", ("cause",), registry=registry
        )
        self._pauses = Counter(
            "talkover_holds_resumed",
            "Sounds over the agent that were no interruption: words that only show attention, or no words",
            ("kind",),
            registry=registry,
        )
        self._responses = Counter(
            "talkover_responses", "Responses that ended, by how", ("status", "modality"), registry=registry
        )
        self._tokens = Counter("talkover_tokens", "Tokens of responses", ("direction",), registry=registry)

    def figures(self, session: str, figures: Sequence[Figure]) -> None:
        for figure in figures:
            match figure:
                case Answer():
                    self._answer(figure)
                case Interruption():
                    self._interruption(figure)
                case Pause():
                    self._pauses.labels("backchannel" if figure.words.strip() else "no_words").inc()
                case ResponseEnded():
                    self._responses.labels(figure.status, figure.modality).inc()
                    self._tokens.labels("read").inc(figure.tokens[0])
                    self._tokens.labels("written").inc(figure.tokens[1])

    def _answer(self, answer: Answer) -> None:
        if answer.latency is not None:
            self._turn.observe(seconds(answer.latency))
        if answer.speech_end is not None and answer.turn_ended is not None:
            self._endpoint.observe(seconds(answer.turn_ended - answer.speech_end))
        since, turn = (answer.asked, "asked") if answer.speech_end is None else (answer.speech_end, "spoken")
        if since is not None:
            for stage, at in answer.stages:
                self._stage.labels(stage, turn).observe(max(0.0, seconds(at - since)))

    def _interruption(self, cut: Interruption) -> None:
        self._epochs.labels(cut.cause).inc()
        self._unheard.observe(seconds(cut.unheard))
        if cut.onset is not None and cut.stopped_after is not None:
            self._stop.observe(seconds(cut.stopped_after))
            self._commit.observe(seconds(cut.at - cut.onset))

    def watch(self, engine: EnginePort) -> None:
        """Tell of `engine` as well, how full it is and what it counted, whenever somebody asks."""
        self.registry.register(EngineMetrics(engine))

    def text(self) -> str:
        """In Prometheus' text format."""
        return generate_latest(self.registry).decode()
