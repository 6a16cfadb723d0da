"""Opus by libopus (RFC 6716): mono, any of its rates in and out, in-band FEC, concealment, DTX.

A thin layer over the C library. Codec contexts of FFmpeg cost three to five times as much per packet, start threads of
their own and give neither the recovery of a lost packet nor its concealment; the bindings on the package index are
either unmaintained or bring a library for few platforms. libopus itself is already there wherever PyAV is, whose wheel
ships it (BSD licence); else the system's is taken.

The interpreter's lock is released inside every call.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

RATES: Final = (8000, 12000, 16000, 24000, 48000)
"""Hz that libopus takes and gives."""
CLOCK: Final = 48_000
"""Hz in which the length of a packet is counted (RFC 7587 section 4.1)."""
LONGEST: Final = 5760
"""Ticks of `CLOCK` in the longest packet: 120 ms."""
MAX_PACKET: Final = 1275
"""Bytes of the longest frame (RFC 6716 section 3.2.1)."""
LIBRARY_VARIABLE: Final = "TALKOVER_LIBOPUS"
"""Environment variable with the path of a libopus to use instead of the one that is found."""

Application = Literal["voip", "audio", "lowdelay"]
_APPLICATIONS: Final[dict[Application, int]] = {"voip": 2048, "audio": 2049, "lowdelay": 2051}

_RESET_STATE: Final = 4028
_SET_BITRATE: Final = 4002
_SET_COMPLEXITY: Final = 4010
_SET_INBAND_FEC: Final = 4012
_SET_PACKET_LOSS: Final = 4014
_SET_DTX: Final = 4016
_GET_LOOKAHEAD: Final = 4027

_FRAME_TICKS: Final = (
    *((480, 960, 1920, 2880) * 3),  # SILK, RFC 6716 table 2
    *((480, 960) * 2),  # hybrid
    *((120, 240, 480, 960) * 4),  # CELT
)


class OpusUnavailable(Exception):
    """No usable libopus is here; the message says how to get one."""


class OpusError(ValueError):
    """libopus refused what it was given."""


# --- the library -----------------------------------------------------------------------------------------------------


def _candidates() -> Iterator[str]:
    """Where libopus may be, best first."""
    chosen = os.environ.get(LIBRARY_VARIABLE)
    if chosen:
        yield chosen
        return
    # Found without importing it: the import alone costs 0.2 s and opens all of FFmpeg.
    spec = importlib.util.find_spec("av")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        for folder in (package.parent / "av.libs", package / ".dylibs"):
            for pattern in ("libopus-*.so*", "libopus.so*", "libopus*.dylib", "libopus*.dll", "opus*.dll"):
                yield from (str(path) for path in sorted(folder.glob(pattern)))
    found = ctypes.util.find_library("opus")
    if found is not None:
        yield found
    yield {"darwin": "libopus.0.dylib", "win32": "opus.dll"}.get(sys.platform, "libopus.so.0")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    """The loaded library with its signatures. Raises OpusUnavailable."""
    failures: list[str] = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            _declare(library)
        except (OSError, AttributeError) as error:
            failures.append(f"{path}: {error}")
            continue
        return library
    raise OpusUnavailable(
        "libopus was not found, so WebRTC cannot carry audio; install PyAV (pip install av), whose wheel brings it, or "
        f"the system's (Debian: libopus0), or set {LIBRARY_VARIABLE} to its path. Tried: {'; '.join(failures)}"
    )


def _declare(library: ctypes.CDLL) -> None:
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int32
    signatures = {
        "opus_get_version_string": (ctypes.c_char_p, []),
        "opus_strerror": (ctypes.c_char_p, [integer]),
        "opus_encoder_create": (pointer, [size, integer, integer, ctypes.POINTER(integer)]),
        "opus_encoder_destroy": (None, [pointer]),
        "opus_encode": (size, [pointer, ctypes.c_char_p, integer, ctypes.c_char_p, size]),
        "opus_decoder_create": (pointer, [size, integer, ctypes.POINTER(integer)]),
        "opus_decoder_destroy": (None, [pointer]),
        "opus_decode": (integer, [pointer, ctypes.c_char_p, size, ctypes.c_char_p, integer, integer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    # The controls take arguments of varying number: only the fixed ones may be declared.
    library.opus_encoder_ctl.restype = integer
    library.opus_decoder_ctl.restype = integer


def version() -> str:
    """What the library says of itself, such as "libopus 1.5.2". Raises OpusUnavailable."""
    return bytes(_library().opus_get_version_string()).decode()


def _open(state: int | None) -> int:
    """`state`, if it was not freed: libopus would follow the null pointer. Raises OpusError."""
    if state is None:
        raise OpusError("this encoder or decoder is closed; make a new one")
    return state


def _checked(library: ctypes.CDLL, result: int, doing: str) -> int:
    if result < 0:
        raise OpusError(f"libopus cannot {doing}: {bytes(library.opus_strerror(result)).decode()}")
    return result


# --- what a packet says without being decoded (RFC 6716 section 3) ----------------------------------------------------


def packet_ticks(packet: bytes) -> int:
    """The length of a packet's audio in ticks of 1/48000 s; 0 where it is no Opus packet."""
    if not packet:
        return 0
    frame = _FRAME_TICKS[packet[0] >> 3]
    code = packet[0] & 3
    frames = (1, 2, 2, packet[1] & 0x3F if len(packet) > 1 else 0)[code]
    ticks = frame * frames
    return ticks if ticks <= LONGEST else 0


