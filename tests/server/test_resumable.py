"""Clients of the duplex extensions at the running application: they begin, lose their connection, and come back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from server import resumable as resumable_module
from tests.server.security.making import make_tenants
from tests.server.serving import Served, refusal, served
from tests.sessions.fakes import CountingEngine


class Client:
    """One connection with the extensions."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.events: list[dict[str, Any]] = []

    async def say(self, kind: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": kind, **fields}))

    async def hear(self, kind: str) -> dict[str, Any]:
        """The next event of this type; all on the way are in `events`."""
        async with asyncio.timeout(20):
            while True:
                event = json.loads(await self.connection.recv())
                self.events.append(event)
                if event["type"] == kind:
                    return event

    async def ended(self) -> int:
        """Read to the end; the code that the server closed with."""
        try:
            async with asyncio.timeout(20):
                while True:
                    self.events.append(json.loads(await self.connection.recv()))
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 1006

    @property
    def last(self) -> int:
        return max((event.get("server_event_seq", 0) for event in self.events), default=0)

    def numbers(self) -> list[int]:
        return [event["server_event_seq"] for event in self.events if "server_event_seq" in event]

    def drop(self) -> None:
        """The cable is pulled."""
        self.connection.transport.abort()


async def dial(place: Served, *, autostart: int = 0, **options: Any) -> Client:
    return Client(await connect(f"{place.realtime}&duplex=1&autostart={autostart}", proxy=None, **options))


async def begin(place: Served) -> tuple[Client, dict[str, Any]]:
    client = await dial(place)
    await client.say("session.update", session={"turn_detection": None, "sample_rate_hz": 16000})
    created = await client.hear("session.created")
    await client.hear("session.updated")
    return client, created


async def back(place: Served, created: dict[str, Any], after: Any, token: Any = None, **options: Any) -> Client:
    client = await dial(place, **options)
    await client.say(
        "session.resume",
        session_id=created["session"]["id"],
        resume_token=token or created["resume_token"],
        last_received_server_event_seq=after,
    )
    return client


async def ask(client: Client, text: str = "hello") -> None:
    content = [{"type": "input_text", "text": text}]
    await client.say("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    await client.say("response.create")


async def refused(client: Client) -> tuple[str, str | None]:
    error = (await client.hear("error"))["error"]
    await client.ended()
    return error["code"], error["param"]


async def all_ended(place: Served) -> None:
    """Ask until no session is left, and nothing is kept of one."""
    async with asyncio.timeout(20), place.http() as client:
        while (await client.get("/healthz")).json()["sessions"] or len(place.app.resumables):
            pass


async def test_a_session_begins_with_what_its_client_says_first() -> None:
    async with served() as place:
        client, created = await begin(place)
        assert created["session"]["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 16000}
        assert created["attachment_generation"] == 1
        await client.say("session.heartbeat")
        assert (await client.hear("session.heartbeat_ack"))["session_id"] == created["session"]["id"]
        await client.say("session.close")
        assert (await client.hear("session.closed"))["reason"] == "client_close"
        assert await client.ended() == 1000
        assert client.numbers() == [1, 2, 3]
        await all_ended(place)


async def test_a_client_may_also_wait_for_its_session_and_is_told_where_a_resumption_belongs() -> None:
    async with served() as place:
        client = await dial(place, autostart=1)
        created = await client.hear("session.created")
        await client.say("session.resume", session_id=created["session"]["id"], resume_token="x")
        assert (await client.hear("error"))["error"]["code"] == "unsupported_session_resume"
        await client.say("session.close")
        assert await client.ended() == 1000


async def test_a_session_goes_on_after_a_lost_connection_and_nothing_stale_is_heard() -> None:
    async with served(CountingEngine(seconds=20.0, delay=0.0)) as place:
        first, created = await begin(place)
        await ask(first)
        cut = (await first.hear("response.output_audio.delta"))["response_id"]
        received = first.last
        first.drop()
        second = await back(place, created, received)
        resumed = await second.hear("session.resumed")
        assert resumed["session"]["id"] == resumed["session_id"] == created["session"]["id"]
        assert resumed["attachment_generation"] == 2
        assert resumed["resume_token"] != created["resume_token"]
        done = await second.hear("response.done")
        assert (done["response"]["id"], done["response"]["status"]) == (cut, "cancelled")
        assert second.events[0]["type"] == "session.resumed"
        assert "response.output_audio.delta" not in [event["type"] for event in second.events]
        await second.say("response.create")
        assert (await second.hear("response.output_audio.delta"))["response_id"] != cut
        assert second.numbers() == list(range(received + 1, second.last + 1))
        await second.say("session.close")
        await second.ended()
        await all_ended(place)
        counted = place.app.counters.snapshot()
        assert counted["sessions_resumed"] == 1
        assert counted["sessions_opened"] == counted["sessions_closed"] == 1


async def test_what_was_said_meanwhile_is_told_to_who_comes_back() -> None:
    async with served() as place:
        first, created = await begin(place)
        received = first.last
        await ask(first)
        first.drop()
        second = await back(place, created, received)
        item = await second.hear("conversation.item.done")
        assert item["item"]["content"][0]["text"] == "hello"
        await second.say("session.close")
        await second.ended()


async def test_a_client_that_comes_back_takes_over_from_its_own_old_connection() -> None:
    async with served(CountingEngine(seconds=20.0, delay=0.0)) as place:
        first, created = await begin(place)
        await ask(first)
        await first.hear("response.output_audio.delta")
        second = await back(place, created, first.last)
        assert (await first.hear("session.replaced"))["attachment_generation"] == 2
        assert await first.ended() == 1000
        assert (await second.hear("response.done"))["response"]["status"] == "cancelled"
        both = sorted({*first.numbers(), *second.numbers()})
        assert both == list(range(1, second.last + 1))
        await second.say("session.close")
        await second.ended()
        await all_ended(place)


async def test_a_token_is_good_until_the_next_one_has_arrived() -> None:
    async with served() as place:
        first, created = await begin(place)
        first.drop()
        second = await back(place, created, 0)
        resumed = await second.hear("session.resumed")
        # For all the server knows this never arrived.
        second.drop()
        third = await back(place, created, 0)
        assert (await third.hear("session.resumed"))["attachment_generation"] == 3
        await third.say("session.heartbeat")
        await third.hear("session.heartbeat_ack")
        third.drop()
        for token in (created["resume_token"], resumed["resume_token"]):
            assert await refused(await back(place, created, 0, token)) == ("invalid_resume_token", "resume_token")
        fourth = await back(place, created, 0, third.events[0]["resume_token"])
        assert (await fourth.hear("session.resumed"))["attachment_generation"] == 4
        await fourth.say("session.close")
        await fourth.ended()


async def test_a_resumption_that_cannot_be_is_refused_by_name() -> None:
    async with served() as place:
        client, created = await begin(place)
        stranger = {"session": {"id": "sess_nowhere"}, "resume_token": "x"}
        assert await refused(await back(place, stranger, 0)) == ("session_resume_expired", "session_id")
        assert await refused(await back(place, created, 0, "wrong")) == ("invalid_resume_token", "resume_token")
        assert await refused(await back(place, created, 0, "\ud83d\ude00")) == ("invalid_resume_token", "resume_token")
        assert await refused(await back(place, created, 99)) == (
            "session_resume_conflict",
            "last_received_server_event_seq",
        )
        assert await refused(await back(place, created, -1)) == (
            "invalid_session_resume",
            "last_received_server_event_seq",
        )
        await client.say("session.event_ack", server_event_seq=1)
        await client.say("session.heartbeat")
        await client.hear("session.heartbeat_ack")
        late = await back(place, created, 0)
        assert (await late.hear("session.resync_required"))["reason"] == "journal_gap"
        assert await late.ended() == 1000
        # All that harmed nothing.
        await client.say("session.heartbeat")
        await client.hear("session.heartbeat_ack")
        await client.say("session.close")
        await client.ended()
        assert await refused(await back(place, created, 0)) == ("session_resume_expired", "session_id")


async def test_a_session_waits_no_longer_than_its_grace() -> None:
    async with served(resume_grace_s=1) as place:
        client, created = await begin(place)
        client.drop()
        await all_ended(place)
        assert await refused(await back(place, created, 0)) == ("session_resume_expired", "session_id")


async def test_without_grace_a_session_ends_with_its_connection() -> None:
    async with served(resume_grace_s=0) as place:
        client, created = await begin(place)
        assert "resume_token" not in created
        assert await refused(await back(place, created, 0, "x")) == ("unsupported_session_resume", "type")
        client.drop()
        await all_ended(place)


async def test_who_says_nothing_is_told_and_let_go() -> None:
    with mock.patch.object(resumable_module, "FIRST_MESSAGE_WITHIN", 0.05):
        async with served() as place:
            assert await refused(await dial(place)) == ("config_timeout", None)
            await all_ended(place)


async def test_who_leaves_before_saying_anything_leaves_nothing() -> None:
    async with served() as place:
        (await dial(place)).drop()
        client, _ = await begin(place)
        await client.say("session.close")
        await client.ended()
        await all_ended(place)
        assert place.app.counters.snapshot()["sessions_opened"] == 1


@pytest.mark.parametrize("first", ["no JSON", "[]", b"\x00\x01"])
async def test_a_first_message_that_is_not_understood_begins_a_session_that_says_so(first: str | bytes) -> None:
    async with served() as place:
        client = await dial(place)
        await client.connection.send(first)
        await client.hear("session.created")
        assert (await client.hear("error"))["error"]["type"] == "invalid_request_error"
        await client.say("session.close")
        assert await client.ended() == 1000


async def test_a_full_server_tells_a_client_to_try_later() -> None:
    async with served(max_sessions=1) as place:
        client, _ = await begin(place)
        other = await dial(place)
        await other.say("session.update", session={})
        error = (await other.hear("error"))["error"]
        assert (error["code"], error["type"]) == ("server_busy", "server_error")
        assert await other.ended() == 1013
        await client.say("session.close")
        await client.ended()


async def test_a_single_use_key_opens_one_session() -> None:
    async with served(ephemeral_single_use=True) as place:
        async with place.http() as http:
            value = (await http.post("/v1/realtime/client_secrets")).json()["value"]
        headers = {"Authorization": f"Bearer {value}"}
        client = await dial(place, additional_headers=headers)
        await client.say("session.heartbeat")
        await client.hear("session.created")
        url = f"{place.realtime}&duplex=1"
        status, error = await refusal(connect(url, additional_headers=headers, proxy=None))
        assert (status, error["code"]) == (401, "invalid_api_key")
        await client.say("session.close")
        await client.ended()


async def test_a_session_is_resumed_with_a_key_of_its_tenant(tmp_path: Path) -> None:
    keys = make_tenants(tmp_path / "tenants.json", ["acme", "bolt"]).values()
    async with served(tenants_file=tmp_path / "tenants.json") as place:
        one, other = ({"Authorization": f"Bearer {key}"} for key in keys)
        client = await dial(place, additional_headers=one)
        await client.say("session.heartbeat")
        created = await client.hear("session.created")
        client.drop()
        assert await refused(await back(place, created, 0, additional_headers=other)) == (
            "invalid_resume_token",
            "resume_token",
        )
        again = await back(place, created, 0, additional_headers=one)
        await again.hear("session.resumed")
        await again.say("session.close")
        await again.ended()


@pytest.mark.parametrize("wrong", ["duplex=perhaps", "duplex=1&autostart=maybe", "duplex=1&resume=x"])
async def test_a_switch_that_is_neither_on_nor_off_is_refused_at_the_handshake(wrong: str) -> None:
    async with served() as place:
        status, error = await refusal(connect(f"{place.realtime}&{wrong}", proxy=None))
        assert (status, error["code"]) == (400, "invalid_value")
        assert f"{error['param']}=" in wrong


async def test_who_did_not_ask_gets_nothing_of_it() -> None:
    async with served() as place, place.socket() as connection:
        client = Client(connection)
        created = await client.hear("session.created")
        assert "resume_token" not in created
        assert "capabilities" not in created["session"]
        await client.say("session.heartbeat")
        assert (await client.hear("error"))["error"]["param"] == "type"
        assert client.numbers() == []


async def test_a_shut_down_says_farewell() -> None:
    async with served() as place:
        client, _ = await begin(place)
        assert place.app.manager is not None
        await place.app.manager.close()
        assert (await client.hear("session.closed"))["reason"] == "server_shutdown"
        assert await client.ended() == 1001
