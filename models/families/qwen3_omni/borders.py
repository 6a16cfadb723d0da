"""The edges between the stages: what leaves one is stamped there, and the next one reads that before it uses it.

A stage takes nothing on trust because it lies in the same process: features come out of a cache that tenants share,
answers are cut while their tokens and frames are on their way, and parts of a checkpoint may not fit.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from codec.identity import CodecIdentity
from sessions.core.fence import Fence

from ...envelope import Border, EdgeContract, TransferEnvelope, TransferRefused, Versions, WrongShape
from ...graph.states import Placement
from ..catalog import qwen3_omni as catalog
from .omni import RATE, Omni
from .prompt import Features
from .talker import CONTROL_CODES

_GRAPH = catalog.FAMILY.graph(catalog.FAMILY.published["qwen3-omni-instruct"])
AUDIO = "audio_encoder.features -> thinker.audio"
IMAGE = "vision_encoder.features -> thinker.video"
TEXT = "thinker.text -> talker.text"
HIDDEN = "thinker.hidden -> talker.hidden"
CODES = "talker.codes -> code2wav.codes"


class OutsideVocabulary(TransferRefused):
    """Tokens or codes that the receiver has no entry for."""

    field = "payload"


@dataclass(frozen=True, slots=True)
class Contract:
    """What an edge takes, and what is made for it: `versions` of the maker, `entries` that the receiver knows (0: its
    payload is no indices)."""

    edge: EdgeContract
    versions: Versions
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Contracts:
    """Of all edges that cross from one stage of a loaded model to another."""

    audio: Contract
    image: Contract
    text: Contract
    hidden: Contract
    codes: Contract

    @classmethod
    def of(cls, omni: Omni) -> Contracts:
        net = omni.net
        thinks, talks, plays = net.thinker.config.text_config, net.talker.config, net.code2wav.config
        weights = net.thinker.lm_head.weight
        devices = frozenset({"cpu", str(weights.device), str(net.talker.codec_head.weight.device)})
        floats, whole = frozenset({_name(weights.dtype)}), frozenset({"int64"})
        versions = Versions(model=omni.version)
        hop = int(net.code2wav.total_upsample)
        # Each side says what it was configured for, so that a talker of another release is refused at the border.
        made = _codec(omni, hop, talks.num_code_groups, talks.text_config.vocab_size - CONTROL_CODES)
        played = _codec(omni, hop, plays.num_quantizers, plays.codebook_size)

        def contract(
            name: str,
            dtypes: frozenset[str],
            sizes: dict[str, int],
            wanted: Versions,
            maker: Versions,
            entries: int = 0,
        ) -> Contract:
            edge = EdgeContract.of(_GRAPH, name, dtypes, wanted)
            # One process steps all stages: what the graph lets cross is handed over by reference here.
            edge = replace(edge, sizes={"B": 1, **sizes}, placement=Placement.SAME_DEVICE, devices=devices)
            return Contract(edge, maker, entries)

        width = {"d": int(thinks.hidden_size)}
        return cls(
            audio=contract(AUDIO, floats, width, versions, versions),
            image=contract(IMAGE, floats, width, versions, versions),
            text=contract(TEXT, whole, {}, versions, versions, int(thinks.vocab_size)),
            hidden=contract(HIDDEN, floats, width, versions, versions),
            codes=contract(
                CODES,
                whole,
                {"Q": int(plays.num_quantizers)},
                Versions(codec=played),
                Versions(codec=made),
                int(plays.codebook_size),
            ),
        )


def _codec(omni: Omni, hop: int, codebooks: int, entries: int) -> CodecIdentity:
    version = hashlib.blake2b(omni.version.encode(), digest_size=8).hexdigest()
    return CodecIdentity("code2wav", version, RATE, hop, int(codebooks), int(entries))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Passage:
    """One edge for one answer: what was made waits here, under its envelope, for the stage that takes it.

    `made` is the fence that the answer was asked for under; `holds` is asked, when something is taken, what holds now.
    One thread at a time.
    """

    def __init__(self, contract: Contract, request: str, tenant: str, made: Fence, holds: Callable[[], Fence]) -> None:
        self._contract = contract
        self._request = request
        self._tenant = tenant
        self._made = made
        self._border = Border(contract.edge, request, tenant, holds)
        self._waiting: deque[tuple[TransferEnvelope, Tensor]] = deque()
        self._sent = self._end = 0

    @property
    def waiting(self) -> int:
        """Payloads that were sent and not taken."""
        return len(self._waiting)

    def send(self, payload: Tensor, *, tenant: str | None = None, versions: Versions | None = None) -> None:
        """`payload` [1, n, …]: the next n positions or frames. `tenant` and `versions` where it was made for another
        request before."""
        start, self._end = self._end, self._end + payload.shape[1]
        envelope = TransferEnvelope(
            request=self._request,
            tenant=self._tenant if tenant is None else tenant,
            fence=self._made,
            kind=self._contract.edge.kind,
            shape=tuple(payload.shape),
            dtype=_name(payload.dtype),
            start=start,
            end=self._end,
            sequence=self._sent,
            owner=self._contract.edge.name.partition(".")[0],
            device=str(payload.device),
            versions=self._contract.versions if versions is None else versions,
        )
        self._sent += 1
        self._waiting.append((envelope, payload))

    def take(self) -> Tensor:
        """The payload that was sent first. Raises TransferRefused, and that payload is gone; IndexError for none."""
        envelope, payload = self._waiting.popleft()
        self._border.admit(envelope, payload)
        entries = self._contract.entries
        if entries and payload.numel() and not 0 <= int(payload.min()) <= int(payload.max()) < entries:
            raise OutsideVocabulary(
                self._contract.edge.name,
                f"holds {int(payload.min())}..{int(payload.max())}, but there are {entries} entries; use parts of one "
                "release",
            )
        return payload


class Passages:
    """The edges of one answer."""

    def __init__(
        self, contracts: Contracts, request: str, tenant: str, made: Fence, holds: Callable[[], Fence]
    ) -> None:
        def passage(contract: Contract) -> Passage:
            return Passage(contract, request, tenant, made, holds)

        self.audio = passage(contracts.audio)
        self.image = passage(contracts.image)
        self.text = passage(contracts.text)
        self.hidden = passage(contracts.hidden)
        self.codes = passage(contracts.codes)

    def features(self, features: Features) -> None:
        """Let encoded media pass from the encoder, or from the cache, to the thinker. Raises TransferRefused."""
        passage = self.image if features.kind == "image" else self.audio
        passage.send(features.embeds[None], tenant=features.tenant, versions=Versions(model=features.version))
        passage.take()
        for layer in features.deep:
            if layer.shape != features.embeds.shape:
                raise WrongShape(
                    IMAGE, f"a deep layer has {list(layer.shape)}, the features have {list(features.embeds.shape)}"
                )

    @property
    def waiting(self) -> int:
        """Frames and tokens that were made and not taken."""
        return self.text.waiting + self.codes.waiting
