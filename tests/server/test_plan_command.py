"""`talkover plan`."""

from __future__ import annotations

import json

import pytest

from server import cli


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(["plan", *arguments])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_the_devices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--device", "list")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["h200", "h100", "a100", "l40s", "l4", "rtx4090", "cpu"]


def test_a_plan_says_of_every_figure_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--family", "moshi", "--device", "h200")
    assert status == 0
    assert "plan: laying out the model" in err
    for figure in ("weights", "one session", "may be used", "sessions by memory", "tick", "sessions by tick"):
        assert any(
            line.strip().startswith(figure) and ("[computed]" in line or "[declared]" in line)
            for line in out.splitlines()
        ), figure
    assert "3,025 positions · 32 layers · 2 · 32 heads · 128 · 2 B = 1.5 GiB" in out
    assert "what limits first: memory" in out
    assert "temporal.kv -> temporal.past" in out


def test_a_measured_plan_as_json_agrees_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--family", "moshi", "--random-weights", "tiny", "--device", "cpu", "--measure", "--json")
    status, out, err = run(capsys, *arguments)
    assert status == 0
    assert "making a model with 8 sessions" in err
    plan = json.loads(out)
    measured = plan["measured"]
    for name in ("weights", "session"):
        assert measured[name]["origin"] == "measured"
        assert plan[name]["origin"] == "computed"
        assert plan[name]["value"] == pytest.approx(measured[name]["value"], rel=0.1)
    assert {step["origin"] for step in plan["steps"]} == {"measured"}
    assert {step["sessions"] for step in plan["steps"]} == {1, 4, 8}
    assert plan["device"]["bandwidth"]["origin"] == "measured"


def test_qwen3_omni_is_measured_stage_by_stage_and_agrees_with_what_is_computed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("--family", "qwen3-omni", "--random-weights", "tiny", "--device", "cpu", "--measure", "--json")
    status, out, err = run(capsys, *arguments)
    assert status == 0
    assert "thinker of 8 sessions" in err
    plan = json.loads(out)
    measured = plan["measured"]
    for name in ("weights", "session"):
        assert plan[name]["value"] == pytest.approx(measured[name]["value"], rel=0.1)
    assert set(measured["stage_seconds"]) == {"thinker", "talker", "code2wav"}
    for count in ("1", "4", "8"):
        stages = [seconds[count] for seconds in measured["stage_seconds"].values()]
        assert measured["step_seconds"][count] == pytest.approx(sum(stages))
    assert {(step["stage"], step["origin"]) for step in plan["stages"]} == {
        (stage, "measured") for stage in ("thinker", "talker", "code2wav")
    }
    assert "measured steps" in plan["sessions_by_tick"]["source"]


def test_stages_may_be_declared_and_their_sum_is_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    times = {"thinker": (5, 9), "talker": (10, 16), "code2wav": (1, 5)}
    given = [
        text
        for stage, (one, sixteen) in times.items()
        for text in ("--step-ms", f"{stage}:1={one}", "--step-ms", f"{stage}:16={sixteen}")
    ]
    status, out, _ = run(capsys, "--family", "qwen3-omni", "--device", "h200", "--json", *given)
    assert status == 0
    plan = json.loads(out)
    assert {step["sessions"]: step["value"] for step in plan["steps"]} == pytest.approx({1: 0.016, 16: 0.03})
    assert {step["origin"] for step in plan["stages"]} == {"declared"}
    _, text, _ = run(capsys, "--family", "qwen3-omni", "--device", "h200", *given)
    assert "9 ms  thinker" in text


def test_declared_steps_and_links_are_used_and_said_to_be_declared(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--family", "moshi", "--random-weights", "tiny", "--device", "l40s", "--json")
    more = ("--step-ms", "1=21", "--step-ms", "16=36", "--link", "network=1e9", "--usable", "0.5")
    _, out, _ = run(capsys, *arguments, *more)
    plan = json.loads(out)
    assert plan["sessions_by_tick"]["value"] == 60
    assert "declared" in plan["sessions_by_tick"]["source"]
    assert plan["device"]["links"]["network"] == {
        "value": 1e9,
        "unit": "bytes/s",
        "origin": "declared",
        "source": "--link",
    }
    assert plan["budget"]["value"] == 24e9
    assert plan["limit"].startswith("time")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--device", "h200"), "--family: is missing"),
        (("--device", "abacus", "--family", "moshi"), "--device: there is no 'abacus'"),
        (("--device", "h200", "--family", "bagel"), "--checkpoint: no source states the sizes of bagel"),
        (("--device", "h200", "--family", "moshi", "--step-ms", "many"), "--step-ms: 'many' must be written"),
        (
            ("--device", "h200", "--family", "qwen3-omni", "--step-ms", "vocoder:1=5"),
            "has no stage 'vocoder'; its stages are thinker, talker, code2wav",
        ),
        (
            ("--device", "h200", "--family", "qwen3-omni", "--step-ms", "thinker:1=5"),
            "talker is not given for 1 sessions; a tick needs every stage",
        ),
        (
            ("--device", "h200", "--family", "qwen3-omni", "--step-ms", "thinker:1=5", "--step-ms", "1=5"),
            "--step-ms: is given for whole steps and for stages",
        ),
        (("--device", "h200", "--family", "moshi", "--link", "road=5"), "--link: 'road' must be peer"),
        (("--device", "h200", "--family", "moshi", "--link", "host=0"), "above 0 bytes per second"),
        (("--device", "h200", "--family", "moshi", "--usable", "2"), "--usable: 2 must be"),
        (("--device", "h200", "--family", "moshi", "--measure"), "--measure: is for what can be made here"),
        (
            ("--device", "h200", "--family", "moshi", "--random-weights", "tiny", "--measure", "--context", "5"),
            "drop --context and --dtype",
        ),
    ],
)
def test_a_mistake_is_named_with_its_remedy_and_ends_with_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert told in err
