"""The transfer envelope: what travels with every payload that leaves a stage, and the border that reads it.

How a payload is moved (reference, shared memory, network) says nothing about whether it may be moved, is the right
version, is still wanted, or who frees it. The envelope says that, and a `Border` at the receiving stage checks it
before the payload is used: each fault has an error type of its own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Protocol, TypeAlias, runtime_checkable

from codec.identity import CodecIdentity
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks

from .graph.graph import ModelGraph
from .graph.shapes import Shape, ShapeMismatch
from .graph.states import Placement, StateKind

TEXT = "utf-8"
"""The dtype of a payload that is text; its last axis counts characters."""

ITEM_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}


class TransferRefused(ValueError):
    """A payload was refused at a border. `field` names what is wrong in its envelope, `border` the edge."""

    field = "envelope"

    def __init__(self, border: str, message: str, field: str | None = None) -> None:
        self.border = border
        if field is not None:
            self.field = field
        super().__init__(f"{border}: {self.field}: {message}")


class WrongKind(TransferRefused):
    """Another kind of state than the edge carries."""

    field = "kind"


class WrongRequest(TransferRefused):
    """Of another request."""

    field = "request"


class WrongTenant(TransferRefused):
    """Of another tenant."""

    field = "tenant"


class StaleFence(TransferRefused):
    """Made under a fence that does not hold any more, or not here."""

    field = "fence"


class WrongVersion(TransferRefused):
    """Made by another model, tokenizer or codec than the receiver works with."""

    field = "versions"


class WrongShape(TransferRefused):
    """A shape that the edge does not carry, or that the payload does not have."""

    field = "shape"


class WrongDtype(TransferRefused):
    """A dtype that the edge does not carry, or that the payload does not have."""

    field = "dtype"


class WrongLayout(TransferRefused):
    """A memory layout, a device or an owner that the edge cannot take."""

    field = "layout"


class BadSpan(TransferRefused):
    """A position or time range that is none, or does not begin where the one before it ended."""

    field = "span"


class OutOfSequence(TransferRefused):
    """A sequence number that was there already, or that leaves a gap."""

    field = "sequence"


class AfterLast(TransferRefused):
    """Something came after the one that was marked as the last."""

    field = "last"


class MissingTerms(TransferRefused):
    """The edge needs terms that the envelope does not hold: of the session, or of the remote transfer."""

    field = "terms"


class Cancelled(TransferRefused):
    """Session state of a generation that was cancelled since."""

    field = "cancel_generation"


class ChecksumMismatch(TransferRefused):
    """The bytes are not those that were sent."""

    field = "checksum"


class DeadlineExpired(TransferRefused):
    """It came after its deadline, so nobody wants it any more."""

    field = "deadline"


@dataclass(frozen=True, slots=True)
class Versions:
    """Who made it, or for whom it is: digests or names of versions; empty where the edge does not depend on it."""

    model: str = ""
    tokenizer: str = ""
    codec: CodecIdentity | None = None


class Retry(Enum):
    """What a sender may do when no acknowledgement comes."""

    AGAIN = "may be sent again"
    """The receiver knows it by its sequence number."""
    RECOMPUTE = "must be made again"
    NEVER = "must not be sent again"


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """What session state carries besides. `retention` in seconds, from the end of the session."""

    turn: str
    retention: int
    cancel_generation: int


@dataclass(frozen=True, slots=True)
class RemoteTerms:
    """What a transfer to another machine carries besides. `deadline` on the session's timeline."""

    checksum: str
    deadline: Ticks
    retry: Retry
    acknowledge: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferEnvelope:
    """Everything about a payload but the payload.

    `start` and `end` are its half-open range in what the edge counts (ticks, frames, characters); `owner` names the
    stage that frees the memory.
    """

    request: str
    tenant: str
    fence: Fence
    kind: StateKind
    shape: tuple[int, ...]
    dtype: str
    start: int
    end: int
    sequence: int
    owner: str
    last: bool = False
    layout: str = "contiguous"
    device: str = "cpu"
    versions: Versions = Versions()
    session: SessionTerms | None = None
    remote: RemoteTerms | None = None


