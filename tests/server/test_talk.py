"""`talkover talk` as a user runs it: spoken questions, an interruption, a listener's "yes".

Every talk is the real command in a process of its own, with the real ear, model and voice; what is judged is what lies
on the disk afterwards: the stereo recording, the report, the journal.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from codec.resample import Resampler
from models import assets
from models.perception.asr import Recognizer
from models.perception.mel import SAMPLE_RATE
from server.client import RATE, Pcm, to_wire_rate
from server.timeline import Entry
from sessions.core.timeline import ticks_per_sample
from tests.bench.words import plain, word_error_rate
from tests.servers import ROOT
from tests.sessions.recordings import lines_of
from tests.speech import RATE as CLIP_RATE
from tests.speech import Clip, SetName, folder, load

pytestmark = pytest.mark.models

LEAD = RATE * 200 // 1000
"""Samples that may be on their way when a cut comes: the default lead."""

STEP = ticks_per_sample(RATE)


@dataclass(frozen=True, slots=True)
class Talk:
    """What a talk left behind. `stereo`: int16 [samples, 2] at 24 kHz, user left, agent right."""

    printed: str
    entries: list[dict[str, Any]]
    figures: dict[str, Any]
    stereo: NDArray[np.int16]
    journal: Path

    @property
    def agent(self) -> Pcm:
        return self.stereo[:, 1]

    def lines(self, side: str, begins: str) -> list[str]:
        return [one["text"] for one in self.entries if one["side"] == side and one["text"].startswith(begins)]

    def at(self, side: str, begins: str) -> float:
        """Seconds at which the first such line stands."""
        return next(float(o["at"]) for o in self.entries if o["side"] == side and o["text"].startswith(begins))

    def track(self, name: str) -> Pcm:
        pcm, rate = soundfile.read(self.journal / f"{name}.flac", dtype="int16")
        assert rate == RATE
        return np.asarray(pcm, np.int16)

    def generated(self) -> dict[str, Pcm]:
        """All that the engine made, by response, in the order of the responses."""
        track = self.track("agent_generated")
        pieces: dict[str, list[Pcm]] = {}
        for line in lines_of(self.journal):
            event = line.get("event", {})
            if event.get("type") == "EngineAudio":
                first = line["at"] // STEP
                length = (event["end"] - event.get("start", 0)) // STEP
                pieces.setdefault(event["response"], []).append(track[first : first + length])
        return {response: np.concatenate(parts) for response, parts in pieces.items()}

    def notices(self, kind: str) -> list[dict[str, Any]]:
        """What the core told, from the journal."""
        return [
            effect["notice"]
            for line in lines_of(self.journal)
            for effect in line.get("effects", [])
            if effect["type"] == "Notify" and effect["notice"]["type"] == kind
        ]


def talk(place: Path, clip: Clip, over: Path | None = None, options: Sequence[str] = ()) -> Talk:
    """Run the command with `clip` as the question, and perhaps a file played `over` its answer."""
    place.mkdir()
    command = [sys.executable, "-m", "server.cli", "talk", str(file_of("questions", clip))]
    if over is not None:
        command += ["--interrupt-at", str(INTO_IT), str(over)]
    command += ["--out", str(place / "heard.wav"), "--json", str(place / "report.json")]
    command += ["--record", str(place / "recordings"), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((place / "report.json").read_text())
    stereo, rate = soundfile.read(place / "heard.wav", dtype="int16", always_2d=True)
    assert (rate, stereo.shape[1]) == (RATE, 2)
    (journal,) = (place / "recordings").iterdir()
    return Talk(done.stdout, report["timeline"], report["figures"], stereo, journal)


def file_of(name: SetName, clip: Clip) -> Path:
    return folder(name) / f"{clip.name}.flac"


def spoken(name: SetName, words: str) -> Clip:
    """The first clip of the test split that begins with `words`."""
    return next(clip for clip in load(name, "test") if clip.text.startswith(words))


SHORT_ANSWERS = [spoken("questions", words) for words in ("What is the capital", "How many legs")]
LONG_ANSWER = spoken("questions", "Can you tell me what photosynthesis is")
INTERRUPTION = spoken("commands", "what about London")
AGREEMENT = spoken("backchannels", "yes")
INTO_IT = 1.5
"""Seconds after which the answer is spoken over."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("talks")


@pytest.fixture(scope="module")
def answered(place: Path) -> list[Talk]:
    """Questions that are answered without anything in between."""
    return [talk(place / f"answered-{number}", clip) for number, clip in enumerate(SHORT_ANSWERS)]


@pytest.fixture(scope="module")
def interrupted(place: Path) -> Talk:
    """Another question over the answer."""
    return talk(place / "interrupted", LONG_ANSWER, file_of("commands", INTERRUPTION))


@pytest.fixture(scope="module")
def agreed(place: Path) -> Talk:
    """A listener says "yes" over the answer."""
    return talk(place / "agreed", LONG_ANSWER, file_of("backchannels", AGREEMENT))


