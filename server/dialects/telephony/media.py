"""Media of a telephone call, as the vendors send and take it: decoded in, encoded in packets out.

In: chunks may be of any length, come out of order, be missing or come twice. Out: packets of one length, each with the
content position of its last sample, so that what is said to have been played can be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np

from codec import g711
from codec.g722 import G722Decoder, G722Encoder
from codec.opus import OpusDecoder, OpusEncoder, OpusError
from codec.pcm import Samples, to_bytes, to_samples
from codec.resample import Resampler
from codec.runs import Encode, RunResampler
from sessions.core.timeline import TICK_RATE, Ticks
from sessions.ports import OutputFrame

from ..checks import INVALID_VALUE, UNSUPPORTED, Rejected

Encoding = Literal["ulaw", "alaw", "l16", "g722", "opus"]

CONCEAL_MOST_MS: Final = 1000
"""A longer gap is not filled: the caller was away, or the numbers are wrong."""
FADE_MS: Final = 60
"""How long the last sound goes on, fading, where nothing came (as G.711 Appendix I does, whose fade has the same
length)."""
REPEAT_MS: Final = 20
CHUNK_MOST_S: Final = 30
"""Seconds of audio in one chunk; a longer one is no telephone's."""
SESSION_RATES: Final = (8000, 12000, 16000, 24000, 48000)
"""Hz that the input track of a session takes."""


@dataclass(frozen=True, slots=True)
class MediaFormat:
    """How audio is coded on the line. `rate`: Hz of the audio itself, for G.722 too."""

    encoding: Encoding
    rate: int

    @property
    def sample_bits(self) -> int:
        """Bits of a sample; 0 where packets have no fixed size."""
        return {"ulaw": 8, "alaw": 8, "l16": 16, "g722": 4, "opus": 0}[self.encoding]

    @property
    def silence(self) -> bytes:
        """The code of silence, for padding."""
        return {"ulaw": b"\xff", "alaw": b"\xd5"}.get(self.encoding, b"\0")


ULAW_8K: Final = MediaFormat("ulaw", 8000)

_NAMES: Final[Mapping[str, Encoding]] = {
    "audio/x-mulaw": "ulaw",
    "audio/mulaw": "ulaw",
    "audio/pcmu": "ulaw",
    "pcmu": "ulaw",
    "ulaw": "ulaw",
    "mulaw": "ulaw",
    "audio/x-alaw": "alaw",
    "audio/pcma": "alaw",
    "pcma": "alaw",
    "alaw": "alaw",
    "audio/x-l16": "l16",
    "audio/l16": "l16",
    "l16": "l16",
    "audio/x-raw": "l16",
    "g722": "g722",
    "audio/g722": "g722",
    "opus": "opus",
    "audio/opus": "opus",
}
_RATES: Final[Mapping[Encoding, tuple[int, ...]]] = {
    "ulaw": (8000,),
    "alaw": (8000,),
    "l16": (8000, 16000, 24000, 48000),
    "g722": (8000, 16000),
    "opus": (8000, 16000, 24000, 48000),
}


def media_format(encoding: str, rate: int, path: str) -> MediaFormat:
    """The format that a vendor names. `path`: of the field, for the refusal. Raises Rejected."""
    found = _NAMES.get(encoding.strip().lower())
    if found is None:
        known = ", ".join(sorted({name for name in _NAMES if "/" not in name}))
        raise Rejected(UNSUPPORTED, f"{path!r} names the codec {encoding[:40]!r}; known are {known}", path)
    if rate not in _RATES[found]:
        rates = ", ".join(str(one) for one in _RATES[found])
        raise Rejected(UNSUPPORTED, f"{path!r}: {encoding[:40]} at {rate} Hz is not served; choose {rates}", path)
    # G.722 is always 16 kHz audio, whatever clock it is announced with; Opus is decoded at any rate that it is asked.
    return MediaFormat(found, 16_000 if found in ("g722", "opus") else rate)


class _Decoder(Protocol):
    def decode(self, payload: bytes) -> bytes:
        """To PCM16."""


class _Law:
    def __init__(self, law: g711.Law) -> None:
        self._law = law

    def decode(self, payload: bytes) -> bytes:
        return g711.decode(payload, self._law)

    def encode(self, samples: Samples) -> bytes:
        return g711.compress(samples, self._law)

    def reset(self) -> None:
        """It remembers nothing."""


