from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sessions.recording.events_file import EventsFile, read_chapters


def lines_in(path: Path) -> list[str]:
    return [line.decode() for chapter in read_chapters(path) for line in chapter.lines()]


def filled(path: Path, chapters: int = 3, per: int = 50) -> EventsFile:
    """`chapters` frames with `per` lines each, flushed every ten lines."""
    file = EventsFile(path)
    for chapter in range(chapters):
        for number in range(per):
            file.write(f"chapter {chapter} line {number}\n")
            if number % 10 == 9:
                file.flush()
        file.frame()
    return file


def test_what_was_flushed_is_there_though_the_file_was_never_closed(tmp_path: Path) -> None:
    file = EventsFile(tmp_path / "e.zst")
    file.write("one\n")
    assert lines_in(tmp_path / "e.zst") == []
    file.flush()
    assert lines_in(tmp_path / "e.zst") == ["one"]
    file.write("two\n")
    file.flush()
    assert lines_in(tmp_path / "e.zst") == ["one", "two"]
    assert file.size == (tmp_path / "e.zst").stat().st_size
    file.close()
    assert lines_in(tmp_path / "e.zst") == ["one", "two"]


def test_a_file_cut_off_anywhere_gives_the_lines_up_to_there(tmp_path: Path) -> None:
    filled(tmp_path / "e.zst").close()
    whole, all_lines = (tmp_path / "e.zst").read_bytes(), lines_in(tmp_path / "e.zst")
    assert len(all_lines) == 150
    counts = []
    for size in range(0, len(whole), 7):
        (tmp_path / "cut.zst").write_bytes(whole[:size])
        lines = lines_in(tmp_path / "cut.zst")
        assert lines == all_lines[: len(lines)]
        counts.append(len(lines))
    assert counts == sorted(counts)


def test_damage_costs_a_chapter_at_most_and_is_told(tmp_path: Path) -> None:
    filled(tmp_path / "e.zst").close()
    whole = bytearray((tmp_path / "e.zst").read_bytes())
    second = whole.index(b"\x28\xb5\x2f\xfd", 4)
    whole[second + 40 : second + 60] = bytes(20)
    (tmp_path / "e.zst").write_bytes(whole)
    chapters = list(read_chapters(tmp_path / "e.zst"))
    read = [[line.decode() for line in chapter.lines()] for chapter in read_chapters(tmp_path / "e.zst")]
    assert read[0] == [f"chapter 0 line {number}" for number in range(50)]
    assert read[-1] == [f"chapter 2 line {number}" for number in range(50)]
    assert len(chapters) >= 3
    faults = []
    for chapter in read_chapters(tmp_path / "e.zst"):
        list(chapter.lines())
        faults.append(bool(chapter.fault or chapter.lost))
    assert not faults[0]
    assert any(faults)


@pytest.mark.skipif(shutil.which("zstdcat") is None, reason="zstdcat is not installed")
def test_the_usual_tool_reads_what_was_flushed(tmp_path: Path) -> None:
    file = filled(tmp_path / "e.zst")
    file.write("half a chapter\n")
    file.flush()
    # It complains about the end that is missing; everything before it is there.
    done = subprocess.run(["zstdcat", str(tmp_path / "e.zst")], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.splitlines() == lines_in(tmp_path / "e.zst")
    assert done.stdout.endswith("half a chapter\n")
