"""Calls over the application as it is, HTTP and peer connections on loopback; engine and perception are played."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from aiortc import RTCPeerConnection
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.carriers.webrtc.events import MAX_MESSAGE
from tests.caller import Caller, CallRefused, Json
from tests.freed import Freed, no_collector
from tests.server.serving import API_KEY, Served, served
from tests.sessions.fakes import CountingEngine

PUSH_TO_TALK = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
NOTICES = {**PUSH_TO_TALK, "x_talkover": {"notices": True}}


@asynccontextmanager
async def called(
    place: Served, session: Json | None = None, key: str | None = None, **options: Any
) -> AsyncIterator[Caller]:
    """One call to `place`, and nothing of it after the block."""
    caller = Caller(**options)
    try:
        async with place.http(key) as http:
            await caller.call(http, session)
        yield caller
    finally:
        await caller.close()


async def gone(place: Served) -> None:
    """Until no call and no session is left."""
    manager = place.app.manager
    assert manager is not None
    async with asyncio.timeout(20):
        await place.app.calls.close()
    assert len(place.app.calls) == len(manager) == 0


def loudness(pcm: bytes) -> float:
    return float(np.abs(np.frombuffer(pcm, dtype="<i2").astype(float)).mean())


# --- a call --------------------------------------------------------------------------------------------------------


async def test_a_spoken_question_is_answered_on_the_track_and_in_events() -> None:
    engine = CountingEngine(seconds=0.6, delay=0.0)
    async with served(engine) as place, called(place) as caller:
        created = await caller.event("session.created")
        assert caller.events[0] is created
        await caller.speak(b"\x00\x20\x00\xe0" * 160 * 25)
        await caller.speak(bytes(640 * 35))
        await caller.event("input_audio_buffer.speech_started")
        await caller.event("input_audio_buffer.committed")
        await caller.event("output_audio_buffer.started")
        stopped = await caller.event("output_audio_buffer.stopped")
        done = await caller.event("response.done")
        assert done["response"]["status"] == "completed"
        assert stopped["response_id"] == done["response"]["id"]
        said = [one for one in caller.events if one["type"] == "response.output_audio_transcript.delta"]
        assert "".join(one["delta"] for one in said) == " w0 w1 w2"
        assert not [one for one in caller.events if one["type"] == "response.output_audio.delta"]
        assert loudness(caller.heard()) > 300


async def test_packets_leave_each_twenty_ms_from_the_beginning_on() -> None:
    async with served() as place, called(place, PUSH_TO_TALK) as caller:
        await caller.until(lambda: len(caller.packets) >= 30)
        sequence = [packet.sequence for packet in caller.packets]
        assert sequence == [(sequence[0] + index) & 0xFFFF for index in range(len(sequence))]
        stamps = [packet.timestamp for packet in caller.packets]
        steps = {(after - before) % (1 << 32) for before, after in pairwise(stamps)}
        assert min(steps) == 960
        assert all(step % 960 == 0 for step in steps)


async def test_what_the_user_says_reaches_the_session_whole_and_at_its_time() -> None:
    async with served() as place, called(place, PUSH_TO_TALK) as caller:
        await caller.event("session.created")
        for _ in range(25):
            caller.send_sound(b"\x00\x20\x00\xe0" * 160)
        manager = place.app.manager
        assert manager is not None
        perception = manager.perception
        fed = perception.fed  # type: ignore[attr-defined]
        session = next(iter(fed))
        await caller.until(lambda: sum(len(pcm) for _, pcm, _ in fed[session]) >= 25 * 640)
        assert fed[session][0][2] == 16_000
        starts = [start for start, _, _ in fed[session]]
        assert starts == [960 * index for index in range(len(starts))]


async def test_a_cut_is_followed_by_silence_without_a_pause_and_told_on_both_channels() -> None:
    engine = CountingEngine(seconds=5.0, delay=0.0)
    async with served(engine) as place, called(place, NOTICES) as caller:
        caller.say({"type": "response.create"})
        await caller.until(lambda: len(caller.packets) > 40)
        caller.report({"rtp": None, "at_ms": 1.5})
        await caller.until(lambda: bool(caller.reports))
        assert caller.reports[-1] == {"at_ms": 1.5, "epoch": 0, "mute_until_rtp": None}
        caller.say({"type": "response.cancel"})
        cleared = await caller.event("x_talkover.playback_cleared")
        mute = await caller.event("x_talkover.mute")
        await caller.until(lambda: caller.reports[-1]["epoch"] == 1)
        edge = caller.reports[-1]["mute_until_rtp"]
        assert (mute["epoch"], mute["mute_until_rtp"]) == (1, edge)
        await caller.until(lambda: (caller.packets[-1].timestamp - edge) % (1 << 32) in range(9600, 1 << 31))
        after = [one for one in caller.packets if (one.timestamp - edge) % (1 << 32) < 1 << 31]
        before = caller.packets[: len(caller.packets) - len(after)]
        assert after[0].timestamp == edge
        assert {one.payload for one in after} == {b"\xd8\xff\xfe"}
        assert before[-1].payload != b"\xd8\xff\xfe"
        assert 0 < cleared["heard"] <= len(before) * 960
        assert place.app.counters["stale_at_gate"] == 0


async def test_reports_of_the_page_are_what_the_heard_position_rests_on() -> None:
    engine = CountingEngine(seconds=5.0, delay=0.0)
    async with served(engine) as place, called(place, NOTICES) as caller:
        caller.say({"type": "response.create"})
        await caller.until(lambda: len(caller.sounding) > 30)
        tenth = caller.sounding[10]
        caller.report({"rtp": tenth.timestamp, "at_ms": 100})
        await caller.until(lambda: bool(caller.reports))
        caller.say({"type": "response.cancel"})
        cleared = await caller.event("x_talkover.playback_cleared")
        assert cleared["heard_by"] == "report"
        # Ten packets, less what the timestamp leads by; what has passed since the report is added.
        assert 10 * 960 - 480 <= cleared["heard"] <= 10 * 960 - 480 + 4800
        assert place.app.counters["bad_playback_report"] == 0


async def test_late_reports_and_those_of_the_last_epoch_change_nothing() -> None:
    engine = CountingEngine(seconds=5.0, delay=0.0)
    async with served(engine) as place, called(place, NOTICES) as caller:
        caller.say({"type": "response.create"})
        await caller.until(lambda: len(caller.sounding) > 30)
        sounding = caller.sounding
        caller.report({"rtp": sounding[20].timestamp, "at_ms": 200})
        caller.report({"rtp": sounding[5].timestamp, "at_ms": 100})
        await caller.until(lambda: len(caller.reports) == 2)
        caller.say({"type": "output_audio_buffer.clear"})
        await caller.event("output_audio_buffer.cleared")
        caller.report({"rtp": sounding[25].timestamp, "at_ms": 300})
        await caller.until(lambda: len(caller.reports) >= 4)
        assert place.app.counters["bad_playback_report"] == 0


JUNK_REPORTS: tuple[str | bytes, ...] = (
    "nonsense",
    "[]",
    "null",
    '{"rtp": -1, "at_ms": 1}',
    '{"rtp": 1.5, "at_ms": 1}',
    '{"rtp": true, "at_ms": 1}',
    '{"rtp": 4294967296, "at_ms": 1}',
    '{"rtp": 1}',
    '{"rtp": 1, "at_ms": "now"}',
    '{"rtp": 1, "at_ms": 1e999}',
    "[" * 1000,
    " " * 2000,
    b"\x00\xff",
)


async def test_junk_on_the_playback_channel_is_counted_and_the_call_goes_on() -> None:
    async with served() as place, called(place, PUSH_TO_TALK) as caller:
        for number, junk in enumerate(JUNK_REPORTS):
            caller.report(junk)
            caller.report({"at_ms": number})
            await caller.until(lambda number=number: bool(caller.reports) and caller.reports[-1]["at_ms"] == number)  # type: ignore[misc]
            assert place.app.counters["junk_messages"] == number + 1, junk


WRONG_EVENTS: tuple[tuple[Json | str | bytes, str], ...] = (
    ("nonsense", "invalid_json"),
    (b"\x00\x01", "invalid_message"),
    ({"type": "no.such.event"}, "invalid_value"),
    ({"type": "input_audio_buffer.append", "audio": "AAAAAAAA"}, "unsupported"),
    ({"type": "response.cancel", "event_id": "x"}, "response_cancel_not_active"),
)


async def test_a_wrong_event_is_answered_by_its_error_and_the_call_goes_on() -> None:
    async with served() as place, called(place, PUSH_TO_TALK) as caller:
        await caller.event("session.created")
        for nth, (junk, code) in enumerate(WRONG_EVENTS, 1):
            caller.say(junk)
            assert (await caller.event("error", nth))["error"]["code"] == code
        caller.say({"type": "response.create"})
        await caller.event("response.done")


async def test_an_event_that_is_too_long_is_refused_and_the_call_goes_on() -> None:
    async with served() as place, called(place, PUSH_TO_TALK) as caller:
        await caller.event("session.created")
        # What a client that keeps to the announced size could not send.
        caller.connection.sctp._remote_max_message_size = 0  # type: ignore[union-attr]
        caller.say(" " * (MAX_MESSAGE + 1))
        error = await caller.event("error")
        assert error["error"]["code"] == "message_too_large"
        caller.say({"type": "response.create"})
        await caller.event("response.done")


async def test_an_event_longer_than_the_client_takes_is_replaced_by_an_error_that_names_it() -> None:
    async with served() as place:
        caller = Caller()
        offer = caller.offer

        async def small() -> str:
            return (await offer()).replace("a=max-message-size:262144", "a=max-message-size:16384")

        caller.offer = small  # type: ignore[method-assign]
        try:
            async with place.http() as http:
                await caller.call(http, PUSH_TO_TALK)
            await caller.event("session.created")
            instructions = "ü" * 12_000
            caller.say({"type": "session.update", "session": {"type": "realtime", "instructions": instructions}})
            error = await caller.event("error")
            assert error["error"]["code"] == "message_too_large"
            assert "session.updated" in error["error"]["message"]
            caller.say({"type": "response.create"})
            await caller.event("response.done")
        finally:
            await caller.close()


async def test_large_events_go_both_ways_whole() -> None:
    async with served() as place, called(place, PUSH_TO_TALK) as caller:
        await caller.event("session.created")
        instructions = "sixty thousand characters " * 2400
        caller.say({"type": "session.update", "session": {"type": "realtime", "instructions": instructions}})
        assert (await caller.event("session.updated"))["session"]["instructions"] == instructions


# --- beginnings ------------------------------------------------------------------------------------------------------


async def test_the_session_part_of_a_request_configures_the_session() -> None:
    session = {**PUSH_TO_TALK, "instructions": "Be brief.", "model": "mine"}
    async with served() as place, called(place, session) as caller:
        created = (await caller.event("session.created"))["session"]
        assert created["instructions"] == "Be brief."
        assert created["model"] == "mine"
        assert created["audio"]["input"]["turn_detection"] is None
        assert "resume_token" not in created["x_talkover"]


async def test_the_older_address_takes_a_raw_offer() -> None:
    async with served() as place:
        caller = Caller()
        try:
            async with place.http() as http:
                await caller.call(http, path="/v1/realtime?model=old")
            assert (await caller.event("session.created"))["session"]["model"] == "old"
        finally:
            await caller.close()


@pytest.mark.parametrize("direction", ["recvonly", "sendonly"])
async def test_a_client_that_only_hears_or_only_speaks_is_served(direction: str) -> None:
    engine = CountingEngine(seconds=0.2, delay=0.0)
    async with served(engine) as place:
        caller = Caller(direction=direction)
        try:
            async with place.http() as http:
                if direction == "recvonly":
                    await caller.call(http, PUSH_TO_TALK)
                    await caller.event("session.created")
                    caller.say({"type": "response.create"})
                    await caller.event("output_audio_buffer.stopped")
                    assert loudness(caller.heard()) > 100
                else:
                    await caller.call(http, PUSH_TO_TALK)
                    await caller.event("session.created")
                    caller.say({"type": "response.create"})
                    await caller.event("response.done")
                    assert caller.packets == []
        finally:
            await caller.close()


async def test_a_client_without_data_channels_hears_and_is_heard() -> None:
    engine = CountingEngine(seconds=0.3, delay=0.0)
    async with served(engine) as place, called(place, events=False, playback=False) as caller:
        await caller.speak(b"\x00\x20\x00\xe0" * 160 * 25)
        await caller.speak(bytes(640 * 40))
        await caller.until(lambda: any(len(packet.payload) > 3 for packet in caller.packets))


async def test_further_channels_are_closed() -> None:
    async with served() as place:
        caller = Caller()
        other = caller.connection.createDataChannel("other")
        try:
            async with place.http() as http:
                await caller.call(http, PUSH_TO_TALK)
            other.on("close", caller.look)
            await caller.until(lambda: other.readyState == "closed")
            caller.say({"type": "response.create"})
            await caller.event("response.done")
        finally:
            await caller.close()


async def test_video_is_rejected_and_audio_taken() -> None:
    caller = Caller()
    caller.connection.addTransceiver("video")
    try:
        offer = await caller.offer()
    finally:
        await caller.close()
    async with served() as place:
        answer = (await _raw(place, offer)).text
        assert [line.split()[:2] for line in answer.splitlines() if line.startswith("m=")] == [
            ["m=audio", answer.partition("m=audio ")[2].split()[0]],
            ["m=video", "0"],
            ["m=application", answer.partition("m=application ")[2].split()[0]],
        ]
        assert "m=audio 0 " not in answer


async def _post(place: Served, body: Any, kind: str | None, **options: Any) -> tuple[int, Json]:
    async with place.http() as http:
        headers = {} if kind is None else {"Content-Type": kind}
        response = await http.post("/v1/realtime/calls", content=body, headers=headers, **options)
    return response.status_code, response.json()["error"]


async def _offer() -> str:
    caller = Caller()
    try:
        return await caller.offer()
    finally:
        await caller.close()


async def test_a_wrong_request_is_refused_by_what_is_wrong_with_it() -> None:
    offer = await _offer()
    form = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n--b--\r\n'
    multipart = "multipart/form-data; boundary=b"
    async with served() as place:
        for body, kind, status, code, param in (
            (b"hello", "application/sdp", 400, "invalid_sdp", "sdp"),
            (b"\xff\xfe", "application/sdp", 400, "invalid_json", None),
            (offer.replace("opus", "opum").encode(), "application/sdp", 400, "unsupported_codec", "sdp"),
            (offer.replace("m=audio ", "m=video ").encode(), "application/sdp", 400, "no_audio", "sdp"),
            (offer.replace("a=fingerprint:", "a=fingerpaint:").encode(), "application/sdp", 400, "invalid_sdp", "sdp"),
            (
                offer.replace("a=rtpmap:96 opus/48000/2", "a=rtpmap:96 opus/48000/2\r\na=fmtp:7 x=1").encode(),
                "application/sdp",
                400,
                "invalid_sdp",
                "sdp",
            ),
            (b"{}", "application/json", 415, "unsupported_media_type", None),
            (offer.encode(), None, 415, "unsupported_media_type", None),
            (b"x" * 600_000, "application/sdp", 413, "request_too_large", None),
            (form % (b"sdp", b"x" * 600_000), multipart, 413, "request_too_large", None),
            (form % (b"session", b"{}"), multipart, 400, "missing_required_parameter", "sdp"),
            (form % (b"sdp", b"hello"), multipart, 400, "invalid_sdp", "sdp"),
            (b"not a form", multipart, 400, "invalid_value", None),
            (b"", "multipart/form-data", 400, "invalid_value", None),
        ):
            refused = await _post(place, body, kind)
            assert (refused[0], refused[1]["code"], refused[1]["param"]) == (status, code, param), (body[:40], refused)
        assert len(place.app.calls) == 0
        assert place.app.counters["sessions_opened"] == 0


@pytest.mark.parametrize(
    ("session", "status", "code", "param"),
    [
        ({"type": "realtime", "audio": 7}, 400, "invalid_type", "session.audio"),
        ({"type": "realtime", "model": 7}, 400, "invalid_type", "session.model"),
        (
            {"x_talkover": {"resume": {"session": "s"}}},
            400,
            "missing_required_parameter",
            "session.x_talkover.resume.token",
        ),
        ({"x_talkover": {"resume": "yes"}}, 400, "invalid_type", "session.x_talkover.resume"),
        (
            {"x_talkover": {"resume": {"session": "s", "token": "t"}}},
            409,
            "unknown_session",
            "session.x_talkover.resume",
        ),
    ],
)
async def test_a_wrong_session_part_is_refused_by_its_field(session: Json, status: int, code: str, param: str) -> None:
    async with served() as place, place.http() as http:
        with pytest.raises(CallRefused) as refused:
            await Caller().call(http, session)
        assert (refused.value.status, refused.value.error["code"], refused.value.error["param"]) == (
            status,
            code,
            param,
        )
        assert len(place.app.calls) == 0


async def test_a_call_beyond_the_limit_is_refused_and_there_is_room_after_a_hang_up() -> None:
    async with served(max_sessions=1) as place, called(place, PUSH_TO_TALK) as caller, place.http() as http:
        with pytest.raises(CallRefused) as refused:
            await Caller().call(http)
        assert (refused.value.status, refused.value.error["code"]) == (503, "server_busy")
        response = await http.post(f"/v1/realtime/calls/{caller.call_id}/hangup")
        assert response.status_code == 200
        await gone(place)
        async with called(place, PUSH_TO_TALK) as other:
            await other.event("session.created")


async def test_a_server_without_an_address_for_calls_says_so() -> None:
    async with served(rtc_addresses=("192.0.2.77",)) as place, place.http() as http:
        with pytest.raises(CallRefused) as refused:
            await Caller().call(http)
        assert (refused.value.status, refused.value.error["code"]) == (503, "no_address")
        assert "--rtc-address" in refused.value.error["message"]


async def test_an_engine_without_room_refuses_the_call_and_leaves_nothing() -> None:
    async with served(CountingEngine(room=0)) as place, place.http() as http:
        with pytest.raises(CallRefused) as refused:
            await Caller().call(http)
        assert refused.value.error["code"] == "server_busy"
        assert len(place.app.calls) == 0


# --- access ----------------------------------------------------------------------------------------------------------


async def test_calls_need_a_key_where_keys_are_set() -> None:
    async with served(api_keys=(API_KEY,)) as place:
        async with place.http() as http:
            with pytest.raises(CallRefused) as refused:
                await Caller().call(http)
            assert refused.value.status == 401
            assert (await http.post("/v1/realtime/calls/rtc_x/hangup")).status_code == 401
        async with called(place, PUSH_TO_TALK, key=API_KEY) as caller:
            await caller.event("session.created")


async def test_an_ephemeral_key_makes_calls_with_its_configuration_and_hangs_up_its_own_only() -> None:
    bound = {**PUSH_TO_TALK, "instructions": "Be long."}
    async with served(api_keys=(API_KEY,)) as place:
        async with place.http(API_KEY) as http:
            minted = [
                (await http.post("/v1/realtime/client_secrets", json={"session": bound})).json()["value"]
                for _ in range(2)
            ]
        session = {"type": "realtime", "instructions": "Be brief.", "audio": {"output": {"speed": 1.25}}}
        async with called(place, session, key=minted[0]) as caller:
            created = (await caller.event("session.created"))["session"]
            assert created["audio"]["output"]["speed"] == 1.25
            assert created["audio"]["input"]["turn_detection"] is None
            assert created["instructions"] == "Be brief."
            path = f"/v1/realtime/calls/{caller.call_id}/hangup"
            async with place.http(minted[1]) as other:
                refused = await other.post(path)
                assert (refused.status_code, refused.json()["error"]["code"]) == (404, "call_not_found")
            async with place.http(minted[0]) as own:
                assert (await own.post(path)).status_code == 200
            await gone(place)


async def test_pages_of_other_hosts_make_calls_only_where_a_setting_lets_them() -> None:
    origin = "https://app.example"
    wish = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    async with served() as place, place.http() as http:
        assert (await http.options("/v1/realtime/calls", headers=wish)).status_code == 405
        refused = await http.post("/v1/realtime/calls", headers={"Origin": origin})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin_not_allowed")
    async with served(allow_origins=(f"https://one.example,{origin}",)) as place, place.http() as http:
        allowed = await http.options("/v1/realtime/calls", headers=wish)
        assert allowed.status_code == 204
        assert allowed.headers["Access-Control-Allow-Origin"] == origin
        assert allowed.headers["Access-Control-Allow-Headers"] == "content-type"
        other = await http.options("/v1/realtime/calls", headers={**wish, "Origin": "https://else.example"})
        assert other.status_code == 403
        assert "Access-Control-Allow-Origin" not in other.headers
        caller = Caller()
        try:
            headers = {"Content-Type": "application/sdp", "Origin": origin}
            made = await http.post("/v1/realtime/calls", content=await caller.offer(), headers=headers)
            assert made.status_code == 201
            assert made.headers["Access-Control-Allow-Origin"] == origin
            assert made.headers["Access-Control-Expose-Headers"] == "Location"
            wrong = await http.post("/v1/realtime/calls", content=b"x", headers=headers)
            assert wrong.status_code == 400
            assert wrong.headers["Access-Control-Allow-Origin"] == origin
        finally:
            await caller.close()


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_a_hang_up_ends_the_call_and_its_session_and_is_found_no_more() -> None:
    async with served() as place, called(place, PUSH_TO_TALK) as caller, place.http() as http:
        path = f"/v1/realtime/calls/{caller.call_id}/hangup"
        assert (await http.post(path)).status_code == 200
        await gone(place)
        again = await http.post(path)
        assert (again.status_code, again.json()["error"]["code"]) == (404, "call_not_found")


async def test_a_client_that_leaves_ends_its_session() -> None:
    async with served() as place:
        async with called(place, PUSH_TO_TALK) as caller:
            await caller.event("session.created")
        await gone(place)
        assert place.app.counters["session_fault"] == 0


async def test_the_server_ends_with_calls_open_and_leaves_no_task() -> None:
    async with served() as place:
        caller = Caller()
        async with place.http() as http:
            await caller.call(http, PUSH_TO_TALK)
        await caller.event("session.created")
    try:
        assert len(place.app.calls) == 0
        left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(("rtc_", "sess_"))]
        assert left == []
    finally:
        await caller.close()


async def test_calls_that_come_and_go_leave_no_task_thread_descriptor_or_connection() -> None:
    async def cycle(place: Served, number: int) -> None:
        async with called(place, PUSH_TO_TALK) as caller:
            caller.say({"type": "response.create"})
            await caller.event("output_audio_buffer.started")
            if number % 2:
                async with place.http() as http:
                    await http.post(f"/v1/realtime/calls/{caller.call_id}/hangup")

    def held() -> tuple[int, int, int, int]:
        gc.collect()
        connections = sum(isinstance(one, RTCPeerConnection) for one in gc.get_objects())
        return len(asyncio.all_tasks()), threading.active_count(), len(os.listdir("/proc/self/fd")), connections

    async with served(CountingEngine(seconds=5.0, delay=0.0)) as place:
        manager = place.app.manager
        assert manager is not None
        looks = []
        for _ in range(2):
            for number in range(6):
                await cycle(place, number)
            await gone(place)
            # The played perception keeps what it was given, for tests to look at.
            vars(manager.perception)["_emit"].clear()
            looks.append(held())
        assert all(later <= before for before, later in zip(*looks, strict=True)), looks
        assert looks[1][3] == 0


@pytest.mark.parametrize("hung_up", [True, False])
async def test_what_a_call_had_is_freed_as_it_ends_without_the_garbage_collector(hung_up: bool) -> None:
    freed = Freed()

    async def call(place: Served) -> None:
        async with called(place, PUSH_TO_TALK) as caller:
            caller.say({"type": "response.create"})
            await caller.event("output_audio_buffer.started")
            manager = place.app.manager
            assert manager is not None
            (runner,) = manager.runners()
            (call,) = place.app.calls._calls.values()
            carrier = call.carrier
            freed.watch(runner, runner._core, carrier, carrier._encoder, carrier._uplink, carrier._peer, call.dialect)
            freed.watch(carrier._peer._connection, carrier._peer.media, carrier._peer.media._transport)
            if hung_up:
                async with place.http() as http:
                    await http.post(f"/v1/realtime/calls/{caller.call_id}/hangup")
                await caller.until(lambda: caller.connection.connectionState == "closed")

    async with served(CountingEngine(seconds=5.0, delay=0.0)) as place:
        with no_collector():
            await call(place)
            await gone(place)
            # The played perception keeps what it was given, for tests to look at.
            vars(place.app.manager.perception)["_emit"].clear()  # type: ignore[union-attr]
            await freed.all()


async def test_a_client_that_never_connects_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.carriers.webrtc.life.CONNECT_WITHIN", 0.1)
    async with served() as place:
        assert (await _raw(place, await _offer())).status_code == 201
        await gone(place)


async def _raw(place: Served, offer: str) -> Any:
    async with place.http() as http:
        return await http.post("/v1/realtime/calls", content=offer, headers={"Content-Type": "application/sdp"})


async def test_a_client_that_falls_silent_is_taken_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.carriers.webrtc.life.GONE_AFTER", 0.4)
    monkeypatch.setattr("server.carriers.webrtc.life.GONE_AFTER_QUIET", 30.0)
    async with served() as place, called(place, PUSH_TO_TALK) as caller:
        await caller.event("session.created")
        for _ in range(10):
            caller.send_sound(bytes(640))
        for transport in caller.connection._RTCPeerConnection__iceTransports:  # type: ignore[attr-defined]
            for protocol in transport._connection._protocols:
                # As a cable that is pulled: nothing is said, and nothing arrives.
                protocol.transport.sendto = lambda data, addr: None
        await gone(place)


# --- sideband --------------------------------------------------------------------------------------------------------


def _sideband(place: Served, call_id: str) -> connect:
    return connect(f"{place.url.replace('http', 'ws', 1)}/v1/realtime?call_id={call_id}", proxy=None)


async def _read_all(socket: ClientConnection) -> None:
    while True:
        await socket.recv()


async def test_a_sideband_sees_every_event_and_gives_commands() -> None:
    async with served() as place, called(place, PUSH_TO_TALK) as caller:
        session = (await caller.event("session.created"))["session"]["id"]
        async with _sideband(place, caller.call_id) as socket:
            hello = json.loads(await socket.recv())
            assert hello["type"] == "session.created"
            assert hello["session"]["id"] == session
            update = {"type": "session.update", "session": {"type": "realtime", "instructions": "x"}}
            await socket.send(json.dumps(update))
            assert (await caller.event("session.updated"))["session"]["instructions"] == "x"
            await socket.send('{"type":"response.create"}')
            done = await caller.event("response.done")
            seen = [json.loads(await socket.recv())]
            while seen[-1]["type"] != "response.done":
                seen.append(json.loads(await socket.recv()))
            assert seen[-1] == done
            await socket.send("nonsense")
            assert (await caller.event("error"))["error"]["code"] == "invalid_json"


async def test_a_sideband_ends_with_its_call_and_a_call_does_not_end_with_its_sideband() -> None:
    async with served() as place, called(place, PUSH_TO_TALK) as caller, place.http() as http:
        async with _sideband(place, caller.call_id) as socket:
            await socket.recv()
        caller.say({"type": "response.create"})
        await caller.event("response.done")
        async with _sideband(place, caller.call_id) as socket:
            await http.post(f"/v1/realtime/calls/{caller.call_id}/hangup")
            with pytest.raises(ConnectionClosed):
                await _read_all(socket)
            assert socket.close_code == 1000


async def test_a_sideband_to_no_call_is_refused() -> None:
    async with served() as place:
        with pytest.raises(InvalidStatus) as refused:
            async with _sideband(place, "rtc_none"):
                pass
        assert refused.value.response.status_code == 404
        assert json.loads(refused.value.response.body or b"{}")["error"]["code"] == "call_not_found"


# --- joining again ---------------------------------------------------------------------------------------------------


async def _resumed(place: Served, created: Json) -> Caller:
    own = created["session"]
    wish = {"session": own["id"], "token": own["x_talkover"]["resume_token"]}
    async with place.http() as http:
        return await Caller().call(http, {"type": "realtime", "x_talkover": {"resume": wish}})


RESUMABLE = {**NOTICES, "x_talkover": {"notices": True, "resume": True}, "instructions": "Remember me."}


async def test_a_client_that_lost_its_connection_joins_its_session_and_hears_nothing_of_before() -> None:
    engine = CountingEngine(seconds=5.0, delay=0.0)
    async with served(engine) as place:
        async with called(place, RESUMABLE) as caller:
            created = await caller.event("session.created")
            caller.say({"type": "response.create"})
            await caller.until(lambda: len(caller.packets) > 40)
        again = await _resumed(place, created)
        try:
            hello = await again.event("session.created")
            assert again.events[0] is hello
            assert hello["session"]["id"] == created["session"]["id"]
            assert hello["session"]["instructions"] == "Remember me."
            assert hello["session"]["x_talkover"]["notices"] is True
            assert hello["session"]["x_talkover"]["resume_token"] != created["session"]["x_talkover"]["resume_token"]
            # What became of the answer that it did not hear to its end, said while it was away.
            cleared = await again.event("x_talkover.playback_cleared")
            done = await again.event("response.done")
            assert cleared["response"] == done["response"]["id"]
            assert done["response"]["status"] == "cancelled"
            assert cleared["heard"] > 0
            await again.until(lambda: len(again.packets) > 20)
            assert {one.payload for one in again.packets} == {b"\xd8\xff\xfe"}
            assert [one for one in again.events if one["type"] == "response.created"] == []
            again.say({"type": "response.create"})
            await again.event("output_audio_buffer.started")
            async with place.http() as http:
                with pytest.raises(CallRefused) as refused:
                    await _used(http, created)
                assert (refused.value.status, refused.value.error["code"]) == (409, "invalid_token")
                await http.post(f"/v1/realtime/calls/{again.call_id}/hangup")
            await gone(place)
        finally:
            await again.close()
        assert place.app.counters["sessions_opened"] == 1
        assert place.app.counters["ledger_fault"] == 0


async def _used(http: Any, created: Json) -> Caller:
    own = created["session"]
    wish = {"session": own["id"], "token": own["x_talkover"]["resume_token"]}
    return await Caller().call(http, {"type": "realtime", "x_talkover": {"resume": wish}})


async def test_a_second_connection_takes_the_place_of_one_that_is_still_there() -> None:
    engine = CountingEngine(seconds=5.0, delay=0.0)
    async with served(engine) as place, called(place, RESUMABLE) as caller:
        created = await caller.event("session.created")
        again = await _resumed(place, created)
        try:
            await again.event("session.created")
            await caller.until(lambda: caller.connection.connectionState == "closed")
            assert len(place.app.calls) == 1
            again.say({"type": "response.create"})
            await again.event("output_audio_buffer.started")
            async with place.http() as http:
                await http.post(f"/v1/realtime/calls/{again.call_id}/hangup")
            await gone(place)
        finally:
            await again.close()


async def test_a_client_that_did_not_say_so_has_nothing_to_come_back_to() -> None:
    async with served() as place:
        async with called(place, PUSH_TO_TALK) as caller:
            created = await caller.event("session.created")
        await gone(place)
        created["session"]["x_talkover"]["resume_token"] = "guess"
        with pytest.raises(CallRefused) as refused:
            await _resumed(place, created)
        assert refused.value.error["code"] == "unknown_session"
