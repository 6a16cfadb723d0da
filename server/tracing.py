"""Traces of the conversations for OpenTelemetry: one trace for each answered turn, a span for each of its stages.

Needs the extra `tracing`. Spans are made when the response is over, with the times at which things happened; nothing
of what was said stands in them. The span of the model carries the attributes of OpenTelemetry's GenAI conventions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind

from sessions.core.timeline import TICK_RATE, Ticks
from sessions.figures import Answer, Figure, Interruption, Pause, ResponseEnded

KEPT: Final = 64
"""Answers of a session whose end is waited for."""


@dataclass(slots=True)
class _Session:
    """`began`: Unix time of its tick 0, in nanoseconds. `answers`: those whose response is not over."""

    began: int
    answers: dict[str, Answer] = field(default_factory=dict)

    def at(self, ticks: Ticks) -> int:
        return self.began + ticks * 1_000_000_000 // TICK_RATE


def exporter(endpoint: str) -> SpanExporter:
    """Sends to the OTLP endpoint `endpoint` over HTTP, such as http://127.0.0.1:4318/v1/traces."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint)


class Tracing:
    """Observer of all sessions of a process."""

    def __init__(self, to: SpanExporter, model: str, version: str) -> None:
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "talkover", "service.version": version})
        )
        self._provider.add_span_processor(BatchSpanProcessor(to))
        self._tracer = self._provider.get_tracer("talkover")
        self._model = model
        self._sessions: dict[str, _Session] = {}

    def opened(self, session: str, now: Ticks) -> None:
        """A session begins, or goes on, at session time `now`."""
        self._sessions[session] = _Session(time.time_ns() - now * 1_000_000_000 // TICK_RATE)

    def closed(self, session: str) -> None:
        self._sessions.pop(session, None)

    def figures(self, session: str, figures: Sequence[Figure]) -> None:
        known = self._sessions.get(session)
        if known is None:
            return
        for figure in figures:
            match figure:
                case Answer():
                    known.answers[figure.response] = figure
                    while len(known.answers) > KEPT:
                        del known.answers[next(iter(known.answers))]
                case ResponseEnded():
                    answer = known.answers.pop(figure.response, None)
                    if answer is not None:
                        self._turn(session, known, answer, figure)
                case Interruption():
                    self._interruption(session, known, figure)
                case Pause():
                    span = self._span("talkover.hold", session, known.at(figure.onset))
                    span.end(known.at(figure.resumed))

    def _span(self, name: str, session: str, start: int, parent: trace.Span | None = None) -> trace.Span:
        context = trace.set_span_in_context(parent or trace.INVALID_SPAN)
        attributes = {"gen_ai.conversation.id": session}
        return self._tracer.start_span(name, context, SpanKind.INTERNAL, attributes, start_time=start)

    def _turn(self, session: str, known: _Session, answer: Answer, ended: ResponseEnded) -> None:
        times = [answer.opened, *(at for _, at in answer.stages)]
        if answer.speech_end is not None:
            start = answer.speech_end
        else:
            start = min(times) if answer.asked is None else answer.asked
        turn = self._span("talkover.turn", session, known.at(start))
        turn.set_attribute("talkover.response", answer.response)
        turn.set_attribute("talkover.status", ended.status)
        if answer.speech_end is not None and answer.turn_ended is not None:
            self._span("talkover.endpointing", session, known.at(answer.speech_end), turn).end(
                known.at(answer.turn_ended)
            )
        before = start
        for stage, at in answer.stages:
            self._span(f"talkover.stage.{stage}", session, known.at(min(before, at)), turn).end(known.at(at))
            turn.set_attribute(f"talkover.{stage}_ms", round((at - start) * 1000 / TICK_RATE, 1))
            before = at
        if answer.audible is not None:
            self._span("talkover.carrier", session, known.at(before), turn).end(known.at(answer.audible))
        began = dict(answer.stages).get("words", answer.opened)
        model = self._span(f"chat {self._model}", session, known.at(began), turn)
        model.set_attribute("gen_ai.operation.name", "chat")
        model.set_attribute("gen_ai.request.model", self._model)
        model.set_attribute("gen_ai.output.type", "speech" if ended.modality == "audio" else "text")
        model.set_attribute("gen_ai.usage.input_tokens", ended.tokens[0])
        model.set_attribute("gen_ai.usage.output_tokens", ended.tokens[1])
        model.end(known.at(ended.at))
        turn.end(known.at(ended.at))

    def _interruption(self, session: str, known: _Session, cut: Interruption) -> None:
        span = self._span("talkover.interruption", session, known.at(cut.at if cut.onset is None else cut.onset))
        span.set_attribute("talkover.cause", cut.cause)
        span.set_attribute("talkover.epoch", cut.epoch)
        span.set_attribute("talkover.unheard_ms", round(cut.unheard * 1000 / TICK_RATE, 1))
        if cut.held is not None:
            span.add_event("held", timestamp=known.at(cut.held))
        span.end(known.at(cut.at))

    def close(self) -> None:
        """Send what waits."""
        self._provider.shutdown()
