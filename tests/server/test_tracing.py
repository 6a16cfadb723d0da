"""Traces of conversations, as an exporter gets them."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from server.tracing import KEPT, Tracing
from sessions.core.timeline import from_ms
from sessions.figures import Answer, Interruption, Pause, ResponseEnded

STAGES = (("words", from_ms(1200)), ("first_token", from_ms(1500)), ("first_audio", from_ms(1700)))
ANSWER = Answer("resp_1", from_ms(1000), from_ms(1300), from_ms(1300), STAGES, from_ms(1800))
ENDED = ResponseEnded("resp_1", from_ms(4000), "completed", "audio", (30, 12), False)


class Place:
    def __init__(self) -> None:
        self.seen = InMemorySpanExporter()
        self.tracing = Tracing(self.seen, "talkover", "0.1")
        self.tracing.opened("sess_1", 0)

    def spans(self) -> dict[str, ReadableSpan]:
        self.tracing.close()
        return {span.name: span for span in self.seen.get_finished_spans()}


def length_ms(span: ReadableSpan) -> float:
    assert span.end_time is not None
    assert span.start_time is not None
    return (span.end_time - span.start_time) / 1e6


def test_a_turn_is_one_trace_with_a_span_for_each_stage() -> None:
    place = Place()
    place.tracing.figures("sess_1", [ANSWER])
    place.tracing.figures("sess_1", [ENDED])
    spans = place.spans()
    turn = spans["talkover.turn"]
    assert turn.parent is None
    assert length_ms(turn) == 3000
    lengths = {name: length_ms(span) for name, span in spans.items()}
    assert lengths["talkover.endpointing"] == 300
    assert lengths["talkover.stage.words"] == 200
    assert lengths["talkover.stage.first_token"] == 300
    assert lengths["talkover.stage.first_audio"] == 200
    assert lengths["talkover.carrier"] == 100
    context = turn.get_span_context()
    assert context is not None
    for name, span in spans.items():
        if name != "talkover.turn":
            assert span.parent is not None
            assert span.parent.span_id == context.span_id


def test_the_models_span_has_the_attributes_of_the_genai_conventions() -> None:
    place = Place()
    place.tracing.figures("sess_1", [ANSWER, ENDED])
    model = place.spans()["chat talkover"]
    assert dict(model.attributes or {}) == {
        "gen_ai.conversation.id": "sess_1",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "talkover",
        "gen_ai.output.type": "speech",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 12,
    }


def test_each_stage_of_a_turn_is_a_figure_of_its_own() -> None:
    place = Place()
    place.tracing.figures("sess_1", [ANSWER, ENDED])
    attributes = place.spans()["talkover.turn"].attributes or {}
    figures = {name: value for name, value in attributes.items() if name.endswith("_ms")}
    assert figures == {"talkover.words_ms": 200.0, "talkover.first_token_ms": 500.0, "talkover.first_audio_ms": 700.0}


def test_a_typed_turn_is_timed_from_its_request_and_a_written_answer_has_no_carrier() -> None:
    place = Place()
    stages = (("first_token", from_ms(1500)),)
    written = Answer("resp_1", None, None, from_ms(1200), stages, None, asked=from_ms(1100))
    place.tracing.figures(
        "sess_1", [written, ResponseEnded("resp_1", from_ms(2100), "completed", "text", (3, 4), False)]
    )
    spans = place.spans()
    assert "talkover.carrier" not in spans
    assert length_ms(spans["talkover.turn"]) == 1000
    assert (spans["talkover.turn"].attributes or {})["talkover.first_token_ms"] == 400.0


def test_two_turns_are_two_traces() -> None:
    place = Place()
    second = Answer("resp_2", None, None, from_ms(5000), (), from_ms(5200))
    place.tracing.figures(
        "sess_1", [ANSWER, ENDED, second, ResponseEnded("resp_2", from_ms(6000), "cancelled", "audio", (1, 1), False)]
    )
    place.tracing.close()
    turns = [span for span in place.seen.get_finished_spans() if span.name == "talkover.turn"]
    assert len({span.get_span_context().trace_id for span in turns}) == 2  # type: ignore[union-attr]


def test_interruptions_and_holds_are_spans_without_words() -> None:
    place = Place()
    place.tracing.figures(
        "sess_1",
        [
            Interruption("barge_in", 1, from_ms(350), from_ms(100), from_ms(140), from_ms(160)),
            Pause(from_ms(600), from_ms(640), from_ms(900), "private words"),
        ],
    )
    spans = place.spans()
    cut = spans["talkover.interruption"]
    assert length_ms(cut) == 250
    assert (cut.attributes or {})["talkover.unheard_ms"] == 160.0
    assert [event.name for event in cut.events] == ["held"]
    assert length_ms(spans["talkover.hold"]) == 300
    assert "private" not in str([span.to_json() for span in spans.values()])


def test_a_session_that_is_over_or_unknown_is_not_traced_and_nothing_piles_up() -> None:
    place = Place()
    for number in range(3 * KEPT):
        place.tracing.figures("sess_1", [Answer(f"resp_{number}", None, None, 0, (), 1)])
    assert len(place.tracing._sessions["sess_1"].answers) == KEPT
    place.tracing.closed("sess_1")
    place.tracing.figures("sess_1", [ANSWER, ENDED])
    place.tracing.figures("sess_2", [ANSWER, ENDED])
    assert place.spans() == {}
