"""What a remote model says, brought onto the clock of the session's input: 80 ms in, 80 ms out.

The model makes its audio faster than it sounds, in pieces of any length; here it waits and leaves frame by frame. What
belongs to an interruption that is over never leaves: the server numbers its interruptions (`epoch`), and responses that
were cut here are remembered by name. No I/O, no clock, not safe for threads.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from codec.pcm import to_bytes, to_samples
from codec.resample import Resampler
from sessions.core.timeline import Ticks, from_ms, ticks_per_sample

from ...slots.speech import SpeechGate
from .protocol import Audio, Began, Cleared, Ended, EpochMoved, Listens, ServerEvent, Text

RATE = 24_000
FRAME: Ticks = from_ms(80)
_TICK = ticks_per_sample(RATE)
_FRAME_BYTES = FRAME // _TICK * 2
_SILENCE = bytes(_FRAME_BYTES)

STALL_FRAMES = 125
"""Frames (10 s) for which a response may owe its next audio before it is given up."""
_CANCEL_FRAMES = 25
"""Frames (2 s) for which the server may take to notice a cut; what it begins meanwhile was begun before it knew."""
_REMEMBERED = 256
"""Responses that were cut and are remembered, and recent ones whose playback is still reported."""
_RECENT = 4
_PLACES = 64
"""Stretches of one response whose place is remembered: what was not heard is among the newest."""

_WORD = re.compile(r"\s*\S+|\s+$")


@dataclass(slots=True)
class _Place:
    """The next `samples` of a response lie at `track` of the session's own track."""

    track: Ticks
    samples: int


