"""Calls of every vendor over real sockets: greeted, interrupted, ended; how they get in, are listed and passed on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from server import serve
from server.call_command import Caller
from server.carriers.phone import PhoneCarrier
from server.phone_peers import PEERS, AsteriskPeer, AudioSocketPeer, TelnyxPeer, TwilioPeer, VendorPeer
from server.telephony_access import twilio_signature
from sessions.core.timeline import Ticks
from tests.freed import back_to, no_collector, ours
from tests.server import serving
from tests.server.serving import API_KEY, Served, served
from tests.sessions.fakes import CountingEngine, LoudnessPerception

GREET = {"greet": "0"}
LOUD = 8000


class Ear(LoudnessPerception):
    """Speech is what is loud: codecs do not leave silence as it was."""

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        samples = np.frombuffer(pcm, "<i2")
        loud = bool(len(samples)) and int(np.abs(samples.astype(np.int32)).max()) > LOUD // 4
        super().feed(session, start, (b"\1" if loud else b"\0") * len(pcm), rate)


@pytest.fixture(autouse=True)
def _ear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LoudnessPerception", Ear)


def loud(peer: VendorPeer, seconds: float) -> Any:
    """Something that is speech to the perception of these tests."""
    t = np.arange(round(peer.rate * seconds)) / peer.rate
    return np.round(LOUD * np.sin(2 * np.pi * 300 * t)).astype(np.int16)


def address(place: Served, peer: VendorPeer) -> str:
    if peer.vendor == "audiosocket":
        return f"tcp://127.0.0.1:{place.app.telephony.audiosocket_port}"
    return place.url.replace("http", "ws", 1)


async def until(caller: Caller, happened: Any, within: float = 10.0) -> None:
    """Wait until `happened()` holds; looked at whenever something comes from the server."""
    async with asyncio.timeout(within):
        while not happened():
            caller.news.clear()
            await caller.news.wait()


def peers() -> list[VendorPeer]:
    made = [make(f"call-{vendor}", GREET) for vendor, make in PEERS.items() if vendor != "audiosocket"]
    made += [
        TelnyxPeer("call-l16", GREET, "l16", 16_000),
        TelnyxPeer("call-g722", GREET, "g722", 16_000),
        AsteriskPeer("call-slin", GREET, "slin16"),
        AsteriskPeer("call-g722", GREET, "g722"),
    ]
    return made


async def one_call(place: Served, peer: VendorPeer) -> tuple[VendorPeer, Caller, int]:
    """Greeted, interrupted while it speaks, hung up. Returns how many samples came between clear and the end of the
    interruption: a new turn is answered only after it."""
    async with Caller(address(place, peer), peer, noise=0.0) as caller:
        await until(caller, lambda: caller.figures.sound_seconds > 0.5)
        caller.say(loud(peer, 0.6))
        await until(caller, lambda: caller.figures.clears > 0)
        before = sum(len(one) for one in caller.heard)
        await caller.spoken.wait()
        after = sum(len(one) for one in caller.heard) - before
    return peer, caller, after


async def test_calls_of_every_vendor_are_greeted_interrupted_and_ended_side_by_side() -> None:
    async with served(CountingEngine(seconds=6.0, delay=0.0)) as place:
        for peer, caller, after in await asyncio.gather(*(one_call(place, peer) for peer in peers())):
            assert after == 0, peer.vendor
            assert caller.figures.clears == 1, peer.vendor
        counters = place.app.counters.snapshot()
        assert counters["phone_calls"] == len(peers())
        assert counters.get("phone_messages_refused", 0) == 0
        assert counters["stale_at_gate"] == counters["ledger_fault"] == 0


@pytest.mark.parametrize("vendor", [vendor for vendor in PEERS if vendor != "audiosocket"])
async def test_what_a_call_had_is_freed_as_it_ends_without_the_garbage_collector(vendor: str) -> None:
    async def call(place: Served, number: int) -> None:
        peer = PEERS[vendor](f"{number:032x}", GREET)
        async with Caller(address(place, peer), peer, noise=0.0) as caller:
            await until(caller, lambda: caller.figures.sound_seconds > 0.1)
        manager = place.app.manager
        assert manager is not None
        async with asyncio.timeout(20):
            for runner in manager.runners():
                await runner.done.wait()
        # The played ones keep what they were given, for tests to look at.
        vars(manager.perception)["_emit"].clear()
        engine.started.clear()

    engine = CountingEngine(seconds=6.0, delay=0.0)
    async with served(engine) as place:
        await call(place, 0)
        with no_collector():
            before = ours()
            for number in range(3):
                await call(place, number)
            await back_to(before)


def start_of(call: str, **parameters: str) -> list[str]:
    return [str(message) for message in TwilioPeer(call, parameters).begin()]


async def closing(place: Served, *messages: str | bytes, path: str = "/telephony/twilio", **options: Any) -> str:
    """Send `messages` and wait until the server closes; the reason that it gives."""
    async with connect(place.url.replace("http", "ws", 1) + path, proxy=None, **options) as socket:
        for message in messages:
            await socket.send(message)
        async with asyncio.timeout(10):
            await socket.wait_closed()
        return socket.close_reason or ""


async def refused(place: Served, path: str, **options: Any) -> tuple[int, str]:
    """Status and code of a handshake that must fail."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(place.url.replace("http", "ws", 1) + path, proxy=None, **options):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body or b"{}")["error"]["code"]


