"""The served application: its pages, what it says to whom, its life, and sessions that come and go."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from server import app as app_module
from server.app import Talkover
from server.models_loading import Models, Progress
from server.settings import Settings
from tests.freed import back_to, no_collector, ours
from tests.server.serving import API_KEY, Served, refusal, served, started
from tests.sessions.fakes import CountingEngine, LoudnessPerception


async def all_ended(place: Served) -> None:
    """Ask until no session is left."""
    async with asyncio.timeout(20), place.http() as client:
        while (await client.get("/healthz")).json()["sessions"]:
            pass


async def test_the_page_is_for_everybody_and_says_nothing_of_this_server() -> None:
    async with served(api_keys=(API_KEY,)) as place, place.http() as client:
        answer = await client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert API_KEY not in answer.text


async def test_health_tells_everybody_whether_and_the_rest_to_those_who_have_a_key() -> None:
    async with served(api_keys=(API_KEY,)) as place:
        for key in (None, "wrong"):
            async with place.http(key) as client:
                assert (await client.get("/healthz")).json() == {"status": "ready"}
        async with place.http(API_KEY) as client, place.socket(API_KEY) as connection:
            await connection.recv()
            health = (await client.get("/healthz")).json()
    assert health["status"] == "ready"
    assert health["sessions"] == 1
    assert {"loop_lag_ms_p50", "loop_lag_ms_p99", "resident_mb"} <= set(health)


async def test_metrics_need_a_key_where_keys_are_configured() -> None:
    async with served(api_keys=(API_KEY,)) as place:
        async with place.http() as client:
            answer = await client.get("/metrics")
            assert answer.status_code == 401
            assert "talkover_" not in answer.text
        async with place.http(API_KEY) as client:
            answer = await client.get("/metrics")
            assert answer.status_code == 200
            assert 'event="access_denied"} 1' in answer.text


async def test_metrics_are_open_on_loopback_without_keys() -> None:
    async with served() as place, place.http() as client:
        assert "talkover_sessions 0" in (await client.get("/metrics")).text


async def test_what_the_engine_counts_is_among_the_metrics() -> None:
    class Counted(CountingEngine):
        @property
        def counters(self) -> dict[str, int]:
            return {"sessions_resumed": 3}

    async with served(Counted(seconds=1.0, delay=0.0)) as place, place.http() as client:
        assert 'talkover_engine_events_total{event="sessions_resumed"} 3.0' in (await client.get("/metrics")).text


async def test_what_is_not_there_is_told_in_the_shape_of_the_api() -> None:
    async with served() as place:
        async with place.http() as client:
            answer = await client.get("/v1/models")
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "not_found"
            answer = await client.post("/healthz")
            assert answer.status_code == 405
            assert answer.json()["error"]["code"] == "method_not_allowed"
        url = place.realtime.replace("/v1/realtime", "/v1/realtimes")
        status, error = await refusal(connect(url, proxy=None))
        assert (status, error["code"]) == (404, "not_found")
        assert "/v1/realtime" in error["message"]


async def test_plain_http_at_the_socket_is_told_so() -> None:
    async with served() as place, place.http() as client:
        answer = await client.get("/v1/realtime")
        assert answer.status_code == 405
        assert answer.json()["error"]["code"] == "method_not_allowed"


async def test_a_full_server_refuses_at_the_handshake() -> None:
    async with served(max_sessions=1) as place, place.socket() as connection:
        await connection.recv()
        status, error = await refusal(place.socket())
        assert (status, error["type"], error["code"]) == (503, "server_error", "server_busy")
        assert place.app.counters.snapshot()["sessions_refused"] == 1


async def test_a_single_use_key_is_not_used_up_by_a_server_that_has_no_room() -> None:
    async with served(max_sessions=1, ephemeral_single_use=True) as place:
        async with place.http() as client:
            value = (await client.post("/v1/realtime/client_secrets")).json()["value"]
        async with place.socket() as connection:
            await connection.recv()
            status, _ = await refusal(place.socket(value))
            assert status == 503
        await all_ended(place)
        async with place.socket(value) as connection:
            assert json.loads(await connection.recv())["type"] == "session.created"


async def test_nothing_remains_of_sessions_that_came_and_went() -> None:
    engine = CountingEngine(seconds=1.0, delay=0.0)
    async with served(engine) as place:
        for round_ in range(20):
            async with place.socket() as connection:
                await connection.recv()
                await connection.send(json.dumps({"type": "response.create"}))
                if round_ % 2:
                    await connection.recv()
                    connection.transport.abort()
        await all_ended(place)
        assert not place.app._carriers
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert not [name for name in names if name.startswith("sess_")]
        counted = place.app.counters.snapshot()
        assert counted["sessions_opened"] == counted["sessions_closed"] == 20
    assert sorted(engine.opened) == sorted(engine.closed)


# --- life ----------------------------------------------------------------------------------------------------------


class SlowModels:
    """Models whose loading waits until the test lets it go on."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.go_on = threading.Event()
        self.loading = threading.Event()
        self.closed = 0
        self.interrupted = False
        self._failure = failure

    def load(self, _: Settings, progress: Progress) -> Models:
        progress("downloading something", 0.25)
        self.loading.set()
        self.go_on.wait(20)
        try:
            progress("downloading more", 0.5)
        except BaseException:
            self.interrupted = True
            raise
        if self._failure is not None:
            raise self._failure
        return Models(CountingEngine(), LoudnessPerception(), self.close)

    def close(self) -> None:
        self.closed += 1


