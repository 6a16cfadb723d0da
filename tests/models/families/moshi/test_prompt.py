"""PersonaPlex's prompts: what is given before a conversation is as if the agent had said and thought it itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from codec.mimi.config import MimiConfig
from codec.mimi.model import Mimi
from models.families.moshi.checkpoint import CONFIG_FILE, TOKENIZER_FILE, LoadedMoshi, Placement, load
from models.families.moshi.config import TINY, MoshiConfig
from models.families.moshi.engine import engine_of
from models.families.moshi.errors import VoiceUnfit
from models.families.moshi.language import MoshiLM
from models.families.moshi.prompt import VOICES, framed, prompts_of
from models.families.moshi.slots import MoshiSlots, Sampling
from models.slots.duplex import DuplexEngine
from models.slots.engine import Forced, PromptRefused
from models.slots.mimi import MimiSlots
from models.slots.model import StepInput, StepOutput
from sessions.core.config import SessionConfig
from sessions.core.events import DuplexFrame, EngineFailed, Event
from sessions.core.fence import Fence
from sessions.core.timeline import from_ms
from tests.models.families.moshi import published
from tests.models.families.moshi.building import CONFIG, HOP, begin, build, give, user_audio, weights

FRAME = from_ms(80)
PERSONA = {**TINY, "model_type": "personaplex", "dep_q": 16, "context": 240}
GREEDY = Sampling(temperature=0, text_temperature=0)


def forced(model: MoshiSlots, slot: int, frame: Forced) -> StepOutput:
    """One step in which only `slot` runs, and is given everything."""
    run = torch.arange(model.batch) == slot
    codes = torch.tensor(frame.heard).expand(model.batch, -1).contiguous()
    said = torch.tensor(frame.said).expand(model.batch, -1).contiguous()
    text = torch.full((model.batch,), frame.text)
    nobody = torch.zeros_like(run)
    return model.step(StepInput(run, nobody, torch.zeros(model.batch, HOP), codes, nobody, run, text, said))


def test_being_given_what_it_said_itself_leaves_it_where_it_stood() -> None:
    """The one slot talks freely; the other is given its frames, and from then on both say the same."""
    given = 12
    free, told = build(2, sampling=GREEDY), build(2, sampling=GREEDY)
    begin(free, 1, 1)
    begin(told, 2, 2)
    pcm = user_audio(given + 10, 5)[:, None].expand(-1, 2, -1)
    outputs = [give(free, frame) for frame in pcm]
    texts = torch.stack([output.text[0] for output in outputs[1:given]])
    assert len(set(texts.tolist())) > 3
    # A frame is complete a step after its own; the first of a stream is what begins it, whatever is given.
    for number in range(given):
        own = outputs[number]
        said = own.said[0].tolist() if number else [0] * 8
        out = forced(told, 1, Forced(int(own.text[0]) if number else 0, tuple(said), tuple(own.heard[0].tolist())))
        # Nobody hears it, and the neighbour stands still.
        assert out.said[1].tolist() == [-1] * 8
        assert not out.pcm.any()
    assert told.streams.position.tolist() == [0, given]
    for number in range(given, given + 10):
        replayed = torch.stack([output.heard[0] for output in outputs])[number].expand(2, -1).contiguous()
        out = give(told, torch.zeros(2, HOP), run=torch.tensor([False, True]), codes=replayed)
        assert torch.equal(out.said[1], outputs[number].said[0])
        assert out.text[1] == outputs[number].text[0]


def test_a_prompt_changes_what_is_said_and_a_reset_forgets_it() -> None:
    model = build(1, sampling=GREEDY)
    pcm = user_audio(8, 3)[:, None]

    def say(prompt: list[Forced]) -> list[list[int]]:
        begin(model, 1)
        for frame in prompt:
            forced(model, 0, frame)
        return [give(model, frame).said[0].tolist() for frame in pcm][1:]

    plain = say([])
    prompted = say([Forced(9, (5,) * 8, (7,) * 8)] * 6)
    assert prompted != plain
    assert say([Forced(8, (5,) * 8, (7,) * 8)] * 6) != prompted
    assert say([]) == plain


# --- the frames of a prompt -------------------------------------------------------------------------------------------


def letters(text: str) -> tuple[int, ...]:
    return tuple(4 + ord(letter) % 60 for letter in text)


def test_voice_pause_role_and_pause_follow_one_another_under_a_tone() -> None:
    _, mimi = weights()
    voice = np.random.default_rng(0).normal(0, 0.1, 5 * HOP + 100).astype(np.float32)
    prompts = prompts_of(MoshiConfig.read(PERSONA), mimi, letters, {"anna": voice})
    assert prompts.names == ("default", "anna")
    frames = prompts(SessionConfig(voice="anna", instructions=" Hi. "))
    text = letters("<system> Hi. <system>")
    pause = round(0.5 * 24_000 / HOP)
    assert [frame.text for frame in frames] == [3] * (5 + pause) + list(text) + [3] * pause
    encoded = mimi.encode(torch.from_numpy(voice[: 5 * HOP])[None])[0].T.tolist()
    assert [list(frame.said) for frame in frames[:5]] == encoded
    assert {frame.said for frame in frames[5:]} == {prompts.silence}
    assert {frame.heard for frame in frames} == {prompts.tone} != {prompts.silence}
    only_text = prompts(SessionConfig(voice="default", instructions="Hi."))
    assert [frame.text for frame in only_text] == [3] * pause + list(text) + [3] * pause
    assert len(prompts(SessionConfig(voice="anna"))) == 5 + pause
    assert prompts(SessionConfig()) == ()
    assert framed("  ") == ""


def test_instructions_that_would_fill_the_window_are_refused_with_the_room_there_is() -> None:
    _, mimi = weights()
    prompts = prompts_of(CONFIG, mimi, letters, {})
    with pytest.raises(
        PromptRefused, match=r"are 58 tokens long; with this voice the model reads at most 21"
    ) as refused:
        prompts(SessionConfig(instructions="x" * 40))
    assert refused.value.code == "instructions_too_long"


# --- a checkpoint of that kind ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = MoshiConfig.read(PERSONA)
    lm, mimi = MoshiLM.random(config, seed=1), Mimi.random(MimiConfig.tiny(), seed=2)
    folder = published.write(tmp_path_factory.mktemp("persona"), lm, mimi, PERSONA)
    published.save(folder / "model.safetensors", published.guessing(published.native(lm), 8))
    (folder / VOICES).mkdir()
    for name, seconds, rate in (("anna", 1.2, 48_000), ("ben", 1.5, 16_000)):
        samples = np.random.default_rng(rate).normal(0, 0.1, round(seconds * rate))
        soundfile.write(folder / VOICES / f"{name}.wav", samples, rate, subtype="PCM_16")
    sentencepiece = pytest.importorskip("sentencepiece")
    (folder / "text").write_text("we said hello and then we said goodbye\nhello to all that we have said\n" * 50)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=60, model_type="bpe",
        character_coverage=1.0, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    (folder / "m.model").rename(folder / TOKENIZER_FILE)
    return folder


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedMoshi:
    return load(folder, Placement(slots=2, margin=25))


class Room:
    """An engine that is ticked by hand, and what its sessions were told."""

    def __init__(self, loaded: LoadedMoshi) -> None:
        self.engine: DuplexEngine = engine_of(loaded, worker=False)
        self.told: dict[str, list[Event]] = {}
        self.pcm: dict[str, bytes] = {}

    def open(self, session: str, **fields: str) -> None:
        told = self.told.setdefault(session, [])

        def tell(event: Event, pcm: bytes | None = None) -> None:
            told.append(event)
            self.pcm[session] = self.pcm.get(session, b"") + (pcm or b"")

        self.engine.open(Fence(session, 1, 0), SessionConfig(**fields), tell)  # type: ignore[arg-type]

    def talk(self, session: str, first: int, frames: int) -> None:
        for number in range(first, first + frames):
            pcm = np.random.default_rng(number).normal(0, 3000, HOP).astype("<i2").tobytes()
            self.engine.append(session, number * FRAME, pcm, 24_000)
            self.engine.tick()

    def speaking(self, session: str) -> list[int]:
        """Frames in which it speaks, by their place."""
        frames = [event for event in self.told[session] if isinstance(event, DuplexFrame)]
        assert [frame.start for frame in frames] == [number * FRAME for number in range(len(frames))]
        return [number for number, frame in enumerate(frames) if frame.speaking]


def test_the_capability_is_read_from_the_configuration(folder: Path, loaded: LoadedMoshi) -> None:
    assert MoshiConfig.read(PERSONA).prompted
    assert not MoshiConfig.read(TINY).prompted
    whole = MoshiConfig.read({"model_type": "personaplex", "version": "7b-v1"})
    assert (whole.temporal.dimension, whole.agent, whole.user, whole.prompted) == (4096, 8, 8, True)
    assert engine_of(loaded, worker=False).capabilities.voices == ("default", "anna", "ben")
    path = folder / CONFIG_FILE
    before = path.read_text()
    fields = json.loads(before)
    try:
        path.write_text(json.dumps({**fields, "model_type": "moshi"}))
        assert load(folder, Placement(slots=1)).prompts is None
    finally:
        path.write_text(before)


def test_each_session_is_prepared_as_it_is_configured_and_does_not_listen_meanwhile(loaded: LoadedMoshi) -> None:
    room = Room(loaded)
    room.open("plain")
    room.open("anna", voice="anna", instructions="we said hello")
    room.talk("plain", 0, 4)
    room.talk("anna", 0, 8)
    assert min(room.speaking("plain")) == 1
    # 15 frames of voice, two pauses, and the text, thirteen steps a tick; then its first frame can be heard at once.
    counters = room.engine.counters
    assert counters["frames_prompted"] > 15 + 2 * 6
    assert "frames_unready" not in counters
    assert 0 in room.speaking("anna")


def test_what_is_said_before_it_is_ready_is_answered_with_silence(loaded: LoadedMoshi) -> None:
    room = Room(loaded)
    room.open("anna", voice="anna")
    for number in range(3):
        room.engine.append("anna", number * FRAME, bytes(2 * HOP), 24_000)
    room.engine.tick()
    room.engine.tick()
    room.talk("anna", 3, 4)
    assert room.engine.counters["frames_unready"] == 3
    assert min(room.speaking("anna")) >= 3
    assert not any(room.pcm["anna"][: 3 * 2 * HOP])


def test_the_same_persona_says_the_same_again_and_another_something_else(loaded: LoadedMoshi) -> None:
    def say(**fields: str) -> bytes:
        room = Room(loaded)
        room.open("s", **fields)
        for _ in range(6):
            room.engine.tick()
        room.talk("s", 0, 4)
        assert not [event for event in room.told["s"] if isinstance(event, EngineFailed)]
        return room.pcm["s"]

    anna = say(voice="anna", instructions="we said hello")
    assert anna == say(voice="anna", instructions="we said hello")
    others = {
        say(voice="ben", instructions="we said hello"),
        say(voice="anna", instructions="goodbye to all that then"),
        say(),
    }
    assert len(others | {anna}) == 4


def test_a_session_that_is_configured_after_it_began_is_prepared_anew_until_it_spoke(loaded: LoadedMoshi) -> None:
    room = Room(loaded)
    room.open("s", instructions="we said hello")
    for _ in range(3):
        room.engine.tick()
    once = room.engine.counters["frames_prompted"]
    room.open("s", instructions="goodbye to all that then")
    for _ in range(3):
        room.engine.tick()
    assert room.engine.counters["frames_prompted"] > once
    room.talk("s", 0, 5)
    fresh = Room(loaded)
    fresh.open("s", instructions="goodbye to all that then")
    for _ in range(3):
        fresh.engine.tick()
    fresh.talk("s", 0, 5)
    assert room.pcm["s"] == fresh.pcm["s"]
    assert room.speaking("s")
    room.open("s", instructions="hello to all")
    assert room.engine.counters["prompts_late"] == 1


def test_instructions_that_cannot_be_read_end_the_session_by_name(folder: Path, loaded: LoadedMoshi) -> None:
    room = Room(loaded)
    room.open("s", instructions="we have said that " * 20)
    (failed,) = room.told["s"]
    assert isinstance(failed, EngineFailed)
    assert failed.code == "instructions_too_long"
    assert room.engine.active == 0
    tokenizer = folder / TOKENIZER_FILE
    kept = tokenizer.read_bytes()
    tokenizer.unlink()
    try:
        deaf = Room(load(folder, Placement(slots=1, margin=25)))
    finally:
        tokenizer.write_bytes(kept)
    deaf.open("s", instructions="we said hello")
    (failed,) = deaf.told["s"]
    assert isinstance(failed, EngineFailed)
    assert failed.code == "instructions_unsupported"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"no audio"), "cannot be read as audio"),
        (lambda path: soundfile.write(path, np.zeros(800), 8000), r"is 0\.1 s long"),
        (lambda path: soundfile.write(path, np.zeros(8000 * 31), 8000), r"is 31\.0 s long"),
    ],
    ids=["no audio", "too short", "too long"],
)
def test_a_voice_that_cannot_be_used_is_refused_by_its_file(
    make: Callable[[Path], object], message: str, folder: Path
) -> None:
    path = folder / VOICES / "bad.wav"
    make(path)
    try:
        with pytest.raises(VoiceUnfit, match=message):
            load(folder, Placement(slots=1))
    finally:
        path.unlink()


def test_a_model_that_was_not_taught_prompts_takes_any_configuration() -> None:
    lm, mimi = weights()
    plain = LoadedMoshi(MoshiSlots(lm, MimiSlots(mimi, 1, margin=25), 1, margin=25), Silent)
    room = Room(plain)
    room.open("s", instructions="we said hello")
    room.talk("s", 0, 3)
    assert "frames_prompted" not in room.engine.counters
    assert len(room.told["s"]) == 3


class Silent:
    """No text."""

    def feed(self, token: int) -> str:
        return ""
