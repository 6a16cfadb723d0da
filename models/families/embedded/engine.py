"""The embedded engine: thinkers fill clauses, one talker speaks them, the most urgent response first.

Per response: a thread of the pool thinks and cuts its text into clauses; the one talker thread takes the next clause
of whichever response needs it most, as long as that clause begins within the response's credit. With a codec what is
spoken goes on as codes, which the same thread makes and decodes, chunk by chunk, again for whoever needs it most.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import zlib
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from codec.frames import CodecFrame
from sessions.core.config import SessionConfig, Tool
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.events import EngineDone, EngineFailed, EngineText, EngineToolCall, Event
from sessions.core.fence import OUT_OF_BAND, Fence
from sessions.core.timeline import Ticks
from sessions.ports import Busy, Emit, EngineCapabilities

from ...envelope import StaleFence, TransferRefused
from ...priority import PROMPT, lower_priority
from ..fenced import advanced
from .clauses import ClauseCutter
from .reply import NOBODY, Clause, OpenSession, Reply, codes_contract
from .speakable import Speakable, SpokenWord
from .talker import Talker, TalkerError
from .thinker import ReadsAhead, TextPiece, Thinker, ThinkerError, ThinkRequest, Thought

if TYPE_CHECKING:
    # It needs torch, which only an engine with a codec does.
    from .voice_codec import Codes, Utterance, VoiceCodec

log = logging.getLogger(__name__)


class EmbeddedEngine:
    """`EnginePort` over a `Thinker` and a `Talker`.

    `max_sessions`: one more gets `Busy`, at once. Calls return at once; everything is computed on threads of low
    priority. `shutdown` ends them; the engine owns thinker and talker and closes them.

    `codec`: what is spoken travels as its codes, in voices that it was trained on; others go as PCM, or with
    `codes_only` are refused (`EngineFailed` "voice_without_codec").

    `counters` (names to totals): "sessions_refused", "requests_unknown" (unknown session, or a response that is over
    or was never begun), "requests_stale" (a fence older than the session's), "responses_stopped" (by cancel, advance
    or close while they were computing), "clauses_stale" (text of a dead epoch that the talker did not take),
    "frames_decoded" (codec frames that were), "codes_stale" (chunks of codes whose response was over before they were
    decoded, or before they were handed on).
    """

    def __init__(
        self,
        thinker: Thinker,
        talker: Talker,
        *,
        max_sessions: int = 8,
        codec: VoiceCodec | None = None,
        codes_only: bool = False,
    ) -> None:
        if max_sessions < 1:
            raise ValueError(f"max_sessions {max_sessions} must be at least 1")
        if codec is not None and codec.identity.sample_rate != talker.rate:
            raise ValueError(f"codec {codec.identity} is not one for a talker of {talker.rate} Hz")
        if codes_only and codec is None:
            raise ValueError("codes_only needs a codec")
        self._codec = codec
        self._codes_only = codes_only
        self._contract = None if codec is None else codes_contract(codec.identity)
        self._uncoded: set[str] = set()
        """Voices that were said to go as PCM."""
        self._thinker = thinker
        self._talker = talker
        self._max_sessions = max_sessions
        self._changed = threading.Condition()
        self._sessions: dict[str, OpenSession] = {}
        self._order = 0
        self._closing = False
        self._counters: Counter[str] = Counter()
        # A response that was told to stop holds its thread for one token more.
        self._pool = ThreadPoolExecutor(max_sessions + 4, "talkover-think", initializer=lower_priority)
        # One thread: whoever waits for a thought must not find the pool full of those that nobody waits for.
        self._ahead = ThreadPoolExecutor(1, "talkover-read-ahead", initializer=lower_priority)
        self._talking = threading.Thread(target=self._talk, name="talkover-talk", daemon=True)
        self._talking.start()
        # Native threads that still exist when the interpreter ends may abort the process.
        atexit.register(self.shutdown)

    @property
    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(
            turns="core",
            context="core",
            listens="text",
            output_rate=self._talker.rate,
            interruption="rewind",
            tools=True,
            voices=self._talker.voices,
        )

    @property
    def counters(self) -> Mapping[str, int]:
        with self._changed:
            return dict(self._counters)

    def held(self, tenant: str) -> Mapping[str, int]:
        """See `Retains.held`."""
        thinker = self._thinker
        return {"prefixes": thinker.held(tenant or NOBODY)} if isinstance(thinker, ReadsAhead) else {}

    def forget(self, tenant: str) -> None:
        """See `Retains.forget`."""
        if isinstance(self._thinker, ReadsAhead):
            self._thinker.forget(tenant or NOBODY)

    @property
    def active(self) -> int:
        """Responses that are being computed or wait for credit."""
        with self._changed:
            return sum(len(session.replies) for session in self._sessions.values())

    # --- the port ---------------------------------------------------------------------------------------------------

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        """See `EnginePort.open`. An open session takes the new fence and goes on. Raises Busy."""
        with self._changed:
            known = self._sessions.get(fence.session)
            if known is None:
                if self._closing or len(self._sessions) >= self._max_sessions:
                    self._counters["sessions_refused"] += 1
                    raise Busy(f"all {self._max_sessions} sessions of this engine are taken", retry_after=5.0)
                known = self._sessions[fence.session] = OpenSession(fence, config.tenant, emit)
                self._read_ahead(known, config.instructions, config.tools, config.tool_choice)
                return
            known.emit = emit
        self.advance(fence)

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        """This engine reads transcripts; audio is not for it."""

    def start(self, request: StartResponse) -> None:
        with self._changed:
            session = self._sessions.get(request.fence.session)
            if session is None or self._closing or request.response in session.replies:
                self._counters["requests_unknown"] += 1
                return
            if request.fence.order < session.fence.order:
                self._counters["requests_stale"] += 1
                return
            self._order += 1
            coded = self._is_coded(request)
            reply = Reply(request, session, self._talker.rate, self._order, self._contract if coded else None)
            session.replies[request.response] = reply
        reply.stop.then(self._wake)
        try:
            self._pool.submit(self._think, reply)
        except RuntimeError:  # the engine was shut down in between
            self._stop([reply])

    def grant(self, request: GrantCredit) -> None:
        reply = self._find(request.fence.session, request.response)
        if reply is None:
            return  # all of it was made and emitted before the credit came
        reply.lane.grant(request.until)
        self._retire_if_done(reply)
        self._wake()

    def cancel(self, fence: Fence, response: str) -> None:
        reply = self._find(fence.session, response)
        if reply is None:
            with self._changed:
                self._counters["requests_unknown"] += 1
            return
        self._stop([reply])

    def advance(self, fence: Fence) -> None:
        with self._changed:
            session = advanced(self._sessions, fence, self._counters)
            if session is None:
                return
            stale = [reply for reply in session.replies.values() if reply.request.fence.order < fence.order]
        self._stop(stale)

    def close(self, session: str) -> None:
        with self._changed:
            gone = self._sessions.pop(session, None)
        if gone is not None:
            self._stop(list(gone.replies.values()))
            # In this order: what is being read for it right now is given up, or is there to be released.
            gone.gone.set()
            if isinstance(self._thinker, ReadsAhead):
                self._thinker.release(session)

    def shutdown(self) -> None:
        """Stop everything and wait for the threads, then close the models. Idempotent; blocks for about a token."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            sessions = list(self._sessions)
        for session in sessions:
            self.close(session)
        atexit.unregister(self.shutdown)
        self._wake()
        self._pool.shutdown(wait=True)
        self._ahead.shutdown(wait=True, cancel_futures=True)
        self._talking.join()
        self._thinker.close()

    # --- bookkeeping ------------------------------------------------------------------------------------------------

    def _find(self, session: str, response: str) -> Reply | None:
        with self._changed:
            known = self._sessions.get(session)
            return known.replies.get(response) if known else None

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _stop(self, replies: list[Reply]) -> None:
        for reply in replies:
            reply.lane.stop()
            if self._forget(reply):
                with self._changed:
                    self._counters["responses_stopped"] += 1
            reply.stop.set()

    def _is_coded(self, request: StartResponse) -> bool:
        """Whether its voice travels as codes; says so once where there is a codec and it does not."""
        codec, voice = self._codec, request.voice
        if codec is None or request.modality != "audio":
            return False
        if voice not in codec.voices and voice not in self._uncoded and not self._codes_only:
            self._uncoded.add(voice)
            log.warning("voice %r goes as PCM: the codec %s was not trained on it", voice, codec.identity)
        return voice in codec.voices

    def _drop_utterance(self, reply: Reply) -> None:
        with self._changed:
            utterance, reply.utterance = reply.utterance, None
            if utterance is not None and self._codec is not None:
                self._codec.drop(utterance)

    def _forget(self, reply: Reply) -> bool:
        with self._changed:
            self._drop_utterance(reply)
            reply.clauses.clear()
            session = self._sessions.get(reply.request.fence.session)
            if session is None:
                return not reply.stop
            return session.replies.pop(reply.request.response, None) is not None

    def _retire_if_done(self, reply: Reply) -> None:
        if reply.lane.finished:
            self._forget(reply)

    def _fail(self, reply: Reply, code: str, message: str) -> None:
        request = reply.request
        reply.post(EngineFailed(request.fence, request.response, code, message))
        with self._changed:
            self._drop_utterance(reply)
            reply.clauses.clear()
        reply.stop.set()
        self._retire_if_done(reply)

    # --- thinking ---------------------------------------------------------------------------------------------------

    def _think(self, reply: Reply) -> None:
        request = reply.request
        speakable, cutter = Speakable(), ClauseCutter()

        def hear(words: list[SpokenWord]) -> None:
            for word in words:
                clause = cutter.feed(word)
                if clause is not None:
                    self._queue(reply, clause)

        def tell(thought: Thought) -> None:
            if reply.stop:
                return
            reply.stage("first_token")
            if not isinstance(thought, TextPiece):
                # What was said before the call is spoken before the call is made.
                hear(speakable.finish())
                self._queue(reply, cutter.finish())
                call = EngineToolCall(request.fence, request.response, thought.call, thought.name, thought.arguments)
                self._queue(reply, call)
            elif request.modality == "text":
                reply.stage("first_clause")
                reply.post(EngineText(request.fence, request.response, thought.text))
            else:
                hear(speakable.feed(thought.text))

        try:
            thinking = self._thinker.think(_think_request(reply), tell, reply.stop)
            if reply.stop:
                return
            hear(speakable.finish())
            self._queue(reply, cutter.finish())
        except ThinkerError as error:
            # What it has said in whole clauses is still spoken.
            self._queue(reply, EngineFailed(request.fence, request.response, error.code, str(error)))
        except Exception as error:
            log.exception("thinking failed")
            message = f"the thinker failed ({type(error).__name__}); see the server's log"
            self._queue(reply, EngineFailed(request.fence, request.response, "thinker_failed", message))
        else:
            done = EngineDone(
                request.fence, request.response, thinking.reason, thinking.input_tokens, thinking.output_tokens
            )
            self._queue(reply, done)
            if request.fence.epoch != OUT_OF_BAND:
                # The next one begins the same, unless the session is changed meanwhile.
                with self._changed:
                    session = self._sessions.get(request.fence.session)
                    if session is not None:
                        self._read_ahead(session, request.instructions, request.tools, request.tool_choice)

    def _read_ahead(self, session: OpenSession, instructions: str, tools: tuple[Tool, ...], choice: str) -> None:
        """Have read what begins the session's prompts, some time, unless it has been."""
        thinker = self._thinker
        offered = () if choice == "none" else tools
        if not isinstance(thinker, ReadsAhead) or not (instructions or offered):
            return

        def read() -> None:
            try:
                thinker.read_ahead(session.tenant, session.fence.session, instructions, offered, session.gone)
            except Exception:
                # Nobody waits for it: the prompt is read when it is needed, as without this.
                log.exception("reading ahead failed")

        with contextlib.suppress(RuntimeError):  # the engine was shut down in between
            self._ahead.submit(read)

    def _queue(self, reply: Reply, item: str | Event | None) -> None:
        """Hand a clause, or an event that comes after it, to the talker."""
        if item is None:
            return
        if isinstance(item, str):
            reply.stage("first_clause")
        queued = reply.clause(item) if isinstance(item, str) else item
        with self._changed:
            if reply.stop:
                return
            reply.clauses.append(queued)
            reply.unspoken += len(item) if isinstance(item, str) else 0
            self._changed.notify_all()

    # --- talking ----------------------------------------------------------------------------------------------------

    def _talk(self) -> None:
        lower_priority(PROMPT)
        while (job := self._next_job()) is not None:
            if isinstance(job, list):
                self._code(job)
                continue
            reply, item = job
            if isinstance(item, Clause):
                self._speak(reply, item)
            else:
                reply.post(item)
                self._retire_if_done(reply)

    def _speak(self, reply: Reply, clause: Clause) -> None:
        request, text = reply.request, clause.text
        try:
            reply.border.admit(clause.envelope, text)
            if self._codes_only and reply.codes is None and request.voice in self._talker.voices:
                raise TalkerError(
                    "voice_without_codec",
                    f"voice: {request.voice!r} cannot travel as codes, the codec was not trained on it; choose one of "
                    f"{', '.join(self._coded_voices())}, or serve with the voice path auto or pcm",
                )
            spoken = self._talker.speak(text, voice=request.voice, speed=request.speed, first=reply.lane.end == 0)
        except StaleFence:
            # The epoch changed between the queue and here; whoever changed it has stopped the response.
            with self._changed:
                self._counters["clauses_stale"] += 1
            return
        except TransferRefused as refused:
            log.error("a clause was refused: %s", refused)
            self._fail(reply, "transfer_refused", str(refused))
            return
        except TalkerError as error:
            self._fail(reply, error.code, str(error))
            return
        except Exception as error:
            log.exception("talking failed")
            self._fail(reply, "talker_failed", f"the talker failed ({type(error).__name__}); see the server's log")
            return
        with self._changed:
            reply.unspoken -= len(text)
            if reply.codes is not None and self._codec is not None:
                if spoken.pcm and not reply.stop:
                    reply.utterance = self._codec.begin(spoken.pcm, spoken.words, reply.coded_frames)
                    reply.coded_frames += reply.utterance.frames
                return
        if spoken.pcm:
            reply.stage("first_audio")
            reply.lane.say(spoken.pcm, spoken.words)

    def _coded_voices(self) -> list[str]:
        return sorted(self._codec.voices) if self._codec is not None else []

    def _code(self, batch: list[tuple[Reply, Utterance]]) -> None:
        """A chunk of each through encoder and decoder, and what is heard of it to its lane."""
        codec = self._codec
        if codec is None:
            raise RuntimeError("there are utterances without a codec")
        try:
            with self._changed:
                unclean = codec.unclean()
            codec.clean(unclean)
            codes = codec.encode([utterance for _, utterance in batch])
            rows = [row for row in map(self._admit_codes, batch, codes) if row is not None]
            heard = codec.decode([row[1] for row in rows], [row[2] for row in rows]) if rows else []
        except Exception as error:
            log.exception("the codec failed")
            for reply, _ in batch:
                self._fail(reply, "codec_failed", f"the codec failed ({type(error).__name__}); see the server's log")
            return
        for (reply, utterance, frames), sound in zip(rows, heard, strict=True):
            if not np.isfinite(sound).all():
                self._fail(reply, "codec_failed", "the codec gave no finite samples; see the server's log")
                log.error("the codec gave no finite samples for %s", [frame.codes for frame in frames])
                continue
            with self._changed:
                if not codec.holds(utterance):
                    self._counters["codes_stale"] += 1
                    continue
                self._counters["frames_decoded"] += len(frames)
                chunk = utterance.take(sound, frames, codec.format)
                if utterance.finished:
                    self._drop_utterance(reply)
            if chunk.pcm:
                reply.stage("first_audio")
                reply.lane.say(chunk.pcm, chunk.words, chunk.span)

    def _admit_codes(
        self, row: tuple[Reply, Utterance], codes: Codes
    ) -> tuple[Reply, Utterance, tuple[CodecFrame, ...]] | None:
        """The frames that cross to the decoder; None, and the response over, where they may not."""
        reply, utterance = row
        frames = utterance.frames_of(codes)
        if reply.codes is None or self._codec is None:
            raise RuntimeError("codes of a response that has none")
        payload = codes[None, : len(frames)]
        try:
            reply.codes.admit(reply.chunk(frames, self._codec.identity), payload)
        except StaleFence:
            with self._changed:
                self._counters["codes_stale"] += 1
            return None
        except TransferRefused as refused:
            log.error("codes were refused: %s", refused)
            self._fail(reply, "transfer_refused", str(refused))
            return None
        return reply, utterance, frames

    def _next_job(self) -> tuple[Reply, Clause | Event] | list[tuple[Reply, Utterance]] | None:
        """What the most urgent response that may go on needs; None when all is over.

        That is the next item of its queue, or a chunk of its clause through the codec, together with what other
        responses have of that length.
        """
        with self._changed:
            while True:
                replies = [reply for session in self._sessions.values() for reply in session.replies.values()]
                ready = sorted(filter(self._can_go_on, replies), key=Reply.talking_urgency)
                if ready and ready[0].utterance is None:
                    item = ready[0].clauses.popleft()
                    self._changed.notify_all()
                    return ready[0], item
                if ready and self._codec is not None:
                    due = [(reply, reply.utterance) for reply in ready if reply.utterance is not None]
                    chosen = self._codec.together([utterance.chunk for _, utterance in due])
                    return [due[number] for number in chosen]
                if self._closing:
                    return None
                self._changed.wait()

    def _can_go_on(self, reply: Reply) -> bool:
        if reply.utterance is not None:
            return reply.lane.wants_audio
        if not reply.clauses:
            return False
        if not isinstance(reply.clauses[0], Clause):
            return True
        return reply.lane.wants_audio and (reply.codes is None or self._codec is None or self._codec.has_room)


def _think_request(reply: Reply) -> ThinkRequest:
    request = reply.request
    return ThinkRequest(
        context=request.context,
        instructions=request.instructions,
        tools=request.tools,
        tool_choice=request.tool_choice,
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        spoken=request.modality == "audio",
        seed=zlib.crc32(f"{request.fence.session}/{request.response}".encode()),
        urgency=reply.thinking_urgency,
        tenant=reply.tenant,
    )
