"""`talkover models list`, `show` and `graph`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models.registry import models
from server import cli
from server.models_command import FORMATS
from tests.models.checkpoints import QWEN, changed, write
from tests.models.graph.test_render import check_parts, dot_parts, mermaid_parts


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(["models", *arguments])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_the_list_has_a_line_for_every_variant(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "list")
    lines = out.splitlines()
    assert status == 0
    assert [line.split()[0] for line in lines[1 : 1 + len(models())]] == list(models())
    columns = {line.index("yes" if "yes" in line else "no") for line in lines[1:3]}
    assert len(columns) == 1


def test_the_list_as_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "list", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["qwen3-omni-thinking"]["speaks"] == "no"
    assert rows["moshi"]["takes"] == "audio"
    assert rows["embedded"]["takes"] == "text audio"
    assert rows["qwen3-omni-instruct"]["interruptible"] == "undetermined"


@pytest.mark.parametrize("name", models())
def test_every_variant_is_shown_with_its_sources(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "show", name)
    assert status == 0
    assert out.startswith(f"{name}: ")
    assert "voice session: " in out
    assert max(map(len, out.splitlines())) <= 120
    status, out, _ = run(capsys, "show", name, "--json")
    shown = json.loads(out)
    assert shown["name"] == name
    assert set(shown["facts"]) == set(models()[name].descriptor.facts())


def test_a_fact_is_a_value_with_its_source_or_undetermined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", str(write(tmp_path, {"config.json": QWEN})), "--json")
    facts = json.loads(out)["facts"]
    assert facts["codec"]["value"]["codebooks"] == 16
    assert facts["codec"]["source"].startswith("config.json: code2wav_config")
    assert facts["rewindable"] == "undetermined"
    assert facts["image_head"] == {"value": None, "source": "Qwen3-Omni technical report"}


def test_frames_and_codes_each_have_their_own_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", str(write(tmp_path, {"config.json": QWEN})))
    told = " ".join(out.split())
    assert "12.5 frames of code2wav" in told
    assert "200 codes of code2wav" in told


def test_a_voice_session_that_cannot_be_is_refused_by_the_missing_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write(tmp_path, {"config.json": changed(QWEN, "enable_audio_output", False)}))
    status, out, err = run(capsys, "show", folder, "--require", "voice")
    assert status == 1
    assert "voice session: no, for want of: talker" in out
    assert "it has no talker (config.json: enable_audio_output is false)" in err
    status, out, err = run(capsys, "show", str(write(tmp_path / "b", {"config.json": QWEN})), "--require", "voice")
    assert (status, err) == (0, "")


@pytest.mark.parametrize("what", ["show", "graph"])
@pytest.mark.parametrize(
    ("files", "said"),
    [
        (None, "neither a folder nor one of"),
        ({}, "config.json: is not in"),
        ({"config.json": "{"}, "download it again"),
        ({"config.json": {"model_type": "mamba"}}, "no family recognises"),
        ({"config.json": changed(QWEN, "talker_config", ...)}, "talker_config: is missing"),
        ({"config.json": QWEN, "model.safetensors": "cut"}, "cut off"),
    ],
)
def test_a_mistake_ends_with_status_2_and_says_what_to_do(
    what: str, files: dict[str, object] | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "c"
    if files is not None:
        folder.mkdir()
        write(folder, files)
    status, out, err = run(capsys, what, str(folder))
    assert (status, out) == (2, "")
    assert err.startswith(f"talkover models {what}: ")
    assert said in err


@pytest.mark.parametrize("name", models())
def test_every_graph_is_printed_in_every_format(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    graph = models()[name].graph
    printed = {kind: run(capsys, "graph", name, "--format", kind)[1] for kind in FORMATS}
    check_parts(graph, *mermaid_parts(printed["mermaid"]), "<br/>")
    check_parts(graph, *dot_parts(printed["dot"]), "\\n")
    assert all(edge.name in printed["text"] for edge in graph.edges)
    record = json.loads(printed["json"])
    assert [node["name"] for node in record["nodes"]] == [node.name for node in graph.nodes]
    assert [(edge["from"], edge["to"]) for edge in record["edges"]] == [(e.source, e.target) for e in graph.edges]
    assert run(capsys, "graph", name, "--json")[1] == printed["json"]


def test_a_checkpoint_draws_what_it_really_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write(tmp_path, {"config.json": changed(QWEN, "enable_audio_output", False)}))
    _, out, _ = run(capsys, "graph", folder)
    assert "talker" not in out
    assert "[B,F,2048]" in out


def test_a_value_from_a_file_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {**QWEN, "thinker_config": {}}
    tokenizer = {"tokenizer_class": "evil\x1b[2Jname"}
    folder = str(write(tmp_path, {"config.json": config, "tokenizer_config.json": tokenizer}))
    _, out, _ = run(capsys, "show", folder)
    assert "\x1b" not in out
    assert "evil?[2Jname" in out


@pytest.mark.parametrize("arguments", [[], ["list"], ["show"], ["graph"]])
def test_help_says_what_there_is(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["models", *arguments, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "usage: talkover models" in out
    if arguments in (["show"], ["graph"]):
        assert "NAME_OR_PATH" in out
