"""An agent that hears itself: what a loudspeaker in a room costs, with the echo gate and without.

`python -m tests.bench.echo --spawn` plays each spoken answer into a simulated room (direct sound and a decaying tail,
60 to 200 ms later) and back into the microphone. Nobody else speaks: every hold is a false one, and every interruption.
Then the commands of the test split are spoken over answers in the same room: they must still interrupt.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from server.client import FRAME, RATE, ClientError, Pcm, RealtimeClient
from tests.bench.bargein import DELTA, HELD, STARTED, interrupt, request_reply
from tests.bench.report import percentile, progress, table, write
from tests.bench.target import arguments, server
from tests.speech import Clip, load

Signal = NDArray[np.float64]

SECONDS = 12.0
"""How much of an answer is listened to where nobody interrupts."""


@dataclass(frozen=True, slots=True)
class Place:
    """A room: from loudspeaker to microphone `ms` pass and `db` remain; the tail decays by 60 dB in `reverberation` s,
    and the direct sound is `direct_db` above it."""

    name: str
    ms: float
    db: float
    reverberation: float
    direct_db: float

    def response(self) -> Signal:
        """Impulse response at 24 kHz, without the delay."""
        length = round(self.reverberation * RATE)
        tail = np.random.default_rng(3).normal(size=length) * 10 ** (-3 * np.arange(length) / length)
        tail *= np.sqrt(10 ** (-self.direct_db / 10) / np.sum(tail**2))
        tail[0] = 1.0
        return np.asarray(tail * 10 ** (self.db / 20) / np.sqrt(np.sum(tail**2)), np.float64)


PLACES = (
    Place("laptop on a desk", 60, -10, 0.2, 6),
    Place("phone, loud", 120, -3, 0.15, 6),
    Place("speakers in a room", 90, -12, 0.4, 0),
    Place("call over a network", 200, -20, 0.3, 3),
)


class Loudspeaker(RealtimeClient):
    """A client whose loudspeaker is heard by its microphone."""

    def __init__(self, url: str, session: Mapping[str, object], place: Place) -> None:
        super().__init__(url, session)
        self._room = place.response()
        self._delay = place.ms / 1000
        self._seen = 0
        self._parts: list[tuple[float, Pcm]] = []
        self._head = 0.0

    def _next_frame(self, began: float) -> Pcm:
        self._play()
        reach = len(self._room) - 1
        direct = self._sounding(began - self._delay - reach / RATE, FRAME + reach)
        echo = np.convolve(direct, self._room, "valid")
        return np.clip(super()._next_frame(began) + np.round(echo), -32768, 32767).astype("<i2")

    def _play(self) -> None:
        """Take what came since: audio follows what plays, speech of the user flushes it."""
        for event in self.events[self._seen :]:
            if event.type == DELTA:
                pcm = event.pcm()
                self._head = max(self._head, event.at)
                self._parts.append((self._head, pcm))
                self._head += len(pcm) / RATE
            elif event.type == STARTED:
                self._head = min(self._head, event.at)
                self._parts = [
                    (at, pcm[: max(0, round((event.at - at) * RATE))]) for at, pcm in self._parts if at < event.at
                ]
        self._seen = len(self.events)
        self._parts = [(at, pcm) for at, pcm in self._parts if at + len(pcm) / RATE > self.now - 2]

    def _sounding(self, start: float, count: int) -> Signal:
        """`count` samples of the loudspeaker from clock time `start` on."""
        out = np.zeros(count)
        for at, pcm in self._parts:
            place = round((at - start) * RATE)
            first, last = max(0, -place), min(len(pcm), count - place)
            if first < last:
                out[place + first : place + last] += pcm[first:last]
        return out


@dataclass(slots=True)
class Outcome:
    """What became of the answers in one place."""

    place: str
    gate: bool
    seconds: float = 0.0
    """Answer that was listened to."""
    holds: int = 0
    interruptions: int = 0
    commands: int = 0
    missed: int = 0
    commit_p50_ms: float = 0.0
    commit_p95_ms: float = 0.0


def session_for(kind: str, gate: bool) -> dict[str, object]:
    detection = {"type": kind, "create_response": False, "x_echo_gate": gate}
    return {
        "type": "realtime",
        "audio": {"input": {"turn_detection": detection}},
        "x_talkover": {"notices": True},
    }


async def listen(url: str, session: Mapping[str, object], place: Place, answers: int, outcome: Outcome) -> None:
    """Answers that nobody interrupts."""
    for _ in range(answers):
        async with Loudspeaker(url, session, place) as client:
            client.open_microphone()
            await client.pause(0.5)
            await request_reply(client)
            audio = await client.wait_for(DELTA)
            ends = client.now + SECONDS
            while client.now < ends and not client.of(STARTED) and not _finished(client):
                await client.pause(0.1)
            outcome.seconds += client.now - audio.at
            outcome.holds += len(client.of(HELD))
            outcome.interruptions += len(client.of(STARTED))


def _finished(client: RealtimeClient) -> bool:
    return bool(client.of("response.done")) and client.now > client.of(DELTA)[-1].at + 1.0


async def speak_over(
    url: str, session: Mapping[str, object], place: Place, clips: Sequence[Clip], outcome: Outcome
) -> None:
    """Answers that `clips` are spoken over, a second and a half after their beginning."""
    commits = []
    for clip in clips:
        async with Loudspeaker(url, session, place) as client:
            client.open_microphone()
            await client.pause(0.5)
            await request_reply(client)
            audio = await client.wait_for(DELTA)
            await client.pause(1.5)
            outcome.commands += 1
            try:
                result = await interrupt(client, clip, audio.response)
            except ClientError:
                outcome.missed += 1
                continue
            if result.commit is None:
                outcome.missed += 1
            else:
                commits.append(result.commit)
    outcome.commit_p50_ms = round(percentile(commits, 0.5) * 1000, 1)
    outcome.commit_p95_ms = round(percentile(commits, 0.95) * 1000, 1)


async def measure(url: str, kind: str, answers: int, clips: Sequence[Clip], gates: Sequence[bool]) -> list[Outcome]:
    outcomes = []
    for place in PLACES:
        for gate in gates:
            outcome = Outcome(place.name, gate)
            await listen(url, session_for(kind, gate), place, answers, outcome)
            if gate:
                await speak_over(url, session_for(kind, gate), place, clips, outcome)
            outcomes.append(outcome)
            progress(str(asdict(outcome)))
    return outcomes


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--detection", choices=("server_vad", "semantic_vad"), default="semantic_vad")
    parser.add_argument("--answers", type=int, default=4, metavar="N", help="answers per place (default: 4)")
    parser.add_argument("--gate-only", action="store_true", help="leave out the runs without the gate")
    options = parser.parse_args()
    clips = load("commands", "test")[: options.limit or 10]
    gates = [True] if options.gate_only else [False, True]
    with server(options, "embedded", None) as target:
        outcomes = asyncio.run(measure(target.url, options.detection, options.answers, clips, gates))
    rows = [
        [
            one.place,
            "on" if one.gate else "off",
            one.seconds,
            one.holds,
            one.interruptions,
            f"{one.commands - one.missed}/{one.commands}" if one.commands else "-",
            one.commit_p50_ms,
        ]
        for one in outcomes
    ]
    print(f"\n{options.detection}, the agent through a loudspeaker:")
    print(table(rows, ("place", "gate", "s of answer", "false holds", "false cuts", "commands", "commit p50 ms")))
    write({"bench": "echo", "detection": options.detection, "each": [asdict(one) for one in outcomes]}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
