"""One response on its way through the embedded engine, and the session that it belongs to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codec.frames import CodecFrame
from codec.identity import CodecIdentity
from sessions.core.effects import StartResponse
from sessions.core.events import EngineDone, EngineFailed, EngineStage, Event
from sessions.core.fence import Fence
from sessions.core.timeline import TICK_RATE, Ticks
from sessions.ports import Emit

from ...envelope import TEXT, Border, EdgeContract, TransferEnvelope, Versions
from ...graph.states import StateKind
from ..catalog import embedded as catalog
from ..lane import ResponseLane
from .gate import Urgency
from .stop import Stop
from .thinker import Thinking

if TYPE_CHECKING:
    # It needs torch, which only an engine with a codec does.
    from .voice_codec import Utterance

_CHARACTER: Ticks = TICK_RATE // 15
"""About how long a character sounds; for urgency only."""


_GRAPH = catalog.FAMILY.graph(catalog.FAMILY.published["embedded"])
_CLAUSES = EdgeContract.of(_GRAPH, "thinker.text -> talker.clauses", frozenset({TEXT}))
"""What crosses from the thinker's thread to the talker's."""


def codes_contract(identity: CodecIdentity) -> EdgeContract:
    """What crosses from the codec's encoder to its decoder."""
    of_any = EdgeContract.of(
        _GRAPH, "rvq_encoder.codes -> rvq_decoder.codes", frozenset({"int64"}), Versions(codec=identity)
    )
    return replace(of_any, sizes={**of_any.sizes, "Q": identity.codebooks, "K": identity.codebook_size})


@dataclass(frozen=True, slots=True)
class Clause:
    """A stretch of text to be spoken, with the envelope that it was given where it was made."""

    text: str
    envelope: TransferEnvelope


class Reply:
    """One response on its way. `changed` of the engine guards `clauses`, `unspoken`, `thinking` and `utterance`."""

    def __init__(
        self, request: StartResponse, session: OpenSession, rate: int, order: int, codes: EdgeContract | None
    ) -> None:
        """`codes`: what its codes must be; None where its voice goes as PCM."""
        self.request = request
        self.order = order
        self.stop = Stop()
        self.lane = ResponseLane(request.fence, request.response, request.credit, rate, session.emit)
        self.clauses: deque[Clause | Event] = deque()
        self.border = Border(_CLAUSES, request.response, session.tenant, lambda: session.fence_for(request.fence))
        self.tenant = session.tenant
        self.utterance: Utterance | None = None
        """The clause that is on its way through the codec."""
        self.coded_frames = 0
        """Of the clauses before it."""
        self.codes = (
            None
            if codes is None
            else Border(codes, request.response, session.tenant, lambda: session.fence_for(request.fence))
        )
        self._made = 0
        self._chunks = 0
        self._characters = 0
        self.unspoken = 0
        self.thinking: Thinking | None = None
        self.stages: set[str] = set()

    def clause(self, text: str) -> Clause:
        """The next stretch of text, stamped. Called on the thinking thread only."""
        begin, self._characters = self._characters, self._characters + len(text)
        number, self._made = self._made, self._made + 1
        return Clause(
            text,
            TransferEnvelope(
                request=self.request.response,
                tenant=self.tenant,
                fence=self.request.fence,
                kind=StateKind.TOKEN,
                shape=(1, len(text)),
                dtype=TEXT,
                start=begin,
                end=self._characters,
                sequence=number,
                owner="thinker",
            ),
        )

    def chunk(self, frames: tuple[CodecFrame, ...], identity: CodecIdentity) -> TransferEnvelope:
        """What those frames travel with. Called on the talking thread only."""
        number, self._chunks = self._chunks, self._chunks + 1
        return TransferEnvelope(
            request=self.request.response,
            tenant=self.tenant,
            fence=self.request.fence,
            kind=StateKind.CODE,
            shape=(1, len(frames), identity.codebooks),
            dtype="int64",
            versions=Versions(codec=identity),
            start=frames[0].start,
            end=frames[-1].end,
            sequence=number,
            owner="rvq_encoder",
        )

    def thinking_urgency(self) -> Urgency:
        """Who has no clause yet goes first, in order of arrival; then whoever would fall silent first."""
        if "first_clause" not in self.stages:
            return (0, self.order)
        utterance = self.utterance
        uncoded = utterance.left if utterance is not None else 0
        return (1, self.lane.ahead + uncoded + self.unspoken * _CHARACTER)

    def talking_urgency(self) -> Urgency:
        """Who has not been heard yet goes first, in order of arrival; then whoever would fall silent first."""
        return (1, self.lane.ahead) if "first_audio" in self.stages else (0, self.order)

    def stage(self, name: str) -> None:
        if name not in self.stages:
            self.stages.add(name)
            self.lane.post(EngineStage(self.request.fence, self.request.response, name))

    def post(self, event: Event) -> None:
        self.lane.post(event, last=isinstance(event, EngineDone | EngineFailed))


NOBODY = "without a key"
"""Tenant of the sessions that come without one; they are one another's."""


class OpenSession:
    """A session that is open at the engine."""

    def __init__(self, fence: Fence, tenant: str, emit: Emit) -> None:
        self.fence = fence
        self.emit = emit
        self.tenant = tenant or NOBODY
        self.gone = Stop()
        self.replies: dict[str, Reply] = {}

    def fence_for(self, fence: Fence) -> Fence:
        """What holds for work under `fence`: itself, unless the session has moved on."""
        return fence if fence.order >= self.fence.order else self.fence