# --- what is said is what is heard ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Recognizer]:
    recognizer = Recognizer(assets.ensure(["whisper-base"])["whisper-base"])
    yield recognizer
    recognizer.unload()


def understood(recognizer: Recognizer, pcm: Pcm) -> str:
    """What a recognizer makes of the sound in `pcm`, int16 [samples] at 24 kHz, without the silence around it."""
    loud = np.nonzero(np.abs(pcm.astype(int)) > 500)[0]
    pcm = pcm[max(0, int(loud[0]) - RATE // 10) : int(loud[-1]) + RATE // 10]
    resampler = Resampler(RATE, SAMPLE_RATE)
    samples = np.concatenate([resampler.process(pcm), resampler.flush()])
    return recognizer.recognize(np.asarray(samples / 32768, np.float32)).text


def test_replies_are_heard_as_their_transcripts_say(answered: list[Talk], agreed: Talk, recognizer: Recognizer) -> None:
    talks = [*answered, agreed]
    said = [" ".join(one.figures["agent"]) for one in talks]
    heard = [understood(recognizer, one.agent) for one in talks]
    assert all(said)
    assert word_error_rate(said, heard) <= 0.05, list(zip(said, heard, strict=True))


def test_of_an_interrupted_reply_as_much_is_heard_as_the_history_keeps(
    interrupted: Talk, recognizer: Recognizer
) -> None:
    (cut,) = interrupted.notices("PlaybackCleared")
    silence = round(interrupted.at("server", "epoch 1") * RATE)
    heard = understood(recognizer, interrupted.agent[:silence])
    kept = plain(cut["text"]).split()
    # A word that was broken off may be heard as some word, but is not in the history.
    words = plain(heard).split()
    assert len(kept) <= len(words) <= len(kept) + 2, (heard, cut["text"])
    assert word_error_rate([cut["text"]], [" ".join(words[: len(kept)])]) <= 0.25, (heard, cut["text"])


def test_what_the_user_said_is_written_down_right(answered: list[Talk], agreed: Talk, interrupted: Talk) -> None:
    said = [clip.text for clip in SHORT_ANSWERS] + [LONG_ANSWER.text] * 2 + [INTERRUPTION.text]
    heard = [text for one in (*answered, agreed, interrupted) for text in one.figures["user"]]
    assert len(heard) == len(said), heard
    assert word_error_rate(said, heard) <= 0.1, list(zip(said, heard, strict=True))


def test_every_answer_has_its_latencies_in_the_order_of_the_stages(
    answered: list[Talk], agreed: Talk, interrupted: Talk
) -> None:
    for one, answers in [*((talk, 1) for talk in answered), (agreed, 1), (interrupted, 2)]:
        assert len(one.figures["latencies"]) == answers
        for latency in one.figures["latencies"]:
            stages = [latency[name] for name in ("words", "first_token", "first_clause", "audio_made", "first_audio")]
            assert None not in stages
            assert stages == sorted(stages)
            assert latency["turn_ended"] is not None


# --- the room's recording and the journal --------------------------------------------------------------------------


def sounding(pcm: Pcm) -> Pcm:
    """The samples without those that are zero, so that two placements can be compared by content."""
    return np.asarray(pcm[pcm != 0], np.int16)


def first_sound(pcm: Pcm) -> int:
    return int(np.nonzero(np.abs(pcm.astype(int)) > 500)[0][0])


def test_an_answer_is_heard_as_it_was_made_sample_by_sample(answered: list[Talk]) -> None:
    for one in answered:
        (made,) = one.generated().values()
        for track in (one.agent, one.track("agent_sent"), one.track("agent_heard")):
            assert np.array_equal(sounding(track), sounding(made))


def test_both_sides_lie_in_the_journal_as_far_apart_as_in_the_room(
    answered: list[Talk], agreed: Talk, interrupted: Talk
) -> None:
    for one in (*answered, agreed, interrupted):
        room = first_sound(one.agent) - first_sound(one.stereo[:, 0])
        journal = first_sound(one.track("agent_heard")) - first_sound(one.track("user_in"))
        assert abs(room - journal) <= LEAD


def test_the_question_lies_in_the_recording_where_the_timeline_says(answered: list[Talk]) -> None:
    for clip, one in zip(SHORT_ANSWERS, answered, strict=True):
        begins = one.at("user", "begins to speak") * RATE
        spoken_at = first_sound(one.stereo[:, 0]) - first_sound(to_wire_rate(clip.pcm, CLIP_RATE))
        assert abs(spoken_at - begins) <= RATE // 1000


def test_an_interrupted_answer_is_heard_up_to_the_cut_in_both(interrupted: Talk) -> None:
    (cut,) = interrupted.notices("PlaybackCleared")
    made = list(interrupted.generated().values())
    assert len(made) == 2
    heard = cut["heard"] // STEP
    assert 0 < heard < len(made[0])
    journal = sounding(interrupted.track("agent_heard"))
    assert np.array_equal(journal, np.concatenate([sounding(made[0][:heard]), sounding(made[1])]))
    room = sounding(interrupted.agent)
    broken_off = len(room) - len(sounding(made[1]))
    assert np.array_equal(room[broken_off:], sounding(made[1]))
    assert np.array_equal(room[:broken_off], sounding(made[0])[:broken_off])
    assert abs(broken_off - len(sounding(made[0][:heard]))) <= LEAD


def test_after_a_backchannel_the_answer_goes_on_without_a_sample_lost_or_repeated(agreed: Talk) -> None:
    (made,) = agreed.generated().values()
    assert np.array_equal(sounding(agreed.agent), sounding(made))
    assert np.array_equal(sounding(agreed.track("agent_heard")), sounding(made))


# --- the timeline --------------------------------------------------------------------------------------------------


def test_the_timeline_of_an_interruption_tells_hold_epoch_cut_and_what_was_heard(interrupted: Talk) -> None:
    (cut,) = interrupted.notices("PlaybackCleared")
    assert interrupted.lines("server", "epoch") == ["epoch 1 (barge_in)"]
    assert interrupted.lines("agent", "cut") == [f'cut at {cut["heard"] // 48} ms; heard: "{cut["text"]}"']
    assert interrupted.lines("agent", "first audio") == ["first audio (epoch 0)", "first audio (epoch 1)"]
    assert interrupted.lines("server", "response") == ["response cancelled", "response completed"]
    assert interrupted.at("server", "hold") <= interrupted.at("server", "epoch 1")
    said = interrupted.figures["agent"]
    assert cut["text"]
    assert said[0].strip().startswith(cut["text"])
    words = "".join(word["text"] for word in _words(interrupted, cut["response"])).strip()
    assert words.startswith(cut["text"])
    assert len(words) > len(cut["text"])


def _words(one: Talk, response: str) -> list[dict[str, Any]]:
    """All words that the engine placed in the audio of `response`."""
    events = [line["event"] for line in lines_of(one.journal) if "event" in line]
    return [
        word
        for event in events
        if event["type"] == "EngineWords" and event["response"] == response
        for word in event["words"]
    ]


def test_an_interruption_is_told_with_its_true_onset(interrupted: Talk) -> None:
    began = [entry["at"] for entry in interrupted.entries if entry["text"] == "begins to speak"][1]
    onset = began + INTERRUPTION.onset / CLIP_RATE
    told = int(interrupted.lines("server", "speech started")[1].split()[3]) / 1000
    assert abs(told - onset) <= 0.15


def test_the_timeline_of_a_backchannel_tells_hold_and_resume_and_no_epoch(agreed: Talk) -> None:
    assert len(agreed.lines("server", "hold")) == 1
    assert len(agreed.lines("server", "resumed")) == 1
    assert agreed.lines("server", "epoch") == []
    assert agreed.lines("agent", "cut") == []
    assert agreed.lines("server", "response") == ["response completed"]
    (response,) = agreed.generated()
    assert agreed.figures["agent"][0].strip() == "".join(word["text"] for word in _words(agreed, response)).strip()


def test_what_is_printed_is_the_timeline_and_where_the_recordings_lie(interrupted: Talk) -> None:
    printed = interrupted.printed.splitlines()
    lines = [Entry(one["at"], one["side"], one["text"]) for one in interrupted.entries]
    assert printed[: len(lines)] == [str(line) for line in lines]
    assert [one["at"] for one in interrupted.entries] == sorted(one["at"] for one in interrupted.entries)
    assert printed[-1] == f"recorded: {interrupted.journal}"


# --- the same again ------------------------------------------------------------------------------------------------


def test_the_journals_re_run_identically(interrupted: Talk, agreed: Talk) -> None:
    for one in (interrupted, agreed):
        command = [sys.executable, "-m", "server.cli", "replay", str(one.journal)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("identical (")


# --- sounds that are none ------------------------------------------------------------------------------------------


def test_a_sound_that_nobody_takes_for_speech_leaves_the_talk_and_its_recording_as_they_are(place: Path) -> None:
    silent = place / "silent.wav"
    soundfile.write(silent, np.zeros(RATE // 2, np.int16), RATE)
    script = place / "script.toml"
    script.write_text("[[reply]]\ntone_hz = 440\nseconds = 2.5\n")
    one = talk(
        place / "unnoticed", SHORT_ANSWERS[0], over=silent, options=("--engine", "scripted", "--script", str(script))
    )
    assert one.lines("server", "hold") == []
    assert one.lines("server", "response") == ["response completed"]
    assert len(sounding(one.agent)) == len(sounding(one.track("agent_generated")))
    assert one.lines("user", "begins") == ["begins to speak"] * 2