async def test_an_unknown_vendor_and_a_page_of_another_host_get_no_connection() -> None:
    async with served() as place:
        assert await refused(place, "/telephony/nobody") == (404, "unknown_vendor")
        assert await refused(place, "/telephony/twilio", origin="https://elsewhere.example") == (
            403,
            "origin_not_allowed",
        )


async def test_a_server_with_keys_takes_a_call_with_a_key_in_its_parameters_or_a_signature() -> None:
    secret, url = "auth-token-of-the-account", "wss://voice.example"
    async with served(api_keys=(API_KEY,)) as place:
        assert "invalid_api_key" in await closing(place, *start_of("one"))
        assert "invalid_api_key" in await closing(place, *start_of("one", token="wrong"))
        async with Caller(address(place, TwilioPeer()), TwilioPeer("two", {"token": API_KEY, **GREET})) as caller:
            await until(caller, lambda: caller.figures.sound_seconds > 0)
        assert place.app.counters.snapshot()["phone_calls_refused_twilio_invalid_api_key"] == 2
    async with served(api_keys=(API_KEY,), phone_secrets=(f"twilio={secret}",), phone_url=url) as place:
        assert await refused(place, "/telephony/twilio") == (403, "invalid_signature")
        bad = {"X-Twilio-Signature": twilio_signature("another", f"{url}/telephony/twilio")}
        assert await refused(place, "/telephony/twilio", additional_headers=bad) == (403, "invalid_signature")
        good = {"X-Twilio-Signature": twilio_signature(secret, f"{url}/telephony/twilio")}
        async with Caller(address(place, TwilioPeer()), TwilioPeer("three", GREET), good) as caller:
            await until(caller, lambda: caller.figures.sound_seconds > 0)


async def test_calls_from_addresses_that_are_on_no_list_are_refused() -> None:
    async with served(phone_allow=("203.0.113.0/24",)) as place:
        assert await refused(place, "/telephony/twilio") == (403, "address_not_allowed")
    async with (
        served(phone_allow=("203.0.113.0/24,127.0.0.0/8",)) as place,
        Caller(address(place, TwilioPeer()), TwilioPeer("in", GREET)) as caller,
    ):
        await until(caller, lambda: caller.figures.sound_seconds > 0)


async def test_one_number_holds_only_so_many_calls() -> None:
    async with served(phone_per_number=1) as place:
        async with Caller(address(place, TwilioPeer()), TwilioPeer("first", GREET)) as caller:
            await until(caller, lambda: caller.figures.sound_seconds > 0)
            assert "too_many_calls" in await closing(place, *start_of("second"))
        async with Caller(address(place, TwilioPeer()), TwilioPeer("third", GREET)) as caller:
            await until(caller, lambda: caller.figures.sound_seconds > 0)


async def test_what_a_call_says_of_itself_must_be_possible() -> None:
    async with served() as place:
        for parameters, code in (({"record": "maybe"}, "invalid_value"), ({"greet": "soon"}, "invalid_value")):
            assert code in await closing(place, *start_of("odd", **parameters))
        assert "invalid_value" in await closing(place, *start_of("odd", greet="\u00e9" * 100))
        async with Caller(address(place, TwilioPeer()), TwilioPeer("no", {**GREET, "record": "false"})) as caller:
            await until(caller, lambda: caller.figures.sound_seconds > 0)
            [one] = place.app.telephony._calls.values()
            assert one.application.config.recording_consent == "refused"
            assert dict(one.application.config.labels)["vendor"] == "twilio"


async def test_a_recording_says_whose_call_it_was_with_redacted_numbers_and_none_is_made_where_it_may_not_be(
    tmp_path: Path,
) -> None:
    async with served(record=tmp_path) as place:
        for call, may in (("kept", "true"), ("refused", "false")):
            async with Caller(address(place, TwilioPeer()), TwilioPeer(call, {**GREET, "record": may})) as caller:
                await until(caller, lambda caller=caller: caller.figures.sound_seconds > 0)
    # The server has ended, and with it the recorder.
    [manifest] = [path.read_text() for path in tmp_path.rglob("manifest.json")]
    labels = dict(json.loads(manifest)["config"]["labels"])
    assert labels == {"vendor": "twilio", "call": "kept", "from": "+*********23", "to": "+*********87"}
    assert "+15550100123" not in manifest


