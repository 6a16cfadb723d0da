"""A model's step as one CUDA graph: a thousand small kernels become one launch."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from .model import SlotModel, StepInput, StepOutput


class GraphedModel:
    """`SlotModel` whose step is captured once and then replayed; on a CPU it is just the model.

    The step must work in place on tensors of fixed shape and never ask the device anything, as those here do. All slots
    are reset by the capture. What a step gives is overwritten by the next.
    """

    def __init__(self, model: SlotModel, device: torch.device) -> None:
        self._model = model
        self.batch, self.hop, self.sample_rate = model.batch, model.hop, model.sample_rate
        self.codebooks, self.margin = model.codebooks, model.margin
        self._graph: torch.cuda.CUDAGraph | None = None
        nobody = torch.zeros(model.batch, dtype=torch.bool, device=device)
        codes = torch.zeros(model.batch, model.codebooks, dtype=torch.int64, device=device)
        pcm = torch.zeros(model.batch, model.hop, device=device)
        self._given = StepInput(
            nobody, nobody.clone(), pcm, codes, nobody.clone(), nobody.clone(), codes[:, 0].clone(), codes.clone()
        )
        if device.type == "cuda":
            self._capture(device)

    def reset(self, mask: Tensor, seed: Tensor) -> None:
        self._model.reset(mask, seed)

    def rewind(self, back: Tensor) -> None:
        self._model.rewind(back)

    def step(self, given: StepInput) -> StepOutput:
        if self._graph is None:
            return self._model.step(given)
        for field in fields(StepInput):
            getattr(self._given, field.name).copy_(getattr(given, field.name), non_blocking=True)
        self._graph.replay()
        return self._out

    def _capture(self, device: torch.device) -> None:
        # Warm up beside the default stream, so that constants and workspaces exist before the capture.
        beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(beside):
            for _ in range(3):
                self._model.step(self._given)
        torch.cuda.current_stream(device).wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._out = self._model.step(self._given)
        self._graph = graph
        everyone = torch.ones(self.batch, dtype=torch.bool)
        self._model.reset(everyone, torch.zeros(self.batch, dtype=torch.int64))
