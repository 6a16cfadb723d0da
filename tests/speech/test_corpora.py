"""The labelled sets are what they say they are."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from tests.speech import RATE, SetName, Split, folder, load
from tests.speech.edges import find_edges
from tests.speech.noises import NOISES, make_noise

SETS: tuple[SetName, ...] = ("questions", "backchannels", "commands")
SPLITS: tuple[Split, ...] = ("tune", "test")
ALL = [(name, split) for name in SETS for split in SPLITS]
SIZES: dict[tuple[SetName, Split], int] = {
    ("questions", "test"): 24,
    ("backchannels", "tune"): 15,
    ("backchannels", "test"): 30,
    ("commands", "tune"): 15,
    ("commands", "test"): 30,
}


def entries(name: SetName) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder(name) / "manifest.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("name", "split"), ALL)
def test_outside_its_label_a_clip_is_silent_and_inside_it_begins_and_ends_with_sound(
    name: SetName, split: Split
) -> None:
    for clip in load(name, split):
        assert not clip.pcm[: clip.onset].any(), clip.name
        assert not clip.pcm[clip.end :].any(), clip.name
        floor = -25.0 if clip.voice.startswith("pocketsphinx") else -40.0
        onset, end = find_edges(clip.pcm.astype(np.float64), RATE, floor)
        assert abs(onset - clip.onset) <= RATE * 5 // 1000, clip.name
        assert abs(end - clip.end) <= RATE * 5 // 1000, clip.name


@pytest.mark.parametrize(("key", "least"), SIZES.items())
def test_the_sets_are_large_enough_to_tell_rates(key: tuple[SetName, Split], least: int) -> None:
    assert len(load(*key)) >= least


@pytest.mark.parametrize("name", SETS)
def test_no_voice_and_no_noise_of_the_test_split_was_used_for_tuning(name: SetName) -> None:
    assert {clip.voice for clip in load(name, "tune")}.isdisjoint(clip.voice for clip in load(name, "test"))


@pytest.mark.parametrize(("name", "split"), ALL)
def test_no_clip_is_in_a_split_twice(name: SetName, split: Split) -> None:
    clips = load(name, split)
    assert len({(clip.text, clip.voice) for clip in clips}) == len(clips)
    assert len({clip.pcm.tobytes() for clip in clips}) == len(clips)


@pytest.mark.parametrize("name", SETS)
def test_the_files_are_those_of_the_manifest_and_no_others(name: SetName) -> None:
    listed = {str(entry["file"]): entry["sha256"] for entry in entries(name)}
    assert {path.name for path in folder(name).glob("*.flac")} == set(listed)
    for split in SPLITS:
        for clip in load(name, split):
            assert hashlib.sha256(clip.pcm.tobytes()).hexdigest() == listed[f"{clip.name}.flac"]


def test_every_clip_says_where_it_is_from_and_under_which_licence() -> None:
    for name in SETS:
        for entry in entries(name):
            assert entry["licence"]
            assert entry["made_by"]


def test_an_unknown_set_or_split_is_named() -> None:
    with pytest.raises(ValueError, match="no set 'songs'"):
        load("songs", "test")
    with pytest.raises(ValueError, match="no split 'train'"):
        load("questions", "train")


def test_edges_of_a_tone_are_found_to_five_milliseconds() -> None:
    signal = np.zeros(RATE)
    signal[4000:9000] = np.sin(np.arange(5000))
    onset, end = find_edges(signal, RATE)
    assert abs(onset - 4000) <= 80
    assert abs(end - 9000) <= 80


def test_silence_has_no_edges() -> None:
    with pytest.raises(ValueError, match="no sound"):
        find_edges(np.zeros(1000), RATE)


@pytest.mark.parametrize("name", NOISES)
def test_a_noise_is_made_the_same_from_the_same_seed(name: str) -> None:
    assert np.array_equal(make_noise(name, 7), make_noise(name, 7))
    assert not np.array_equal(make_noise(name, 7)[:1000], make_noise(name, 8)[:1000])