@dataclass(slots=True)
class _Reply:
    name: str
    epoch: int | None
    audio: bytearray = field(default_factory=bytearray)
    """PCM at `RATE` that waits."""
    resampler: Resampler | None = None
    made: int = 0
    """Samples that came."""
    said: int = 0
    """Samples that left."""
    unit: int = 0
    """Where the audio begins that the next text belongs to."""
    text: deque[tuple[int, str]] = field(default_factory=deque)
    done: bool = False
    starved: int = 0
    places: deque[_Place] = field(default_factory=deque)
    passed: int = 0
    """Samples whose place was forgotten: they were heard long ago."""
    reported: int = 0
    """Milliseconds that the server was told of."""

    def finish(self) -> None:
        """Nothing more comes."""
        if self.resampler is not None:
            self._add(to_bytes(self.resampler.flush()))
            self.resampler = None
        self.done = True

    def drop(self) -> int:
        """Throw away what waits; how many samples that were."""
        waiting = len(self.audio) // 2
        self.audio.clear()
        self.text.clear()
        self.made = self.said
        self.unit = self.said
        return waiting

    def add(self, pcm: bytes, rate: int) -> None:
        self.unit = self.made
        if rate == RATE and self.resampler is None:
            self._add(pcm)
            return
        if self.resampler is None or self.resampler.in_rate != rate:
            if self.resampler is not None:
                self._add(to_bytes(self.resampler.flush()))
            self.resampler = Resampler(rate, RATE)
        self._add(to_bytes(self.resampler.process(to_samples(pcm))))

    def tell(self, text: str) -> None:
        """Lay `text` over the newest audio, each word by its share of the letters."""
        length, total, passed = self.made - self.unit, len(text), 0
        for word in _WORD.findall(text):
            self.text.append((self.unit + length * passed // total, word))
            passed += len(word)
        self.unit = self.made

    def heard(self, until: Ticks) -> int:
        """Samples that lie before `until` on the track."""
        return self.passed + sum(min(place.samples, max(0, until - place.track) // _TICK) for place in self.places)

    def _add(self, pcm: bytes) -> None:
        self.audio += pcm
        self.made += len(pcm) // 2


@dataclass(frozen=True, slots=True)
class Frame:
    """80 ms: int16 LE at `RATE`, and the words that begin in it."""

    speaking: bool
    pcm: bytes
    text: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A response that was cut. `heard_ms`: how much of it was heard; `making`: the server is still at it."""

    response: str
    heard_ms: int
    making: bool


class RemoteSpeech:
    """The queue between a remote model and a session. `continuous`: see `RemoteCapabilities.continuous`.

    `counters`: "output_stale_samples" (of an old epoch, or of a response that was cut), "output_dropped_samples"
    (cleared by the server or by a cut before they left), "underrun_frames", "responses_stalled", "texts_late".
    """

    def __init__(self, counters: Counter[str], *, continuous: bool = False) -> None:
        self.counters = counters
        self._gate = SpeechGate() if continuous else None
        self._replies: deque[_Reply] = deque()
        self._recent: deque[_Reply] = deque(maxlen=_RECENT)
        self._dead: OrderedDict[str, None] = OrderedDict()
        self._epoch: int | None = None
        self._noticing = 0
        """Frames left in which the server may not know of a cut."""
        self._cancelled = ""
        self.stalled: list[str] = []
        """Responses that were given up and should be cancelled; whoever does that empties it."""

    @property
    def waiting(self) -> Ticks:
        """Audio that waits to be said."""
        return sum(len(reply.audio) // 2 for reply in self._replies) * _TICK

    def feed(self, event: ServerEvent) -> None:
        """Take what the server says; events that are not about speech are ignored."""
        match event:
            case Began(response, epoch):
                if self._admits(response, epoch):
                    self._find(response, epoch)
            case Audio(response, epoch, pcm, rate):
                if not self._admits(response, epoch) or (reply := self._find(response, epoch)).done:
                    self.counters["output_stale_samples"] += len(pcm) // 2
                else:
                    reply.add(pcm, rate)
            case Text(response, text, spoken=True):
                self._text(response, text)
            case Ended(response, epoch, status):
                self._ended(response, epoch, status)
            case Listens(response, epoch):
                self._note(epoch)
                if response:
                    self._ended(response, epoch, "completed")
            case Cleared(response):
                self._cleared(response)
            case EpochMoved(epoch):
                self._note(epoch)
            case _:
                pass

    def frame(self, at: Ticks) -> Frame:
        """What is said at [at, at + FRAME) of the session's track."""
        if self._noticing:
            self._noticing -= 1
            self._cancelled = self._cancelled if self._noticing else ""
        if self._replies and self._replies[0].done and not self._replies[0].audio:
            # One silent frame lies between two responses, so that they stay two.
            self._recent.append(self._replies.popleft())
            return self._silence(speaking=False)
        if not self._replies:
            return self._silence(speaking=False)
        reply = self._replies[0]
        if len(reply.audio) < _FRAME_BYTES and not reply.done:
            return self._starve(reply)
        reply.starved = 0
        pcm = bytes(reply.audio[:_FRAME_BYTES])
        del reply.audio[:_FRAME_BYTES]
        self._place(reply, at, len(pcm) // 2)
        text = self._words(reply)
        speaking = self._gate is None or self._speech(pcm, text)
        return Frame(speaking, pcm.ljust(_FRAME_BYTES, b"\0"), text)

    def cut(self, heard: Ticks | None) -> list[Cut]:
        """An interruption: nothing of what came so far leaves any more.

        `heard`: the end of what was heard, on the session's track; None: not known here. Returns what the server should
        be told.
        """
        cuts: list[Cut] = []
        if self._recent and heard is not None and heard < _end(self._recent[-1]):
            cuts.append(_cut(self._recent[-1], heard))
        for reply in self._replies:
            cuts.append(_cut(reply, heard))
            self.counters["output_dropped_samples"] += reply.drop()
            if self._gate is None:
                self._bury(reply.name)
        if self._gate is not None:
            # The stream goes on; what it is worth is for the core to say.
            self._gate.close()
            return cuts
        making = next((reply for reply in self._replies if not reply.done), None)
        if making is not None:
            self._cancelled, self._noticing = making.name, _CANCEL_FRAMES
        self._recent.extend(self._replies)
        self._replies.clear()
        return cuts

    def reports(self, until: Ticks) -> Iterator[tuple[str, int]]:
        """Responses, with how much of each lies before `until` on the track, in ms, where that is news."""
        for reply in (*self._recent, *self._replies):
            heard = reply.heard(until) * 1000 // RATE
            if heard > reply.reported and reply.name not in self._dead:
                reply.reported = heard
                yield reply.name, heard

    def is_cut(self, response: str) -> bool:
        """Whether `response` belongs to an interruption that is over."""
        return response in self._dead

    def lose(self) -> None:
        """The server's session is gone: what came of it is said to its end, and what comes is of a new one."""
        for reply in self._replies:
            reply.finish()
            self._bury(reply.name)
        self._epoch = None
        self._noticing = 0
        self._cancelled = ""

    # --- what comes --------------------------------------------------------------------------------------------------

    def _admits(self, response: str, epoch: int | None) -> bool:
        """Whether `response` of `epoch` may be said; a newer epoch cuts what is older."""
        if epoch is not None and self._epoch is not None and epoch < self._epoch:
            return False
        moved = self._note(epoch)
        if response in self._dead:
            return False
        if self._noticing and not moved and all(reply.name != response for reply in self._replies):
            # Begun before the server knew of the cut.
            self._bury(response)
            return False
        return True

    def _note(self, epoch: int | None) -> bool:
        """A newer epoch of the server's: an interruption that it decided itself, or heard of from here."""
        if epoch is None or (self._epoch is not None and epoch <= self._epoch):
            return False
        first, self._epoch = self._epoch is None, epoch
        for reply in list(self._replies):
            if reply.epoch is not None and reply.epoch < epoch:
                self.counters["output_dropped_samples"] += reply.drop()
                reply.finish()
                self._bury(reply.name)
        if not first:
            self._noticing, self._cancelled = 0, ""
        return not first

    def _find(self, response: str, epoch: int | None) -> _Reply:
        for reply in self._replies:
            if reply.name == response:
                reply.epoch = reply.epoch if epoch is None else epoch
                return reply
        for reply in self._recent:
            if reply.name == response:
                return reply
        reply = _Reply(response, self._epoch if epoch is None else epoch)
        self._replies.append(reply)
        return reply

    def _text(self, response: str, text: str) -> None:
        reply = next((reply for reply in self._replies if reply.name == response), None)
        if reply is not None:
            reply.tell(text)
        elif response not in self._dead:
            self.counters["texts_late"] += 1

    def _ended(self, response: str, epoch: int | None, status: str) -> None:
        self._note(epoch)
        if response == self._cancelled:
            self._noticing, self._cancelled = 0, ""
        for reply in self._replies:
            if reply.name == response:
                if status == "cancelled":
                    self.counters["output_dropped_samples"] += reply.drop()
                reply.finish()

    def _cleared(self, response: str) -> None:
        for reply in self._replies:
            if response in ("", reply.name):
                self.counters["output_dropped_samples"] += reply.drop()

    def _bury(self, response: str) -> None:
        self._dead[response] = None
        while len(self._dead) > _REMEMBERED:
            self._dead.popitem(last=False)

    # --- what leaves -------------------------------------------------------------------------------------------------

    def _starve(self, reply: _Reply) -> Frame:
        """The next audio is not there yet: the response goes on in silence, but not for ever."""
        reply.starved += 1
        if self._gate is None and reply.starved >= STALL_FRAMES:
            self.counters["responses_stalled"] += 1
            self.stalled.append(reply.name)
            self._bury(reply.name)
            reply.finish()
            return self._silence(speaking=False)
        begun = reply.said > 0
        if begun:
            self.counters["underrun_frames"] += 1
        return self._silence(speaking=begun and (self._gate is None or self._speech(_SILENCE, "")))

    def _speech(self, pcm: bytes, text: str) -> bool:
        samples = to_samples(pcm).astype(np.float32) / np.float32(32768.0)
        return self._gate is None or self._gate.feed(samples, bool(text.strip()))

    def _words(self, reply: _Reply) -> str:
        words: list[str] = []
        last = reply.done and not reply.audio
        while reply.text and (last or reply.text[0][0] < reply.said):
            words.append(reply.text.popleft()[1])
        return "".join(words)

    def _place(self, reply: _Reply, at: Ticks, samples: int) -> None:
        last = reply.places[-1] if reply.places else None
        if last is not None and last.track + last.samples * _TICK == at:
            last.samples += samples
        else:
            reply.places.append(_Place(at, samples))
            if len(reply.places) > _PLACES:
                reply.passed += reply.places.popleft().samples
        reply.said += samples

    def _silence(self, *, speaking: bool) -> Frame:
        if self._gate is not None and not self._replies:
            self._gate.close()
        return Frame(speaking, _SILENCE, "")


def _end(reply: _Reply) -> Ticks:
    """Where the last of a response lies on the track."""
    return reply.places[-1].track + reply.places[-1].samples * _TICK if reply.places else 0


def _cut(reply: _Reply, heard: Ticks | None) -> Cut:
    samples = reply.said if heard is None else reply.heard(heard)
    return Cut(reply.name, samples * 1000 // RATE, making=not reply.done)