class _Linear:
    def decode(self, payload: bytes) -> bytes:
        if len(payload) % 2:
            raise Rejected(INVALID_VALUE, f"the audio has {len(payload)} bytes; 16-bit samples need an even number")
        return payload

    def encode(self, samples: Samples) -> bytes:
        return to_bytes(samples)

    def reset(self) -> None:
        """It remembers nothing."""


class _G722In:
    def __init__(self) -> None:
        self._decoder = G722Decoder()

    def decode(self, payload: bytes) -> bytes:
        return to_bytes(self._decoder.decode(payload))


class _OpusIn:
    def __init__(self, rate: int) -> None:
        self._decoder = OpusDecoder(rate)

    def decode(self, payload: bytes) -> bytes:
        try:
            return self._decoder.decode(payload)
        except (OpusError, ValueError) as error:
            raise Rejected(INVALID_VALUE, f"the audio is no Opus packet ({error})") from None


class _OpusOut:
    def __init__(self, rate: int) -> None:
        self._encoder = OpusEncoder(rate)

    def encode(self, samples: Samples) -> bytes:
        return self._encoder.encode(to_bytes(samples))

    def reset(self) -> None:
        self._encoder.reset()


def _decoder(media: MediaFormat) -> _Decoder:
    match media.encoding:
        case "ulaw" | "alaw":
            return _Law(media.encoding)
        case "l16":
            return _Linear()
        case "g722":
            return _G722In()
        case "opus":
            return _OpusIn(media.rate)


class _Encoder(Protocol):
    def encode(self, samples: Samples) -> bytes: ...

    def reset(self) -> None: ...


def _encoder(media: MediaFormat) -> _Encoder:
    match media.encoding:
        case "ulaw" | "alaw":
            return _Law(media.encoding)
        case "l16":
            return _Linear()
        case "g722":
            return G722Encoder()
        case "opus":
            return _OpusOut(media.rate)


# --- in ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """Audio of the caller: mono PCM16 at `rate` Hz. `concealed`: nothing came, this was put in its place."""

    pcm: bytes
    rate: int
    concealed: bool = False


@dataclass(frozen=True, slots=True)
class _Chunk:
    number: int
    at_ms: int | None
    payload: bytes