async def test_calls_are_listed_with_redacted_numbers_watched_hung_up_and_passed_on() -> None:
    async with served() as place, place.http() as http:
        peer = TwilioPeer("listed", {**GREET, "instructions": "Be brief.", "language": "en"})
        async with Caller(address(place, peer), peer) as caller:
            await until(caller, lambda: caller.figures.sound_seconds > 0)
            [shown] = (await http.get("/telephony/calls")).json()["calls"]
            assert (shown["vendor"], shown["call"], shown["from"], shown["to"]) == (
                "twilio",
                "listed",
                "+*********23",
                "+*********87",
            )
            watch = f"{place.realtime.partition('?')[0]}?call_id={shown['id']}"
            async with connect(watch, proxy=None) as application:
                created = json.loads(await application.recv())
                assert created["session"]["instructions"] == "Be brief."
                await application.send(
                    json.dumps(
                        {"type": "session.update", "session": {"type": "realtime", "x_talkover": {"notices": True}}}
                    )
                )
                while json.loads(await application.recv())["type"] != "session.updated":
                    pass
                await caller.send(peer.press("5"))
                told = json.loads(await application.recv())
                while told["type"] != "x_talkover.digit_heard":
                    told = json.loads(await application.recv())
                assert told["digit"] == "5"
                await application.send(json.dumps({"type": "response.cancel"}))
                await until(caller, lambda: caller.figures.clears > 0)
            assert (await http.post("/telephony/calls/phone_no/hangup")).status_code == 404
            assert (await http.post(f"/telephony/calls/{shown['id']}/transfer", json={})).status_code == 400
            answer = await http.post(f"/telephony/calls/{shown['id']}/transfer", json={"to": "+15550000000"})
            assert answer.status_code == 200
            async with asyncio.timeout(5):
                await caller.over.wait()
            assert caller.figures.closed == "1000 transfer"
        assert (await http.get("/telephony/calls")).json() == {"calls": []}


async def test_a_call_whose_line_was_lost_comes_back_to_its_session_and_is_not_greeted_again() -> None:
    async with served(CountingEngine(seconds=1.0, delay=0.0)) as place, place.http() as http:
        where = place.url.replace("http", "ws", 1) + "/telephony/twilio"
        first = await connect(where, proxy=None)
        for message in start_of("lost", **GREET):
            await first.send(message)
        assert json.loads(await first.recv())["event"] == "media"
        session = (await http.get("/telephony/calls")).json()["calls"][0]["session"]
        first.transport.abort()
        peer = TwilioPeer("lost", GREET)
        async with Caller(address(place, peer), peer, noise=0.0) as caller:
            async with asyncio.timeout(5):
                while True:
                    [shown] = (await http.get("/telephony/calls")).json()["calls"]
                    if shown["connections"] == 2:
                        break
            assert shown["session"] == session
            caller.say(loud(peer, 0.5))
            await until(caller, lambda: caller.figures.answer_after is not None)
            await until(caller, lambda: caller.figures.sound_seconds >= 1.0)
            assert caller.figures.sound_seconds < 1.1
        assert place.app.counters.snapshot()["phone_calls_reconnected"] == 1


async def counted(place: Served, name: str) -> None:
    """Wait until something of that name was counted; the server is asked, which lets it work."""
    async with asyncio.timeout(5), place.http() as http:
        while name not in (await http.get("/metrics")).text:
            pass


GOOD = '{"event":"media","media":{"payload":"////"}}'


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ((GOOD,), "not_started"),
        ((*start_of("a"), start_of("a")[1]), "already_started"),
        ((*start_of("b"), '{"event":"media","media":{"payload":"%%%"}}'), "invalid_value"),
        ((*start_of("c"), '{"event":"media","media":{"payload":"/"}}'), "invalid_value"),
        ((*start_of("d"), "{"), "invalid_json"),
        ((*start_of("e"), b"\x00\x01"), "invalid_message"),
        ((*start_of("f"), '{"event":"dance"}'), "invalid_value"),
        ((*start_of("g"), '{"event":"dtmf","dtmf":{"digit":"x"}}'), "invalid_value"),
        (
            (
                *start_of("h"),
                '{"event":"media","media":{"chunk":"1","payload":"////"}}',
                '{"event":"media","media":{"chunk":"1","payload":"////"}}',
            ),
            "duplicate_chunk",
        ),
        ((start_of("i")[0], start_of("i")[1].replace("x-mulaw", "x-opus2")), "unsupported"),
        ((start_of("j")[0], start_of("j")[1].replace("8000", "16000")), "unsupported"),
    ],
)
async def test_what_is_wrong_is_refused_by_name_counted_and_disturbs_no_neighbour(
    messages: tuple[str | bytes, ...], code: str
) -> None:
    async with served(CountingEngine(seconds=0.6, delay=0.0)) as place:
        neighbour = TwilioPeer("neighbour", GREET)
        async with Caller(address(place, neighbour), neighbour, noise=0.0) as caller:
            async with connect(place.url.replace("http", "ws", 1) + "/telephony/twilio", proxy=None) as socket:
                for message in messages:
                    await socket.send(message)
                await counted(place, f"phone_messages_refused_{code}")
            await until(caller, lambda: caller.figures.sound_seconds >= 0.6)
        snapshot = place.app.counters.snapshot()
        assert snapshot["session_fault"] == snapshot["stale_at_gate"] == 0


