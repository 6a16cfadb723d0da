"""What is asserted in every scene: stale audio, the history, and a neighbour who must notice nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterable
from itertools import chain
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from tests.server.test_resumable import Client, ask

Json = dict[str, Any]

DELTA = "response.output_audio.delta"
QUESTION = "tell me"


async def dial(realtime: str, **options: Any) -> Client:
    """A connection of a client that may come back to its session."""
    # Whether a peer lives is judged by the scenes, and not by this library after so many seconds of a busy machine.
    return Client(await connect(f"{realtime}&duplex=1&autostart=0", proxy=None, ping_interval=None, **options))


async def begin(realtime: str, **options: Any) -> tuple[Client, Json]:
    """A session without turn detection, and its `session.created`."""
    client = await dial(realtime, **options)
    await client.say("session.update", session={"turn_detection": None})
    created = await client.hear("session.created")
    await client.hear("session.updated")
    return client, created


async def back(realtime: str, created: Json, token: str, after: int) -> Client:
    """The client of a session on a new connection; `session.resumed` is to be heard."""
    client = await dial(realtime)
    session = created["session"]["id"]
    await client.say("session.resume", session_id=session, resume_token=token, last_received_server_event_seq=after)
    return client


async def speaking(client: Client, deltas: int = 5) -> None:
    """Ask, and hear so much of the answer."""
    await ask(client, QUESTION)
    for _ in range(deltas):
        await client.hear(DELTA)


def deltas(client: Client) -> list[Json]:
    return [event for event in client.events if event["type"] == DELTA]


def stale(*connections: Client) -> int:
    """Audio of an epoch that is over, or of a response that has ended; the connections of one session, in order."""
    newest, over, found = -1, set(), 0
    for event in chain.from_iterable(client.events for client in connections):
        if event["type"] == DELTA:
            found += event["x_epoch"] < newest or event["response_id"] in over
            newest = max(newest, event["x_epoch"])
        elif event["type"] == "response.done":
            over.add(event["response"]["id"])
    return found


def errors(client: Client) -> list[str]:
    return [event["error"]["code"] for event in client.events if event["type"] == "error"]


async def history(client: Client, *connections: Client) -> list[str]:
    """What the server now has of the items that were told on these connections, in the order of their telling."""
    told = chain.from_iterable(one.events for one in connections or (client,))
    items = dict.fromkeys(event["item"]["id"] for event in told if event["type"] == "conversation.item.added")
    texts = []
    for item in items:
        await client.say("conversation.item.retrieve", item_id=item)
        content = (await client.hear("conversation.item.retrieved"))["item"]["content"]
        texts.append(" ".join(part.get("text") or part.get("transcript") or "" for part in content).strip())
    return texts


def samples(events: Iterable[Json]) -> np.ndarray:
    """The audio of deltas: int16, mono."""
    return np.frombuffer(b"".join(base64.b64decode(event["delta"]) for event in events), "<i2")


@contextlib.asynccontextmanager
async def neighbour(realtime: str, *, counts: bool = False) -> AsyncIterator[None]:
    """Somebody else's session, in which an answer is heard all the while: it must come whole.

    `counts`: the engine counts its samples, so that it shows where one is missing or comes twice.
    """
    client, _ = await begin(realtime)
    await speaking(client, 1)
    reading = asyncio.create_task(client.hear("response.done"))
    try:
        yield
    except BaseException:
        reading.cancel()
        raise
    done = (await reading)["response"]
    assert (done["status"], errors(client), stale(client)) == ("completed", [], 0)
    numbers = client.numbers()
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    heard = samples(deltas(client))
    assert len(heard) > 0
    if counts:
        assert (np.diff(heard.astype(np.int32)) % 32768 == 1).all()
    assert (await history(client))[0] == QUESTION
    await client.say("session.close")
    await client.ended()
