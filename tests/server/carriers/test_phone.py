"""A call's carrier on a virtual clock: flush, hold, marks, pacing, a peer that does not read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np

from server.phone_peers import AsteriskPeer, AudioSocketPeer, Mark, Pause, TwilioPeer, VendorPeer, VonagePeer
from sessions.core.timeline import from_ms
from sessions.virtual_clock import run
from tests.server.telephony.scene import Scene


def played(peer: VendorPeer, act: Callable[[Scene], Awaitable[None]], **options: object) -> Scene:
    """A call in which `act` happens."""

    async def main() -> Scene:
        async with Scene(peer, **options) as scene:  # type: ignore[arg-type]
            await act(scene)
        return scene

    return run(main())


def exact_peer() -> VonagePeer:
    """PCM at the engine's own rate: each sample says which one it is."""
    peer = VonagePeer()
    peer.rate = 24_000
    return peer


def test_what_is_heard_after_a_clear_is_the_next_answer_from_its_first_sample_on() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(1.3)
        await scene.say(0.4)
        await scene.quiet(2.0)

    scene = played(exact_peer(), act)
    [cleared] = scene.clears()
    after = np.concatenate([one.pcm for at, one in scene.sounds() if at >= cleared])
    assert after[:100].tolist() == list(range(100))
    assert np.array_equal(after, np.arange(len(after)) % 32768)
    assert scene.count("stale_at_gate") == 0


def test_the_vendors_buffer_is_never_deeper_than_the_lead() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(5.0)

    for delay in (0.0, 0.08):
        assert played(TwilioPeer(), act, delay=delay).playout.deepest_ms <= 200


def test_the_history_ends_where_the_ear_was_by_the_marks_that_came_back() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(1.5)
        await scene.say(0.3)
        await scene.quiet(0.1)
        scene.items = list(scene.handle._runner._core.state.conversation.items)  # type: ignore[attr-defined]

    delay = 0.08
    scene = played(exact_peer(), act, delay=delay)
    # The ear: what was played when the clear arrived. The core knew what the marks told it, which is as old as their
    # way back, and the clear had its way to go.
    ear = sum(int(np.count_nonzero(piece)) for piece in scene.playout.played)
    item = next(one for one in scene.items if one.role == "assistant")  # type: ignore[attr-defined]
    assert item.heard is not None
    assert abs(item.heard / 2 - ear) <= 24_000 * (2 * delay + 0.05)
    assert item.heard <= item.sent


def test_marks_that_return_after_our_clear_are_counted_and_not_believed() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(1.2)
        await scene.say(0.4)
        await scene.quiet(0.5)

    scene = played(TwilioPeer(), act, delay=0.15)
    assert scene.count("marks_after_clear") >= 1
    assert scene.count("bad_playback_report") == scene.count("unknown_marks") == 0


def test_a_vendor_that_can_pause_is_paused_in_a_hold_and_goes_on_without_a_gap_in_what_is_said() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(1.0)
        await scene.say(0.1)
        await scene.quiet(1.5)

    scene = played(AsteriskPeer(media="slin24"), act)
    pauses = [one.on for _, one in scene.line.happened if isinstance(one, Pause)]
    assert pauses == [True, False]
    heard = np.concatenate(scene.playout.played)
    said = heard[heard != 0]
    counted = np.arange(2 * len(said)) % 32768
    assert np.array_equal(said, counted[counted != 0][: len(said)])


def test_a_full_queue_of_the_vendor_stops_the_audio_until_it_takes_more() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(0.5)
        scene.line.give(json.dumps({"event": "MEDIA_XOFF"}))
        await scene.quiet(0.5)
        scene.xoff = len(scene.sounds())  # type: ignore[attr-defined]
        await scene.quiet(0.5)
        scene.still = len(scene.sounds())  # type: ignore[attr-defined]
        scene.line.give(json.dumps({"event": "MEDIA_XON"}))
        await scene.quiet(0.5)

    scene = played(AsteriskPeer(), act)
    assert scene.xoff == scene.still < len(scene.sounds())  # type: ignore[attr-defined]


def test_audiosocket_gets_20_ms_each_20_ms_and_nothing_in_a_hold() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(1.0)
        await scene.say(0.4)
        await scene.quiet(0.2)

    scene = played(AudioSocketPeer(rate=24_000), act)
    times = [at for at, one in scene.sounds() if np.any(one.pcm)]
    gaps = np.diff(times)
    assert np.allclose(gaps, 0.02, atol=0.0011)
    [began] = scene.said
    assert times[-1] <= began + 0.041
    assert scene.count("interruptions") == 1


def test_a_line_without_room_tells_the_session_and_the_clear_goes_out_all_the_same() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(0.5)
        scene.line.free.clear()
        await scene.quiet(0.4)
        await scene.say(0.3)

    scene = played(TwilioPeer(), act)
    assert len(scene.clears()) == 1


def test_a_peer_that_takes_nothing_at_all_is_given_up() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(0.3)
        scene.line.left = 1 << 20
        await scene.say(0.4)

    assert (1013, "slow_consumer") in played(TwilioPeer(), act).line.closed


def test_nothing_is_said_on_the_line_of_a_caller_who_has_hung_up() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(0.5)
        for message in scene.peer.end():
            scene.line.give(message)
        await asyncio.sleep(0)
        said.append(len(scene.line.sent))
        await scene.running

    said: list[int] = []
    scene = played(TwilioPeer(), act)
    assert said == [len(scene.line.sent)]
    assert scene.clears() == []


def test_pressed_keys_reach_the_conversation_and_may_take_the_floor() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(0.6)
        scene.line.give(scene.peer.press("1"))
        await scene.quiet(0.2)

    config = Scene(TwilioPeer()).config
    assert played(TwilioPeer(), act).clears() == []
    assert len(played(TwilioPeer(), act, config=replace(config, keys_interrupt=True)).clears()) == 1


def test_every_mark_is_behind_the_audio_that_it_stands_for() -> None:
    async def act(scene: Scene) -> None:
        await scene.quiet(7.0)

    scene = played(TwilioPeer(), act)
    marks = [one.name for _, one in scene.line.happened if isinstance(one, Mark)]
    assert len(marks) == len(set(marks)) >= 30
    assert isinstance(scene.line.happened[-1][1], Mark)
    assert all(name.startswith("0.") for name in marks)
    assert from_ms(6000) // 960 == len(scene.sounds())
