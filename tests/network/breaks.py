"""A network that goes away and comes back, with the same address or another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from codec.opus import OpusDecoder
from tests.caller import Json, Received

from .emulator import Conditions
from .place import CLIENT, MOVED, FarCaller, Place

OLD_HZ: Final = 440
NEW_HZ: Final = 1320
"""The first reply and the second; neither is near a harmonic that the other's coding makes."""
SCRIPT: Final = f"""
[[reply]]
tone_hz = {OLD_HZ}
seconds = 20.0

[[reply]]
tone_hz = {NEW_HZ}
seconds = 20.0
"""
SESSION: Final[Json] = {
    "type": "realtime",
    "audio": {"input": {"turn_detection": None}},
    "x_talkover": {"notices": True, "resume": True},
}
REMEMBERED: Final = "The word is heron."
RATE: Final = 24_000
LEVEL: Final = 300.0
"""Amplitude from which a tone counts as heard; the replies have thousands."""
CLEAN: Final = Conditions(delay_ms=40)


def tone(pcm: bytes, hz: float) -> float:
    """Amplitude of a tone in int16 samples at RATE."""
    samples = np.frombuffer(pcm, "<i2").astype(float)
    if not len(samples):
        return 0.0
    turns = np.exp(-2j * np.pi * hz / RATE * np.arange(len(samples)))
    return float(2 * abs(np.mean(samples * turns)))


def heard(packets: list[Received], hz: float) -> int:
    """In how many packets a tone is heard, decoded in their order as an ear would."""
    decoder = OpusDecoder(RATE)
    return sum(tone(decoder.decode(packet.payload), hz) > LEVEL for packet in packets)