async def test_while_models_load_it_says_how_far_and_refuses_sessions() -> None:
    models = SlowModels()
    with mock.patch.object(app_module, "load", models.load):
        async with started(Talkover(Settings(port=0))) as place, place.http() as client:
            await asyncio.to_thread(models.loading.wait, 20)
            answer = await client.get("/healthz")
            assert answer.status_code == 503
            assert answer.json() | {"status": "starting", "progress": 0.25} == answer.json()
            assert answer.json()["stage"] == "downloading something"
            with pytest.raises(InvalidStatus) as refused:
                await place.socket()
            assert refused.value.response.status_code == 503
            assert int(refused.value.response.headers["Retry-After"]) > 0
            models.go_on.set()
            await place.app.ready.wait()
            assert (await client.get("/healthz")).status_code == 200
    assert models.closed == 1


async def test_before_it_is_ready_those_without_a_key_learn_nothing_more() -> None:
    models = SlowModels()
    with mock.patch.object(app_module, "load", models.load):
        async with started(Talkover(Settings(port=0, api_keys=(API_KEY,)))) as place:
            await asyncio.to_thread(models.loading.wait, 20)
            async with place.http() as client:
                assert (await client.get("/healthz")).json() == {"status": "starting"}
            status, _ = await refusal(place.socket())
            assert status == 401
            models.go_on.set()
            await place.app.ready.wait()


async def test_models_that_fail_are_a_failed_server_that_says_why() -> None:
    models = SlowModels(ValueError("the disk is full; make room"))
    models.go_on.set()
    with mock.patch.object(app_module, "load", models.load):
        async with started(Talkover(Settings(port=0))) as place, place.http() as client:
            await place.app.ready.wait()
            answer = await client.get("/healthz")
            assert answer.status_code == 503
            assert answer.json()["status"] == "failed"
            assert "make room" in answer.json()["error"]
            status, error = await refusal(place.socket())
            assert status == 503
            assert "make room" in error["message"]


async def test_an_end_interrupts_a_preparation_at_its_next_step() -> None:
    models = SlowModels()
    with mock.patch.object(app_module, "load", models.load):
        async with started(Talkover(Settings(port=0))) as place:
            await asyncio.to_thread(models.loading.wait, 20)
            place.app._ending = True  # what the end of the server sets first
            models.go_on.set()
    assert models.interrupted
    assert models.closed == 0
    assert place.app.manager is None


async def test_models_that_finish_while_the_server_ends_are_closed() -> None:
    closed: list[bool] = []
    loading, go_on = threading.Event(), threading.Event()

    def load(_: Settings, progress: Progress) -> Models:
        loading.set()
        go_on.wait(20)
        return Models(CountingEngine(), LoudnessPerception(), lambda: closed.append(True))

    with mock.patch.object(app_module, "load", load):
        async with started(Talkover(Settings(port=0))) as place:
            await asyncio.to_thread(loading.wait, 20)
            place.app._ending = True
            go_on.set()
    assert closed == [True]
    assert place.app.manager is None


async def test_a_folder_for_recordings_that_cannot_be_made_is_a_failure_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "recordings"
    models = SlowModels()
    models.go_on.set()
    with mock.patch.object(app_module, "load", models.load):
        async with started(Talkover(Settings(port=0, record=folder))) as place:
            await place.app.ready.wait()
            assert place.app.manager is None
            assert str(folder) in str(place.app.failure)
    assert models.closed == 1


async def test_a_recorded_session_begins_with_the_configuration_of_its_key(tmp_path: Path) -> None:
    async with served(record=tmp_path) as place:
        async with place.http() as client:
            body: dict[str, Any] = {"session": {"type": "realtime", "instructions": "Be a pirate."}}
            value = (await client.post("/v1/realtime/client_secrets", json=body)).json()["value"]
        async with place.socket(value) as connection:
            session = json.loads(await connection.recv())["session"]["id"]
    manifest = json.loads((tmp_path / session / "manifest.json").read_text())
    assert manifest["config"]["instructions"] == "Be a pirate."
    for file in (tmp_path / session).iterdir():
        assert value.encode() not in file.read_bytes()


@pytest.mark.parametrize("format_", ["audio/pcm", "audio/pcmu"])
async def test_what_a_session_had_is_freed_as_it_ends_without_the_garbage_collector(format_: str) -> None:
    media = {"type": format_, **({"rate": 24_000} if format_ == "audio/pcm" else {})}
    update = {"type": "realtime", "audio": {"output": {"format": media}}}

    async def session(place: Served) -> None:
        async with place.socket() as connection:
            await connection.send(json.dumps({"type": "session.update", "session": update}))
            await connection.send(json.dumps({"type": "response.create"}))
            async with asyncio.timeout(20):
                while json.loads(await connection.recv())["type"] != "response.output_audio.delta":
                    pass
        await all_ended(place)
        # The played ones keep what they were given, for tests to look at.
        vars(place.app.manager.perception)["_emit"].clear()  # type: ignore[union-attr]
        engine.started.clear()

    engine = CountingEngine(seconds=5.0, delay=0.0)
    async with served(engine) as place:
        await session(place)
        with no_collector():
            before = ours()
            for _ in range(3):
                await session(place)
            await back_to(before)