class InputLane:
    """The caller's audio, put in order. A chunk's number grows by one; its time is in ms from the stream's start."""

    def __init__(self, media: MediaFormat, depth: int = 0) -> None:
        """`depth`: chunks that are waited for one that is missing, where the vendor does not keep their order."""
        self.media = media
        self._decoder = _decoder(media)
        self._depth = depth
        self._early: dict[int, _Chunk] = {}
        self._next: int | None = None
        self._ends_ms: float | None = None
        self._last = b""
        """The chunk before, PCM16."""
        self._most = CHUNK_MOST_S * media.rate * media.sample_bits // 8
        # Rates that the input track does not take are converted at the edge.
        self._rate = media.rate if media.rate in SESSION_RATES else 48_000
        self._resampler = Resampler(media.rate, self._rate) if self._rate != media.rate else None

    def chunk(self, payload: bytes, number: int | None = None, at_ms: int | None = None) -> list[Heard]:
        """One chunk; several come out where it was the missing one, none where an earlier one is missing.

        Raises Rejected for a chunk that came before or cannot be decoded.
        """
        if len(payload) > self._most > 0:
            raise Rejected(INVALID_VALUE, f"the audio is longer than {CHUNK_MOST_S} s; send it in shorter chunks")
        if number is None:
            return self._take(payload, at_ms)
        if self._next is None:
            self._next = number
        if number == self._next and not self._early:
            self._next += 1
            return self._take(payload, at_ms)
        if number < self._next or number in self._early:
            raise Rejected("duplicate_chunk", f"chunk {number} came before, or after its time; each is taken once")
        self._early[number] = _Chunk(number, at_ms, payload)
        heard: list[Heard] = []
        while self._early:
            if self._next not in self._early:
                if len(self._early) <= self._depth:
                    break
                self._next = min(self._early)
            chunk = self._early.pop(self._next)
            self._next += 1
            heard += self._take(chunk.payload, chunk.at_ms)
        return heard

    def _take(self, payload: bytes, at_ms: int | None) -> list[Heard]:
        pcm = self._decoder.decode(payload)
        heard: list[Heard] = []
        if at_ms is not None:
            if self._ends_ms is not None and 0 < (gap := at_ms - self._ends_ms) <= CONCEAL_MOST_MS:
                # Times are rounded to the millisecond; only what is missing for longer is missing.
                missing = round(gap * self.media.rate / 1000)
                if gap >= 2:
                    heard.append(Heard(self._converted(to_bytes(self._concealment(missing))), self._rate, True))
            self._ends_ms = at_ms + 500 * len(pcm) / self.media.rate
        if pcm:
            self._last = pcm
            heard.append(Heard(self._converted(pcm), self._rate))
        return heard

    def _concealment(self, missing: int) -> Samples:
        """The last sound, backwards and forwards in turn so that it goes on without a jump, and fading."""
        last = to_samples(self._last)[-(self.media.rate * REPEAT_MS // 1000) :]
        if not len(last):
            return np.zeros(missing, dtype=np.int16)
        both = np.concatenate((last[::-1], last))
        fade = np.clip(1.0 - np.arange(1, missing + 1) / (self.media.rate * FADE_MS / 1000), 0.0, 1.0)
        filled: Samples = np.rint(np.resize(both, missing) * fade).astype(np.int16)
        return filled

    def _converted(self, pcm: bytes) -> bytes:
        return pcm if self._resampler is None else to_bytes(self._resampler.process(to_samples(pcm)))


# --- out --------------------------------------------------------------------------------------------------------------


class Packet(NamedTuple):
    """Encoded audio that ends at content position `end` of `response`."""

    payload: bytes
    response: str
    end: Ticks


class OutputLane:
    """The agent's audio in packets of one length. Streaming: what does not fill a packet waits for the next frame.

    A law is coded sample by sample, so it is coded a run at a time; codecs that remember are given whole packets.
    """

    def __init__(self, media: MediaFormat, packet_ms: int) -> None:
        self.media = media
        self._encoder = _encoder(media)
        self._by_sample = media.encoding in ("ulaw", "alaw")
        # No method of the lane: it would hold itself, by its resampler, and stay until the garbage collector comes.
        self._coded: Encode = self._encoder.encode if self._by_sample else to_bytes
        self._width = 1 if self._by_sample else 2
        self._size = media.rate * packet_ms // 1000 * self._width
        self._ticks_per_byte = TICK_RATE / media.rate / self._width
        self._resampler: RunResampler | None = None
        self._waiting = b""
        self.response = ""
        """Whose audio waits here, or went through last; "" after a reset."""
        self._end: Ticks = 0

    def push(self, frame: OutputFrame) -> list[Packet]:
        """The packets that `frame` completes."""
        packets: list[Packet] = []
        if frame.response != self.response:
            packets = self.tail()
            self.response = frame.response
        self._end = frame.end
        if frame.rate == self.media.rate:
            return packets + self._packets(self._coded(to_samples(frame.pcm)), 0)
        lane = self._resampler
        if lane is None or lane.in_rate != frame.rate:
            lane = self._resampler = RunResampler(frame.rate, self.media.rate, self._coded, self._width)
        audio = lane.push(frame.run or frame.pcm, frame.at, len(frame.pcm))
        return packets + self._packets(audio, lane.pending * self._width)

    def _packets(self, audio: bytes, pending: int) -> list[Packet]:
        """`pending`: bytes that belong to what was let out and are still to come."""
        if self._waiting:
            audio = self._waiting + audio
        size = self._size
        packets: list[Packet] = []
        behind = len(audio) + pending
        whole = len(audio) - len(audio) % size
        for start in range(0, whole, size):
            end = self._end - round((behind - start - size) * self._ticks_per_byte)
            packets.append(self._packet(audio[start : start + size], end))
        self._waiting = audio[whole:]
        return packets

    def _packet(self, audio: bytes, end: Ticks) -> Packet:
        payload = audio if self._by_sample else self._encoder.encode(to_samples(audio))
        return Packet(payload, self.response, end)

    def tail(self) -> list[Packet]:
        """The rest of what was said, filled up with silence; the next frame begins anew."""
        packets = self._packets(self._resampler.flush() if self._resampler is not None else b"", 0)
        if self._waiting:
            silence = self.media.silence * (self._size - len(self._waiting))
            packets.append(self._packet(self._waiting + silence, self._end))
        self._waiting = b""
        return packets

    def reset(self) -> None:
        """Forget what waits: it belongs to an epoch that is over. The encoder begins anew too."""
        if self._resampler is not None:
            self._resampler.reset()
        self._encoder.reset()
        self._waiting = b""
        self.response = ""