def since(packets: list[Received], timestamp: int) -> list[Received]:
    """Those with that RTP timestamp or a later one."""
    return [one for one in packets if (one.timestamp - timestamp) % (1 << 32) < 1 << 31]


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut that the call survived. `back_ms`: from the network's return to the first packet; `event_ms`: to the answer
    to an event said during the cut. `behind_ms`: how much later than before the cut packets then are. `stale`: packets
    of the old reply after the epoch that the next command began."""

    survived: bool
    same_history: bool
    back_ms: float
    event_ms: float
    behind_ms: float
    stale: int
    new_heard: int
    stale_at_gate: int


@dataclass(frozen=True, slots=True)
class Rejoined:
    """A new connection to the same session. `joined_ms`: from the network's return, or the new address, to
    `session.created`; `old_heard`: packets of the old reply on it; `begun`: responses that began unasked."""

    same_session: bool
    new_token: bool
    same_history: bool
    epochs: int
    joined_ms: float
    old_heard: int
    begun: int
    new_heard: int
    old_status: str
    stale_at_gate: int


@contextlib.asynccontextmanager
async def _talking(place: Place) -> AsyncIterator[tuple[FarCaller, Json]]:
    """A call with a history, in which the first reply has sounded for two seconds, and its session."""
    caller = await place.call(FarCaller(), SESSION)
    async with caller.microphone():
        yield caller, await _begun(caller)
    # What has no way to its peer any more may not end in order.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(caller.close(), 5)


async def _begun(caller: FarCaller) -> Json:
    created = await caller.event("session.created")
    content = [{"type": "input_text", "text": REMEMBERED}]
    item = {"id": "remembered", "type": "message", "role": "user", "content": content}
    caller.say({"type": "conversation.item.create", "item": item})
    await caller.event("conversation.item.added")
    caller.report({"rtp": None, "at_ms": 1.0})
    await caller.until(lambda: bool(caller.reports))
    caller.say({"type": "response.create"})
    await caller.until(lambda: len(caller.sounding) > 100)
    session: Json = created["session"]
    return session


async def _remembers(caller: FarCaller) -> bool:
    caller.say({"type": "conversation.item.retrieve", "item_id": "remembered"})
    found = await caller.event("conversation.item.retrieved")
    return bool(found["item"]["content"][0]["text"] == REMEMBERED)


async def _second_reply(caller: FarCaller) -> int:
    """Ask for the next reply and count the packets in which it is heard."""
    before = len(caller.packets)
    sounding = len(caller.sounding)
    caller.say({"type": "response.create"})
    await caller.until(lambda: len(caller.sounding) > sounding + 50)
    return heard(caller.packets[before:], NEW_HZ)


def _offset(packet: Received, first: Received) -> float:
    """When it came, less when it was due, in seconds of any origin."""
    return packet.at - ((packet.timestamp - first.timestamp) % (1 << 32)) / 48_000


async def _through(place: Place, caller: FarCaller, seconds: float) -> Cut:
    loop = asyncio.get_running_loop()
    before = min(_offset(one, caller.packets[0]) for one in caller.packets[-50:])
    place.both(Conditions(cut=True))
    await asyncio.sleep(seconds / 2)
    caller.say({"type": "conversation.item.retrieve", "item_id": "remembered"})
    await asyncio.sleep(seconds / 2)
    count = len(caller.packets)
    place.both(CLEAN)
    back = loop.time()
    answered: list[float] = []
    caller.on_event = lambda event: answered.append(loop.time())
    await caller.until(lambda: len(caller.packets) > count + 50)
    found = await caller.event("conversation.item.retrieved")
    after = min(_offset(one, caller.packets[0]) for one in caller.packets[count + 10 : count + 50])
    caller.say({"type": "response.cancel"})
    edge = (await caller.event("x_talkover.mute"))["mute_until_rtp"]
    new = await _second_reply(caller)
    result = Cut(
        survived=caller.connection.connectionState == "connected",
        same_history=found["item"]["content"][0]["text"] == REMEMBERED,
        back_ms=1000 * (caller.packets[count].at - back),
        event_ms=1000 * (answered[0] - back),
        behind_ms=1000 * (after - before),
        stale=heard(since(caller.packets, edge), OLD_HZ),
        new_heard=new,
        stale_at_gate=(await place.counters())["stale_at_gate"],
    )
    await place.hang_up(caller)
    return result


def cut(seconds: float = 3.0, seed: int = 1) -> Cut:
    """Nothing passes for `seconds`, either way, while a reply sounds; then it is cancelled and the next asked for."""
    with Place(script=SCRIPT, seed=seed) as place:

        async def work() -> Cut:
            place.both(CLEAN)
            async with _talking(place) as (caller, _):
                return await _through(place, caller, seconds)

        return place.client(work)


async def _join(place: Place, old: FarCaller, session: Json, address: str) -> Rejoined:
    began = asyncio.get_running_loop().time()
    own = {"session": session["id"], "token": session["x_talkover"]["resume_token"]}
    caller = await place.call(FarCaller(address), {"type": "realtime", "x_talkover": {"resume": own}})
    async with caller.microphone():
        created = (await caller.event("session.created"))["session"]
        joined = asyncio.get_running_loop().time() - began
        done = await caller.event("response.done")
        caller.report({"rtp": None, "at_ms": 1.0})
        await caller.until(lambda: bool(caller.reports) and len(caller.packets) > 50)
        begun = sum(one["type"] == "response.created" for one in caller.events)
        history = await _remembers(caller)
        new = await _second_reply(caller)
    result = Rejoined(
        same_session=created["id"] == session["id"],
        new_token=created["x_talkover"]["resume_token"] != own["token"],
        same_history=history,
        epochs=caller.reports[0]["epoch"] - old.reports[-1]["epoch"],
        joined_ms=1000 * joined,
        old_heard=heard(caller.packets, OLD_HZ),
        begun=begun,
        new_heard=new,
        old_status=done["response"]["status"],
        stale_at_gate=(await place.counters())["stale_at_gate"],
    )
    await place.hang_up(caller)
    await caller.close()
    return result


def rejoin(seconds: float = 8.0, seed: int = 1) -> Rejoined:
    """Nothing passes for longer than a call lives; the client joins its session again when the network is back."""
    with Place(script=SCRIPT, seed=seed) as place:

        async def work() -> Rejoined:
            place.both(CLEAN)
            async with _talking(place) as (caller, session):
                place.both(Conditions(cut=True))
                await asyncio.sleep(seconds)
                place.both(CLEAN)
                return await _join(place, caller, session, CLIENT)

        return place.client(work)


def move(seed: int = 1) -> Rejoined:
    """The client's address changes while a reply sounds, and it joins its session from the new one at once."""
    with Place(script=SCRIPT, seed=seed) as place:

        async def work() -> Rejoined:
            place.both(CLEAN)
            async with _talking(place) as (caller, session):
                place.move()
                return await _join(place, caller, session, MOVED)

        return place.client(work)
