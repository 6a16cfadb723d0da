"""The media encoders, with what they made before: an image that is shown again is not encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...caches import CacheKey, CacheMetrics, StateCache, key
from ...graph.states import Agreement, StateKind
from .media import BANDS, HOP, RATE, Medium, Patches
from .omni import Omni
from .prompt import Features

BUDGET_BYTES = 256 << 20
"""Of all tenants' features together."""
TOGETHER = 4096
"""Encoder positions in one step; one medium that has more goes alone."""


class Encoders:
    """Encodes media of several sessions together, and keeps features by content, preprocessing, weights and tenant."""

    def __init__(self, omni: Omni, budget: int = BUDGET_BYTES) -> None:
        self._thinker = omni.net.thinker.model
        self._version = omni.version
        self._device = omni.device
        vision = self._thinker.visual.config
        self.patches = Patches(int(vision.patch_size), vision.spatial_merge_size, omni.shape.image_positions)
        self._cache: StateCache[Features] = StateCache(StateKind.FEATURE, budget)

    @property
    def metrics(self) -> CacheMetrics:
        return self._cache.metrics

    def find(self, tenant: str, kind: str, name: str) -> Features | None:
        """What this tenant's medium was encoded to before."""
        return self._cache.get(self._key(tenant, kind, name))

    def encode(self, tenant: str, media: Sequence[Medium]) -> list[Features]:
        """Encode media of one kind together, and keep what they become for `tenant`."""
        encoded = self._sounds(media) if media[0].kind == "audio" else self._images(media)
        made = [replace(features, tenant=tenant, version=self._version) for features in encoded]
        for features in made:
            self._cache.put(self._key(tenant, features.kind, features.name), features, features.bytes)
        return made

    def held(self, tenant: str) -> int:
        """How many media of a tenant are kept."""
        return self._cache.held(tenant)

    def forget(self, tenant: str) -> None:
        """Let go of all that is kept for a tenant."""
        self._cache.evict(tenant=tenant)

    def _key(self, tenant: str, kind: str, name: str) -> CacheKey:
        prepared = self.patches.name if kind == "image" else f"log-mel {BANDS} {RATE} {HOP}"
        return key(
            StateKind.FEATURE,
            {
                Agreement.TENANT: tenant,
                Agreement.CONTENT: name,
                Agreement.PREPROCESSING: prepared,
                Agreement.ENCODER: self._version,
            },
        )

    def _sounds(self, media: Sequence[Medium]) -> list[Features]:
        tower = self._thinker.audio_tower
        mel = torch.cat([medium.tensor for medium in media], 1).to(self._device, tower.conv2d1.weight.dtype)
        lengths = torch.tensor([medium.tensor.shape[1] for medium in media], device=self._device)
        out: Tensor = tower(mel, feature_lens=lengths).last_hidden_state
        sizes = [sound_positions(medium.tensor.shape[1], tower.n_window) for medium in media]
        return [
            Features("audio", medium.name, embeds.clone())
            for medium, embeds in zip(media, torch.split(out, sizes), strict=True)
        ]

    def _images(self, media: Sequence[Medium]) -> list[Features]:
        tower = self._thinker.visual
        weight = next(tower.parameters())
        pixels = torch.cat([medium.tensor for medium in media]).to(weight)
        grids = [medium.grid or (0, 0) for medium in media]
        shapes = torch.tensor([(1, *grid) for grid in grids], device=weight.device)
        out = tower(pixels, grid_thw=shapes)
        merge = self.patches.merge
        sizes = [rows * columns // merge**2 for rows, columns in grids]
        deep = [layer.split(sizes) for layer in out.deepstack_features]
        return [
            Features(
                "image",
                medium.name,
                embeds.clone(),
                tuple(layer[index].clone() for layer in deep),
                (grids[index][0] // merge, grids[index][1] // merge),
            )
            for index, (medium, embeds) in enumerate(zip(media, out.pooler_output.split(sizes), strict=True))
        ]


def sound_positions(frames: int, window: int) -> int:
    """Positions that the audio encoder makes of so many mel frames: 13 of each whole chunk of two windows, by three
    halvings of what is left."""
    whole, left = divmod(frames, 2 * window)
    for _ in range(3):
        left = (left + 1) // 2
    chunk = 2 * window
    for _ in range(3):
        chunk = (chunk + 1) // 2
    return whole * chunk + left
