"""The engine, stepped by hand: streams, neighbours, cancels, media, and what is left behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from models.families.qwen3_omni import tiny
from models.families.qwen3_omni.engine import SPARE
from models.families.qwen3_omni.omni import Omni
from models.families.qwen3_omni.prompt import Turn, build
from models.families.qwen3_omni.thinker import Piece, Thinker
from sessions.core.config import SessionConfig
from sessions.core.context import ContextEntry, ContextPart, ImageRef
from sessions.core.effects import GrantCredit
from sessions.core.events import (
    EngineAudio,
    EngineDone,
    EngineDraft,
    EngineFailed,
    EngineStage,
    EngineText,
    EngineWords,
)
from sessions.core.fence import Fence
from sessions.core.timeline import Span
from sessions.ports import Busy
from tests.models.families.qwen3_omni.scene import Scene, png, user

PICTURE = png(96, 64)
REF = ImageRef("d1", "image/png", 96, 64)
SHORT = 12
"""Tokens of an answer that only has to come to its end."""


@pytest.fixture(scope="module")
def omni() -> Omni:
    torch.set_num_threads(1)
    return tiny.random()


def seen(text: str = "what is it", ref: ImageRef = REF) -> ContextEntry:
    return ContextEntry("user", "message", text, parts=(ContextPart(image=ref), ContextPart(text)))


def test_text_and_sound_are_two_streams_each_as_it_comes(omni: Omni) -> None:
    scene = Scene(omni)
    scene.open("s")
    scene.ask("s", "r", user("hello there"))
    scene.run()
    kinds = [type(event) for event, _ in scene.events["s"]]
    stages = [event.stage for event in scene.of("s", EngineStage) if isinstance(event, EngineStage)]
    assert stages == ["first_token", "first_code", "first_audio"]
    assert kinds.index(EngineDraft) < kinds.index(EngineAudio)
    # All of the text is there before all of the sound.
    assert kinds[::-1].index(EngineAudio) < kinds[::-1].index(EngineDraft)
    words = [word for event in scene.of("s", EngineWords) if isinstance(event, EngineWords) for word in event.words]
    assert "".join(word.text for word in words) == scene.text("s") != ""
    ends = [event.end for event in scene.of("s", EngineAudio) if isinstance(event, EngineAudio)]
    assert all(word.end <= ends[-1] for word in words)
    assert np.frombuffer(scene.pcm("s"), "<i2").std() > 500
    (done,) = scene.of("s", EngineDone)
    assert isinstance(done, EngineDone)
    assert (done.reason, done.output_tokens) == ("completed", len(scene.text("s")))
    assert scene.engine.active == scene.engine.rows_busy == 0


def test_a_text_answer_has_no_sound_and_ends_where_the_client_says(omni: Omni) -> None:
    scene = Scene(omni)
    scene.open("s")
    scene.ask("s", "r", user("hello"), modality="text", limit=3)
    scene.run()
    text = "".join(event.text for event in scene.of("s", EngineText) if isinstance(event, EngineText))
    (done,) = scene.of("s", EngineDone)
    assert isinstance(done, EngineDone)
    assert (len(text), done.output_tokens, done.reason) in {(3, 3, "max_output_tokens")}
    assert not scene.of("s", EngineAudio)


def test_a_conversation_that_holds_nothing_yet_is_begun_by_the_agent(omni: Omni) -> None:
    scene = Scene(omni)
    scene.open("s")
    scene.ask("s", "r")
    scene.run()
    assert scene.of("s", EngineDone)
    assert scene.of("s", EngineFailed) == []
    assert scene.pcm("s")


def test_a_session_says_the_same_alone_and_beside_others_that_come_and_go(omni: Omni) -> None:
    alone = Scene(omni)
    alone.open("s")
    alone.ask("s", "r", user("hello there"))
    alone.run()
    crowd = Scene(omni)
    for other in ("x", "y"):
        crowd.open(other)
        crowd.ask(other, "q", user(f"something longer of {other}"))
    for _ in range(5):
        crowd.engine.step()
    crowd.open("s")
    crowd.ask("s", "r", user("hello there"))
    for _ in range(4):
        crowd.engine.step()
    crowd.engine.cancel(crowd.fences["x"], "q")
    crowd.run()
    assert crowd.text("s") == alone.text("s")
    assert crowd.pcm("s") == alone.pcm("s")
    assert crowd.text("y") != alone.text("s")


@pytest.mark.parametrize("steps", [0, 1, 3, 8])
def test_a_cancel_at_any_stage_frees_its_row_within_a_step_and_lets_nothing_more_out(omni: Omni, steps: int) -> None:
    scene = Scene(omni)
    scene.open("s")
    scene.engine.see("s", REF, PICTURE)
    scene.ask("s", "r", seen())
    for _ in range(steps):
        scene.engine.step()
    scene.engine.cancel(scene.fences["s"], "r")
    told = len(scene.events["s"])
    scene.engine.step()
    assert scene.engine.rows_busy == scene.engine.active == 0
    scene.run()
    assert len(scene.events["s"]) == told
    assert scene.engine.counters["responses_stopped"] == 1


def test_a_new_epoch_stops_what_is_older_and_a_stale_request_never_begins(omni: Omni) -> None:
    scene = Scene(omni)
    scene.open("s")
    scene.ask("s", "r", user("hello"))
    for _ in range(4):
        scene.engine.step()
    scene.engine.advance(Fence("s", 1, 1))
    told = len(scene.events["s"])
    scene.ask("s", "late", user("hello"))
    scene.run()
    assert len(scene.events["s"]) == told
    assert scene.engine.counters["requests_stale"] == 1


def soak(omni: Omni, outputs: int) -> tuple[int, int]:
    """Answers cut at random moments until so many outputs were told; returns how many, and how many after their cut."""
    scene = Scene(omni)
    dice = np.random.default_rng(5)
    cut: set[str] = set()
    late = told = 0
    sessions = ("a", "b", "c")

    def emit(event: object, pcm: bytes | None = None) -> None:
        nonlocal told, late
        told += 1
        late += getattr(event, "response", "") in cut

    live: dict[str, tuple[str, Fence]] = {}
    for session in sessions:
        scene.engine.open(Fence(session, 1, 0), SessionConfig(), emit)
        scene.fences[session] = Fence(session, 1, 0)
    number = 0
    while told < outputs:
        for session in sessions:
            if session not in live:
                number += 1
                response = f"r{number}"
                scene.ask(session, response, user(f"say {number}"))
                live[session] = (response, scene.fences[session])
            elif dice.random() < 0.1:
                response, fence = live.pop(session)
                cut.add(response)
                if dice.random() < 0.5:
                    scene.engine.cancel(fence, response)
                else:
                    scene.fences[session] = Fence(session, 1, fence.epoch + 1)
                    scene.engine.advance(scene.fences[session])
        scene.engine.step()
    return told, late


def test_nothing_of_a_cut_answer_is_told(omni: Omni) -> None:
    assert soak(omni, 150)[1] == 0


@pytest.mark.wide
def test_nothing_of_a_cut_answer_is_told_in_ten_thousand_outputs(omni: Omni) -> None:
    told, late = soak(omni, 10_000)
    assert told >= 10_000
    assert late == 0


def test_credit_bounds_the_sound_and_more_of_it_goes_on_at_the_next_sample(omni: Omni) -> None:
    free, bounded = Scene(omni), Scene(omni)
    for scene in (free, bounded):
        scene.open("s")
    free.ask("s", "r", user("hello there"))
    free.run()
    bounded.ask("s", "r", user("hello there"), credit=9_600)
    for _ in range(60):
        bounded.engine.step()
    assert len(bounded.pcm("s")) // 2 * 2 <= 9_600
    for until in range(20_000, 1_500_000, 40_000):
        bounded.engine.grant(GrantCredit(bounded.fences["s"], "r", until))
        for _ in range(12):
            bounded.engine.step()
    assert bounded.pcm("s") == free.pcm("s")
    assert bounded.of("s", EngineDone)


def test_the_second_mention_of_an_image_is_served_by_what_was_made_for_this_tenant_and_no_other(omni: Omni) -> None:
    scene = Scene(omni)
    for session, tenant in (("s", "one"), ("t", "one"), ("u", "two")):
        scene.open(session, tenant)
        scene.engine.see(session, REF, PICTURE)
    encoded = []
    for session, response in (("s", "r1"), ("s", "r2"), ("t", "r3"), ("u", "r4")):
        scene.ask(session, response, seen(), modality="text")
        scene.run()
        stages = [event for event in scene.of(session, EngineStage) if isinstance(event, EngineStage)]
        encoded.append(any(stage.response == response and stage.stage == "features" for stage in stages))
    assert encoded == [True, False, False, True]
    assert scene.engine.features.hits == 2
    assert scene.engine.features.entries == 2


def test_speech_of_the_input_track_is_heard_and_where_it_is_gone_its_words_are_read(omni: Omni) -> None:
    said = []
    for loud in (3000, 3000, 300, None):
        scene = Scene(omni)
        scene.open("s")
        if loud is not None:
            pcm = (np.random.default_rng(3).normal(0, loud, 24_000)).astype("<i2").tobytes()
            scene.engine.append("s", 0, pcm, 24_000)
        part = ContextPart("its words", Span(4_800, 43_200))
        scene.ask("s", "r", ContextEntry("user", "message", "its words", parts=(part,)), modality="text")
        scene.run()
        (done,) = scene.of("s", EngineDone)
        assert isinstance(done, EngineDone)
        lost = scene.engine.counters.get("media_lost", 0)
        said.append((done.input_tokens, lost, [str(event) for event in scene.of("s", EngineText)]))
    assert said[0] == said[1]
    assert said[2][2] != said[0][2]
    assert [lost for _, lost, _ in said] == [0, 0, 0, 1]
    assert said[3][0] != said[0][0]


@pytest.mark.parametrize(
    ("data", "code"), [(None, "image_gone"), (b"\x89PNG\r\n\x1a\n nothing more", "image_not_decodable")]
)
def test_an_image_that_cannot_be_used_fails_its_answer_by_name_and_the_session_goes_on(
    omni: Omni, data: bytes | None, code: str
) -> None:
    scene = Scene(omni)
    scene.open("s")
    if data is not None:
        scene.engine.see("s", REF, data)
    scene.ask("s", "r", seen())
    scene.run()
    (failed,) = scene.of("s", EngineFailed)
    assert isinstance(failed, EngineFailed)
    assert failed.code == code
    # It stays in the history and stands in nobody's way, until the client sends it again.
    scene.ask("s", "again", seen("and now?"))
    scene.run()
    assert len(scene.of("s", EngineDone)) == 1
    assert scene.engine.counters["media_lost"] == 1
    scene.engine.see("s", REF, PICTURE)
    scene.ask("s", "seen", seen("and now?"))
    scene.run()
    assert len(scene.of("s", EngineDone)) == 2
    assert scene.engine.counters["media_lost"] == 1


def test_a_turn_that_is_longer_than_the_model_is_refused_and_old_ones_are_left_out(omni: Omni) -> None:
    small = replace(omni, shape=replace(omni.shape, cells=128))
    scene = Scene(small)
    scene.open("s")
    scene.ask("s", "long", user("x" * 200))
    scene.run()
    (failed,) = scene.of("s", EngineFailed)
    assert isinstance(failed, EngineFailed)
    assert failed.code == "context_too_long"
    scene.ask("s", "old", user("x" * 200), ContextEntry("assistant", "message", "y"), user("short"), modality="text")
    scene.run()
    (done,) = scene.of("s", EngineDone)
    assert isinstance(done, EngineDone)
    assert done.input_tokens < 64


def test_one_session_too_many_is_told_so_and_a_closed_one_leaves_nothing(omni: Omni) -> None:
    scene = Scene(omni, sessions=2)
    scene.open("a")
    scene.open("b")
    with pytest.raises(Busy):
        scene.open("c")
    scene.ask("a", "r", user("hello"))
    for _ in range(5):
        scene.engine.step()
    scene.engine.close("a")
    scene.run()
    assert scene.engine.rows_busy == scene.engine.active == 0
    for again in range(5 * (2 + SPARE)):
        scene.open("c")
        scene.ask("c", f"r{again}", user("hi"), modality="text", limit=1)
        scene.run()
        assert len(scene.of("c", EngineDone)) == 1
        scene.engine.close("c")
        scene.engine.step()


def test_it_tells_how_full_it_is_and_what_a_row_held_already(omni: Omni) -> None:
    scene = Scene(omni, sessions=2)
    empty = scene.engine.occupancy
    assert (empty.slots, empty.busy) == (2 + SPARE, 0)
    assert {stage: kv.held for stage, kv in empty.kv.items()} == {"thinker": 0, "talker": 0}
    scene.open("s")
    scene.ask("s", "r", user("hello"), limit=SHORT)
    assert scene.engine.occupancy.queues["media_replies"] == 1
    for _ in range(6):
        scene.engine.step()
    at_work = scene.engine.occupancy
    assert at_work.busy == 1
    assert all(0 < kv.held < kv.positions and kv.bytes > 0 for kv in at_work.kv.values())
    scene.run()
    said = ContextEntry("assistant", "message", scene.text("s"))
    scene.ask("s", "again", user("hello"), said, user("and"), limit=SHORT)
    scene.run()
    after = scene.engine.occupancy
    assert after.busy == 0
    assert after.caches["kv"].hits > 0
    assert after.caches["kv"].misses > 0
    assert after.queues["tokens"] == after.queues["frames"] == 0


def test_numbers_that_are_not_finite_end_one_answer_and_not_the_row(omni: Omni) -> None:
    scene = Scene(omni)
    for session in ("s", "t"):
        scene.open(session)
        scene.ask(session, "r", user(f"hello {session}"), limit=SHORT)
    for _ in range(3):
        scene.engine.step()
    row = next(reply.row for reply in scene.engine._live if reply.request.fence.session == "s")
    scene.engine._thinker._cache._values[0][row] = torch.nan
    scene.run()
    (failed,) = scene.of("s", EngineFailed)
    assert isinstance(failed, EngineFailed)
    assert failed.code == "engine_failed"
    assert scene.of("t", EngineDone)
    scene.ask("s", "again", user("hello s"))
    scene.run()
    assert scene.of("s", EngineDone)


@torch.inference_mode()
def test_what_is_kept_of_a_history_is_its_common_beginning_and_reads_on_as_if_read_anew(omni: Omni) -> None:
    first = build(omni, "be brief", [Turn("user", ("hello there",))], 500)
    cut = build(
        omni, "be brief", [Turn("user", ("hello there",)), Turn("assistant", ("hm",)), Turn("user", ("no",))], 500
    )
    assert first is not None
    assert cut is not None
    thinker = Thinker(omni, 2, 128)
    thinker.read([Piece(0, first, 0, len(first))])
    thinker.next_tokens(torch.tensor([104, 0]), [0])
    thinker.next_tokens(torch.tensor([109, 0]), [0])
    kept = thinker.rewind(0, cut)
    assert kept == len(first) + 2
    rewound = thinker.read([Piece(0, cut, kept, len(cut))])
    anew = thinker.read([Piece(1, cut, 0, len(cut))])
    torch.testing.assert_close(rewound, anew, atol=1e-4, rtol=0)