def holds_previous(packet: bytes) -> bool:
    """Whether `packet` carries the packet before it once more, at a lower rate (in-band FEC).

    Known for packets of one frame, as voice senders make them; for others it says no, and their predecessor counts as
    concealed although it may have been recovered.
    """
    if len(packet) < 2 or packet[0] & 3 or packet[0] >> 3 >= 16:
        return False
    frames = max(1, _FRAME_TICKS[packet[0] >> 3] // 960)
    # SILK begins with a voice activity bit per 20 ms frame, then the bit that says that the redundancy follows.
    return bool(packet[1] >> (7 - frames) & 1)


# --- encoder and decoder ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 + len(RATES))
def _buffer(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    """The type of a buffer of so many bytes. ctypes keeps it only as long as a buffer of it, and leaves one that was
    forgotten to the garbage collector; there are no more of them than sizes."""
    return ctypes.c_char * size


class OpusEncoder:
    """One mono stream of packets. Not safe to use from two threads at a time."""

    def __init__(
        self,
        rate: int = 24_000,
        *,
        application: Application = "audio",
        bitrate: int = 32_000,
        complexity: int = 5,
        dtx: bool = False,
        loss_percent: int = 0,
    ) -> None:
        """`rate` in Hz, one of `RATES`; `bitrate` in bit/s. `dtx`: packets of one or two bytes in silence.
        `loss_percent`: see `expect_loss`.

        Raises OpusUnavailable and OpusError.
        """
        library = _library()
        if rate not in RATES:
            raise OpusError(f"rate is {rate} Hz; Opus takes {', '.join(map(str, RATES))}")
        failure = ctypes.c_int()
        self._library = library
        self._state: int | None = None
        self._state = library.opus_encoder_create(rate, 1, _APPLICATIONS[application], ctypes.byref(failure))
        _checked(library, failure.value, "make an encoder")
        self.rate = rate
        self._out = _buffer(MAX_PACKET)()
        self._view = memoryview(self._out).cast("B")
        self._set("bitrate", _SET_BITRATE, bitrate)
        self._set("complexity", _SET_COMPLEXITY, complexity)
        self._set("dtx", _SET_DTX, int(dtx))
        self.expect_loss(loss_percent)
        lookahead = ctypes.c_int32()
        library.opus_encoder_ctl(ctypes.c_void_p(self._state), ctypes.c_int(_GET_LOOKAHEAD), ctypes.byref(lookahead))
        self.lookahead: int = lookahead.value * (CLOCK // rate)
        """Ticks by which a sample comes out of the decoder after it went into the encoder."""

    def _set(self, name: str, request: int, value: int) -> None:
        result = self._library.opus_encoder_ctl(
            ctypes.c_void_p(_open(self._state)), ctypes.c_int(request), ctypes.c_int(value)
        )
        _checked(self._library, result, f"take {name} {value}")

    def expect_loss(self, percent: int) -> None:
        """From the next packet on: how many of 100 packets are lost on the way.

        Above 0 each packet carries the one before it once more where it is worth it, which makes libopus choose its
        speech mode (at three times the CPU). Raises OpusError.
        """
        self._set("loss_percent", _SET_PACKET_LOSS, percent)
        self._set("fec", _SET_INBAND_FEC, int(percent > 0))

    def encode(self, pcm: bytes) -> bytes:
        """One packet from mono PCM16 of 2.5, 5, 10, 20, 40 or 60 ms. Raises OpusError for another length."""
        length = self._library.opus_encode(_open(self._state), pcm, len(pcm) // 2, self._out, MAX_PACKET)
        if length <= 0:
            _checked(self._library, length, f"encode {len(pcm) // 2} samples at {self.rate} Hz")
        return self._view[:length].tobytes()

    def reset(self) -> None:
        """Forget every sample; the next packet begins a new stream. One that is closed remembers nothing."""
        if self._state is not None:
            self._library.opus_encoder_ctl(ctypes.c_void_p(self._state), ctypes.c_int(_RESET_STATE))

    def close(self) -> None:
        """Free the state; nothing can be encoded after it. Idempotent."""
        if self._state is not None:
            self._library.opus_encoder_destroy(self._state)
            self._state = None

    def __del__(self) -> None:
        if getattr(self, "_state", None) is not None:
            self.close()


class OpusDecoder:
    """One mono stream of samples, whatever channels the sender used. Not safe to use from two threads at a time."""

    def __init__(self, rate: int = 16_000) -> None:
        """`rate` in Hz, one of `RATES`: samples come out at it directly. Raises OpusUnavailable and OpusError."""
        library = _library()
        if rate not in RATES:
            raise OpusError(f"rate is {rate} Hz; Opus gives {', '.join(map(str, RATES))}")
        failure = ctypes.c_int()
        self._library = library
        self._state: int | None = None
        self._state = library.opus_decoder_create(rate, 1, ctypes.byref(failure))
        _checked(library, failure.value, "make a decoder")
        self.rate = rate
        self._most = LONGEST * rate // CLOCK
        self._out = _buffer(2 * self._most)()
        self._view = memoryview(self._out).cast("B")

    def decode(self, packet: bytes) -> bytes:
        """The packet's samples, mono PCM16. Raises OpusError for a damaged packet, which leaves the state as it was."""
        if not packet:
            raise OpusError("libopus cannot decode 0 bytes: to conceal a loss is asked for by `conceal`")
        samples = self._library.opus_decode(_open(self._state), packet, len(packet), self._out, self._most, 0)
        if samples <= 0:
            _checked(self._library, samples or -4, f"decode {len(packet)} bytes")
        return self._view[: 2 * samples].tobytes()

    def recover(self, following: bytes, ticks: int) -> bytes:
        """The `ticks` before `following`, which arrived, from the redundancy in it; concealed where it has none."""
        wanted = ticks * self.rate // CLOCK
        samples = self._library.opus_decode(_open(self._state), following, len(following), self._out, wanted, 1)
        if samples <= 0:
            _checked(self._library, samples or -4, f"recover {ticks} ticks")
        return self._view[: 2 * samples].tobytes()

    def conceal(self, ticks: int) -> bytes:
        """`ticks` (a multiple of 2.5 ms, at most 120 ms) in place of what was lost: the sound goes on and fades."""
        wanted = ticks * self.rate // CLOCK
        samples = self._library.opus_decode(_open(self._state), None, 0, self._out, wanted, 0)
        if samples <= 0:
            _checked(self._library, samples or -4, f"conceal {ticks} ticks")
        return self._view[: 2 * samples].tobytes()

    def close(self) -> None:
        """Free the state; nothing can be decoded after it. Idempotent."""
        if self._state is not None:
            self._library.opus_decoder_destroy(self._state)
            self._state = None

    def __del__(self) -> None:
        if getattr(self, "_state", None) is not None:
            self.close()
