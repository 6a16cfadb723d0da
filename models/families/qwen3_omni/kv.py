"""Keys and values of many sequences, each at its own length, behind transformers' cache interface."""

from __future__ import annotations

import torch
from torch import Tensor

_GRAIN = 64
"""What is attended to grows in steps of so many cells, so that shapes change seldom."""


class RowCache:
    """Buffers [rows, heads, cells + spare, head_dim] for each layer.

    A step writes `width` new cells of some rows and attends to all that is before them. Rows that only come along write
    into the cell that they will write next, which is free: what is behind a row's length is never seen. `place` sets a
    step up, transformers' attention calls `update`, and `mask` is the attention mask to go with it.
    """

    def __init__(
        self,
        rows: int,
        cells: int,
        heads: int,
        head_dim: int,
        *,
        spare: int,
        dtype: torch.dtype,
        devices: list[torch.device],
    ) -> None:
        """`spare`: width of the widest step, whose padding may lie behind the last cell. `devices`: one a layer."""
        shape = (rows, heads, cells + spare, head_dim)
        self.rows = rows
        self.cells = cells
        self._keys = [torch.zeros(shape, dtype=dtype, device=device) for device in devices]
        self._values = [torch.zeros(shape, dtype=dtype, device=device) for device in devices]
        self._rows: Tensor | None = None
        self._places = torch.zeros(0, dtype=torch.long)
        self._seen = 0

    @property
    def bytes(self) -> int:
        return sum(buffer.nbytes for buffer in (*self._keys, *self._values))

    def place(self, starts: Tensor, width: int, rows: Tensor | None = None) -> Tensor:
        """The next step writes `width` cells of `rows` (None: all) from `starts` int64 [R] on.

        Returns the attention mask, float [R, 1, width, seen]: 0 where a cell may be seen, the lowest number elsewhere.
        """
        device = self._keys[0].device
        self._rows = rows
        self._places = starts[:, None] + torch.arange(width, device=starts.device)
        last = int(self._places.max()) + 1
        capacity = self._keys[0].shape[2]
        self._seen = min(capacity, -(-last // _GRAIN) * _GRAIN)
        places = self._places.to(device)
        hidden = torch.arange(self._seen, device=device) > places[:, :, None]
        mask = torch.zeros(hidden.shape, dtype=self._keys[0].dtype, device=device)
        return mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)[:, None]

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """transformers' `Cache.update`: [R, heads, width, head_dim] in, all that may be seen out."""
        return self._put(self._keys[layer], keys), self._put(self._values[layer], values)

    def get_seq_length(self, layer: int = 0) -> int:
        """Rows have lengths of their own, which go by position and mask; transformers is told of none."""
        return 0

    def _put(self, buffer: Tensor, new: Tensor) -> Tensor:
        places = self._places.to(buffer.device)
        rows = self._rows
        numbers = torch.arange(buffer.shape[0], device=buffer.device) if rows is None else rows.to(buffer.device)
        buffer[numbers[:, None], :, places] = new.transpose(1, 2).to(buffer.dtype)
        return buffer[:, :, : self._seen] if rows is None else buffer[numbers, :, : self._seen]

    def zero(self, row: int) -> None:
        """Leave nothing of a sequence behind: a NaN in a cell that is masked still is one."""
        for buffer in (*self._keys, *self._values):
            buffer[row].zero_()