@runtime_checkable
class Tensor(Protocol):
    """An array of numpy or torch."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> object: ...


Payload: TypeAlias = "Tensor | str | bytes | memoryview"


def checksum_of(payload: bytes | memoryview) -> str:
    """BLAKE2b, 16 bytes, in hexadecimal."""
    return hashlib.blake2b(payload, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class EdgeContract:
    """What one edge of a graph takes. `sizes` are the symbols of `shape` that are fixed."""

    name: str
    kind: StateKind
    shape: Shape
    dtypes: frozenset[str]
    placement: Placement
    versions: Versions = Versions()
    sizes: Mapping[str, int] = field(default_factory=dict)
    devices: frozenset[str] = frozenset({"cpu"})
    layout: str = "contiguous"
    contiguous: bool = True
    """Whether each range begins where the one before it ended; else there may be gaps, but nothing comes twice."""

    @classmethod
    def of(
        cls,
        graph: ModelGraph,
        edge: str,
        dtypes: frozenset[str],
        versions: Versions = Versions(),
    ) -> EdgeContract:
        """The contract of an edge, by its name in the graph. Raises GraphError."""
        found = graph.edge(edge)
        port = graph.source_port(found)
        return cls(edge, port.state, port.shape, dtypes, found.placement, versions, graph.known)


class Border:
    """The receiving end of one edge for one request: envelopes come in order, each is checked before its payload.

    `fence` is asked each time for what holds now, and `generation` for the session's cancel generation. One thread at
    a time.
    """

    def __init__(
        self,
        contract: EdgeContract,
        request: str,
        tenant: str,
        fence: Callable[[], Fence],
        *,
        start: int = 0,
        generation: Callable[[], int] = int,
    ) -> None:
        self._contract = contract
        self._request = request
        self._tenant = tenant
        self._fence = fence
        self._generation = generation
        self._next = 0
        self._position = start
        self._ended = False

    @property
    def consumed(self) -> int | None:
        """Sequence number of the last payload that was admitted, for the sender's acknowledgement."""
        return self._next - 1 if self._next else None

    def admit(self, envelope: TransferEnvelope, payload: Payload, *, now: Ticks = 0) -> None:
        """Returns where `payload` may be used; raises a TransferRefused, and then nothing has changed here.

        Whose it is comes first, then whether it is wanted, then what it is: a refusal tells another tenant nothing
        about shapes.
        """
        name, contract = self._contract.name, self._contract
        if envelope.tenant != self._tenant:
            raise WrongTenant(name, "the payload belongs to another tenant; it was sent to the wrong place")
        if envelope.request != self._request:
            raise WrongRequest(name, f"{envelope.request!r} is not the request that is served here, {self._request!r}")
        holds = self._fence()
        if not holds.admits(envelope.fence):
            raise StaleFence(name, f"made under {envelope.fence.order}, {holds.order} holds; drop it and count it")
        self._terms(envelope, now)
        if envelope.kind is not contract.kind:
            raise WrongKind(name, f"{envelope.kind.value}, but the edge carries {contract.kind.value}")
        self._versions(envelope.versions)
        if envelope.dtype not in contract.dtypes:
            taken = ", ".join(sorted(contract.dtypes))
            raise WrongDtype(name, f"{envelope.dtype!r}, but the edge carries {taken}; convert it before it is sent")
        try:
            contract.shape.match(envelope.shape, contract.sizes)
        except ShapeMismatch as mismatch:
            raise WrongShape(name, f"{list(envelope.shape)} does not fit [{contract.shape}]: {mismatch}") from None
        if envelope.layout != contract.layout:
            raise WrongLayout(name, f"{envelope.layout!r}, but the edge carries {contract.layout!r}")
        if contract.placement is Placement.SAME_DEVICE and envelope.device not in contract.devices:
            raise WrongLayout(
                name, f"lies on {envelope.device!r}, where this stage cannot read it by reference; copy it", "device"
            )
        if not envelope.owner:
            raise WrongLayout(name, "nobody is named who frees the memory", "owner")
        self._order(envelope)
        self._payload(envelope, payload)
        self._next += 1
        self._position = envelope.end
        self._ended = envelope.last

    def _terms(self, envelope: TransferEnvelope, now: Ticks) -> None:
        name = self._contract.name
        if self._contract.kind is StateKind.SESSION:
            if envelope.session is None:
                raise MissingTerms(name, "session state needs its turn, retention and cancel generation", "session")
            if envelope.session.retention < 0:
                raise MissingTerms(name, f"retention {envelope.session.retention} s must be at least 0", "session")
            if envelope.session.cancel_generation != (wanted := self._generation()):
                raise Cancelled(name, f"{envelope.session.cancel_generation}, but {wanted} holds; drop it")
        if self._contract.placement is Placement.REMOTE:
            if envelope.remote is None:
                raise MissingTerms(name, "a remote edge needs a checksum, a deadline and a retry class", "remote")
            if now > envelope.remote.deadline:
                raise DeadlineExpired(name, f"tick {envelope.remote.deadline} has passed, it is {now}; drop it")

    def _versions(self, given: Versions) -> None:
        for entry in fields(Versions):
            wanted, got = getattr(self._contract.versions, entry.name), getattr(given, entry.name)
            if wanted and got != wanted:
                raise WrongVersion(
                    self._contract.name, f"made with {got or 'none'}, this stage works with {wanted}", entry.name
                )

    def _order(self, envelope: TransferEnvelope) -> None:
        name = self._contract.name
        if self._ended:
            raise AfterLast(name, "the stream has ended; open another request")
        if envelope.sequence != self._next:
            trouble = "was there already" if envelope.sequence < self._next else "leaves a gap"
            raise OutOfSequence(name, f"{envelope.sequence} {trouble}; {self._next} is next")
        if not 0 <= envelope.start <= envelope.end:
            raise BadSpan(name, f"[{envelope.start}, {envelope.end}) is no range")
        if self._contract.contiguous and envelope.start != self._position:
            raise BadSpan(name, f"begins at {envelope.start}, the one before it ended at {self._position}")
        if envelope.start < self._position:
            raise BadSpan(name, f"begins at {envelope.start}, but what lies before {self._position} was there already")

    def _payload(self, envelope: TransferEnvelope, payload: Payload) -> None:
        """The envelope must not say something else than the payload is."""
        name = self._contract.name
        if isinstance(payload, str):
            if envelope.dtype != TEXT:
                raise WrongDtype(name, f"the payload is text, the envelope says {envelope.dtype!r}")
            if envelope.shape[-1:] != (len(payload),) or math.prod(envelope.shape) != len(payload):
                raise WrongShape(name, f"the payload has {len(payload)} characters, not {list(envelope.shape)}")
        elif isinstance(payload, bytes | memoryview):
            if (item := ITEM_BYTES.get(envelope.dtype)) is None:
                raise WrongDtype(name, f"{envelope.dtype!r} has no size as bytes")
            length = memoryview(payload).nbytes
            if length != math.prod(envelope.shape) * item:
                raise WrongShape(name, f"the payload has {length} bytes, not those of {list(envelope.shape)}")
        elif isinstance(payload, Tensor):
            if tuple(payload.shape) != envelope.shape:
                raise WrongShape(name, f"the payload has {list(payload.shape)}, not {list(envelope.shape)}")
            if (dtype := str(payload.dtype).removeprefix("torch.")) != envelope.dtype:
                raise WrongDtype(name, f"the payload is {dtype}, not {envelope.dtype}")
        else:
            raise WrongDtype(name, f"a {type(payload).__name__} cannot be sent; give an array, bytes or text")
        if self._contract.placement is Placement.REMOTE and envelope.remote is not None:
            if not isinstance(payload, bytes | memoryview):
                raise WrongDtype(name, "a remote edge carries bytes; give the array's own bytes")
            if checksum_of(payload) != envelope.remote.checksum:
                raise ChecksumMismatch(name, "the bytes changed on their way; ask for them again")
        if self._contract.placement is Placement.SAME_HOST and isinstance(payload, Tensor):
            raise WrongDtype(name, "an edge to another process carries bytes, or shared memory seen as bytes")
