"""Figures of conversations as Prometheus metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from server.voice_metrics import VoiceMetrics
from sessions.core.timeline import from_ms
from sessions.figures import Answer, Interruption, Pause, ResponseEnded


def samples(metrics: VoiceMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """By name and labels; buckets left out."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def test_an_answer_is_counted_from_the_end_of_speech_and_by_its_stages() -> None:
    metrics = VoiceMetrics()
    stages = (("words", from_ms(1200)), ("first_token", from_ms(1500)))
    answer = Answer("resp_1", from_ms(1000), from_ms(1300), from_ms(1300), stages, from_ms(1800))
    metrics.figures("sess_1", [answer])
    seen = samples(metrics)
    assert seen["talkover_turn_latency_seconds_sum", ()] == 0.8
    assert seen["talkover_endpoint_delay_seconds_sum", ()] == 0.3
    assert seen["talkover_stage_seconds_sum", (("stage", "words"), ("turn", "spoken"))] == 0.2
    assert seen["talkover_stage_seconds_sum", (("stage", "first_token"), ("turn", "spoken"))] == 0.5


def test_an_answer_that_nobody_spoke_for_has_its_stages_and_no_latency() -> None:
    metrics = VoiceMetrics()
    stages = (("first_token", from_ms(350)), ("first_code", from_ms(400)), ("first_audio", from_ms(600)))
    typed = Answer("resp_1", None, None, from_ms(100), stages, from_ms(600), asked=from_ms(100))
    metrics.figures("sess_1", [typed])
    seen = samples(metrics)
    assert seen["talkover_turn_latency_seconds_count", ()] == 0
    for stage, elapsed in (("first_token", 0.25), ("first_code", 0.3), ("first_audio", 0.5)):
        assert seen["talkover_stage_seconds_sum", (("stage", stage), ("turn", "asked"))] == elapsed


def test_a_written_answer_to_speech_has_no_turn_latency() -> None:
    metrics = VoiceMetrics()
    stages = (("first_token", from_ms(1500)),)
    metrics.figures("s", [Answer("r", from_ms(1000), from_ms(1300), from_ms(1300), stages, None, from_ms(1000))])
    seen = samples(metrics)
    assert seen["talkover_turn_latency_seconds_count", ()] == 0
    assert seen["talkover_stage_seconds_sum", (("stage", "first_token"), ("turn", "spoken"))] == 0.5


def test_interruptions_are_timed_from_their_onset_and_counted_by_cause() -> None:
    metrics = VoiceMetrics()
    spoken = Interruption("barge_in", 1, from_ms(350), from_ms(100), from_ms(140), from_ms(160))
    metrics.figures("sess_1", [spoken, Interruption("client_cancel", 2, from_ms(900), None, None, 0)])
    seen = samples(metrics)
    assert seen["talkover_interruption_stop_seconds_sum", ()] == 0.04
    assert seen["talkover_interruption_commit_seconds_sum", ()] == 0.25
    assert seen["talkover_interruptions_total", (("cause", "barge_in"),)] == 1
    assert seen["talkover_interruptions_total", (("cause", "client_cancel"),)] == 1
    assert seen["talkover_unheard_audio_seconds_sum", ()] == 0.16
    assert seen["talkover_interruption_stop_seconds_count", ()] == 1


def test_holds_are_told_apart_by_whether_words_were_understood() -> None:
    metrics = VoiceMetrics()
    metrics.figures("sess_1", [Pause(0, 1, 2, "mm-hmm"), Pause(0, 1, 2, ""), Pause(0, 1, 2, " ")])
    seen = samples(metrics)
    assert seen["talkover_holds_resumed_total", (("kind", "backchannel"),)] == 1
    assert seen["talkover_holds_resumed_total", (("kind", "no_words"),)] == 2


def test_responses_are_counted_with_their_tokens() -> None:
    metrics = VoiceMetrics()
    metrics.figures("sess_1", [ResponseEnded("resp_1", 1, "completed", "audio", (30, 12), False)])
    seen = samples(metrics)
    assert seen["talkover_responses_total", (("modality", "audio"), ("status", "completed"))] == 1
    assert seen["talkover_tokens_total", (("direction", "read"),)] == 30
    assert seen["talkover_tokens_total", (("direction", "written"),)] == 12


def test_no_label_names_a_session() -> None:
    metrics = VoiceMetrics()
    metrics.figures("sess_secret", [Interruption("barge_in", 1, 2, 1, None, 0), Pause(0, 1, 2, "what was said")])
    assert "sess_secret" not in metrics.text()
    assert "what was said" not in metrics.text()
