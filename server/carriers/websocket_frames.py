"""Reading a client's WebSocket frames without a parser, as long as they are of the plain kind (RFC 6455 section 5.2).

Nearly every message of a client is one whole, unfragmented text frame that arrives in one piece. Such a frame is taken
here in a few steps; everything else is left to the library's parser, and `FrameEdges` says when that one is done with
it.
"""

from __future__ import annotations

from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

_PLAIN_TEXT: Final = 0x81
"""First byte of a text frame that is a whole message and uses no extension."""
_MASKED: Final = 0x80
_SHORT_MAX: Final = 125
_TWO_BYTES: Final = 126


def plain_text(data: bytes, at: int) -> tuple[bytes, int] | None:
    """The payload of the frame at `at`, and where the next begins; None where it is not whole, or not plain."""
    size = len(data)
    if size - at < 6 or data[at] != _PLAIN_TEXT:
        return None
    length = data[at + 1] - _MASKED
    mask = at + 2
    if length == _TWO_BYTES:
        length = (data[at + 2] << 8) | data[at + 3]
        mask = at + 4
        if length <= _SHORT_MAX:
            return None
    elif not 0 <= length <= _SHORT_MAX:
        return None
    begin = mask + 4
    end = begin + length
    if end > size:
        return None
    return apply_mask(data[begin:end], data[mask:begin]), end


class FrameEdges:
    """Follows a stream of frames, to tell where it is between two messages."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._left = 0
        self._in_parts = False

    @property
    def between(self) -> bool:
        """Whether the next byte begins a message, or a control frame that stands between two."""
        return not (self._left or self._header or self._in_parts)

    def feed(self, data: bytes) -> None:
        """The next bytes of the stream."""
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            wanted = self._header_size() - len(self._header)
            self._header += data[at : at + wanted]
            at += wanted
            if len(self._header) == self._header_size():
                self._begin_frame()

    def _header_size(self) -> int:
        """As far as the bytes that are here tell it."""
        if len(self._header) < 2:
            return 2
        second = self._header[1]
        return 2 + {126: 2, 127: 8}.get(second & 0x7F, 0) + (4 if second & _MASKED else 0)

    def _begin_frame(self) -> None:
        first, length = self._header[0], self._header[1] & 0x7F
        if length > _SHORT_MAX:
            length = int.from_bytes(self._header[2 : 4 if length == _TWO_BYTES else 10], "big")
        opcode, whole = first & 0x0F, bool(first & 0x80)
        if opcode < 8:
            self._in_parts = not whole
        self._left = length
        self._header.clear()