async def test_a_peer_that_only_says_nonsense_is_given_up() -> None:
    async with served() as place:
        assert await closing(place, *start_of("mad"), *["{"] * 250) == "too_many_errors"


async def test_a_flood_is_dropped_and_ends_its_call_alone() -> None:
    async with served(CountingEngine(seconds=2.0, delay=0.0)) as place:
        neighbour = TwilioPeer("neighbour", GREET)
        async with Caller(address(place, neighbour), neighbour, noise=0.0) as caller:
            second = json.dumps({"event": "media", "media": {"payload": "/" * 10664 + "//8="}})
            assert await closing(place, *start_of("flood"), *[second] * 100) == "flood"
            await until(caller, lambda: caller.figures.sound_seconds >= 2.0)
        assert place.app.counters.snapshot()["phone_audio_flood"] > 10


async def test_a_connection_without_a_call_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PhoneCarrier.start, "__defaults__", (0.2,))
    async with served() as place:
        assert "start_timeout" in await closing(place, start_of("none")[0])
        assert place.app.counters.snapshot()["phone_calls_refused_twilio_start_timeout"] == 1


async def test_audiosocket_is_paced_and_a_barge_in_stops_it() -> None:
    async with served(CountingEngine(seconds=6.0, delay=0.0), audiosocket_port=0, phone_greet_ms=0) as place:
        peer = AudioSocketPeer("5a1e0000000040008000000000000007", rate=16_000)
        async with Caller(address(place, peer), peer, noise=0.0) as caller:
            await until(caller, lambda: caller.figures.sound_seconds > 0.5)
            caller.say(loud(peer, 0.6))
            await caller.spoken.wait()
            sent = caller.figures.sound_seconds
            await caller.send(peer.press("7"))
            # Speech over it for 200 ms ends it; the answer to it comes after 500 ms of silence.
            assert sent < 6.0
        await counted(place, "phone_calls_ended_stopped")
        assert place.app.counters.snapshot()["interruptions"] == 1


async def test_connect_documents_name_the_stream_and_hand_parameters_on() -> None:
    async with served(phone_url="wss://voice.example") as place, place.http() as http:
        asked = await http.post(
            "/telephony/twilio/connect?instructions=a%26b",
            data={"From": "+15550100123", "To": "+1555", "CallSid": "CA"},
        )
        assert asked.headers["content-type"].startswith("application/xml")
        assert '<Stream url="wss://voice.example/telephony/twilio">' in asked.text
        assert '<Parameter name="instructions" value="a&amp;b"/>' in asked.text
        assert '<Parameter name="from" value="+15550100123"/>' in asked.text
        ncco = (await http.get("/telephony/vonage/connect?from=1&to=2&uuid=u&voice=v")).json()
        [endpoint] = ncco[0]["endpoint"]
        assert endpoint["headers"] == {"voice": "v", "from": "1", "to": "2", "call": "u"}
        assert endpoint["uri"] == "wss://voice.example/telephony/vonage"
        verbs = (await http.post("/telephony/jambonz/connect", json={"from": "1", "to": "2", "call_sid": "c"})).json()
        assert verbs[0]["bidirectionalAudio"]["streaming"] is True
        assert (await http.get("/telephony/nobody/connect")).status_code == 404


def test_audiosocket_is_taken_on_the_event_loop_that_servers_run_on() -> None:
    async def call() -> float:
        async with served(audiosocket_port=0, phone_greet_ms=0) as place:
            peer = AudioSocketPeer("5a1e0000000040008000000000000008")
            async with Caller(address(place, peer), peer, noise=0.0) as caller:
                await until(caller, lambda: caller.figures.sound_seconds > 0.1)
            return caller.figures.sound_seconds

    assert serve.run(call()) > 0.1
