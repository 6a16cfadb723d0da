"""A recording looked at chapter by chapter: the same as when all of it is read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sessions.core.timeline import from_ms
from sessions.recording.chapters import places, text
from sessions.recording.events_file import EventsFile
from sessions.recording.format import EVENTS, JournalError
from sessions.replay.view import View
from tests.sessions.conversations import converse
from tests.sessions.recordings import as_version_1, lines_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """65 s of conversation: three chapters."""
    return converse(tmp_path_factory.mktemp("recordings"), rounds=5)


def all_marks(view: View) -> dict[str, list[Any]]:
    whole: dict[str, list[Any]] = {}
    for chapter in range(len(view.chapters)):
        for name, marks in view.marks(chapter).items():
            if isinstance(marks, list):
                whole.setdefault(name, []).extend(marks)
    return whole


def test_chapters_hold_every_event_once_and_in_order(folder: Path) -> None:
    view = View(folder)
    assert len(view.chapters) == 3
    assert view.chapters == sorted(view.chapters)
    events: list[Any] = [event for chapter in range(3) for event in view.events(chapter)]
    read = [line for line in lines_of(folder) if "event" in line]
    assert [event["n"] for event in events] == [line["n"] for line in read]
    assert [(event["now"], event["event"]) for event in events] == [(line["now"], line["event"]) for line in read]
    assert view.chapter_at(events[-1]["now"]) == 2
    assert all(view.finished(chapter) for chapter in range(3))


def test_marks_tell_words_holds_epochs_and_what_was_heard(folder: Path) -> None:
    marks = all_marks(View(folder))
    assert len(marks["epochs"]) > 4
    assert {epoch["cause"] for epoch in marks["epochs"]} >= {"barge_in"}
    assert [mark["what"] for mark in marks["holds"]][:2] == ["hold", "cut"]
    epochs = {epoch["now"]: epoch for epoch in marks["epochs"]}
    assert len(marks["cleared"]) > 4
    for cleared in marks["cleared"]:
        epoch = epochs[cleared["now"]]
        words = [word for word in marks["words"] if word.get("response") == cleared["response"]]
        sent = "".join(word["text"] for word in words)
        assert sent.strip().startswith(cleared["text"].strip())
        # Words are heard about when they are sent, and none is sent after the cut.
        assert all(word["at"] <= epoch["now"] + from_ms(200) for word in words)
    stages = [stage["stage"] for stage in marks["stages"]]
    assert stages.count("sent") == len(marks["turns"]) > 9
    assert {"user", "agent"} == {word["side"] for word in marks["words"]}


def test_speech_lies_where_it_was_spoken(folder: Path) -> None:
    speech: Any = View(folder).marks(0)["speech"]
    assert speech[0] == pytest.approx([from_ms(500), from_ms(1500)], abs=from_ms(40))


def test_interruptions_are_found_without_reading_the_rest(folder: Path) -> None:
    view = View(folder)
    found: list[Any] = view.interruptions()
    assert [(one["now"], one["epoch"]) for one in found] == [
        (epoch["now"], epoch["epoch"]) for epoch in all_marks(view)["epochs"]
    ]
    assert view.interruptions() == found


def test_a_recording_of_version_1_is_one_chapter(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    as_version_1(copy)
    view = View(copy)
    assert view.chapters == [0]
    assert view.interruptions() == View(folder).interruptions()
    with pytest.raises(IndexError):
        list(view.steps(1))


def test_a_recording_that_still_grows_is_read_as_far_as_it_goes(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    whole = (folder / EVENTS).read_bytes()
    first, second, _ = places(folder / EVENTS)
    lines = text(folder / EVENTS, second).decode().splitlines(keepends=True)
    growing = EventsFile(copy / EVENTS)
    for line in text(folder / EVENTS, first).decode().splitlines(keepends=True):
        growing.write(line)
    growing.frame()
    for line in lines[:100]:
        growing.write(line)
    growing.flush()
    view = View(copy)
    assert view.chapters == View(folder).chapters[:2]
    assert (view.finished(0), view.finished(1)) == (True, False)
    part = view.events(1)
    growing.close()
    (copy / EVENTS).write_bytes(whole)
    view.refresh()
    assert view.chapters == View(folder).chapters
    assert view.events(1)[: len(part)] == part
    assert len(view.events(1)) > len(part)
    assert view.interruptions() == View(folder).interruptions()


def test_what_is_damaged_costs_its_chapter_and_no_more(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    data = bytearray((copy / EVENTS).read_bytes())
    middle = places(folder / EVENTS)[1].begin
    data[middle + 400 : middle + 460] = bytes(60)
    (copy / EVENTS).write_bytes(data)
    view = View(copy)
    last = len(view.chapters) - 1
    assert view.events(last) == View(folder).events(2)
    assert [one for one in view.interruptions() if one in View(folder).interruptions()] == view.interruptions()


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"manifest\.json"):
        View(tmp_path)
