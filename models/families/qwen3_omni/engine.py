"""Qwen3-Omni behind `EnginePort`: one worker steps the stages for all sessions together.

Each turn of the worker does a little of everything: encodes some media, reads some of the prompts, continues every text
by a token and every speech by a frame, and decodes the sound that is due. So a new session waits for a step of the
others and not for their answers, and a cancelled response is gone at the next one.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch

from sessions.core.config import SessionConfig
from sessions.core.context import ContextPart, ImageRef
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks
from sessions.ports import Busy, Emit, EngineCapabilities

from ...caches import CacheMetrics
from ...envelope import StaleFence, TransferRefused
from ...graph.states import StateKind
from ...occupancy import Occupancy
from ...priority import PROMPT, lower_priority
from ..fenced import advanced, holding
from .borders import Contracts, Passages
from .code2wav import Code2Wav, Window
from .encoders import TOGETHER, Encoders
from .errors import MediaError
from .media import InputTrack, audio, image, sound
from .omni import RATE, Omni
from .prompt import Features, Turn, build, text_of
from .reply import Need, Reply
from .rows import Rows
from .talker import Opening, Talker
from .thinker import Piece, Thinker

log = logging.getLogger(__name__)

T = TypeVar("T")

SPARE = 2
"""Rows beside those of the sessions, for responses outside the conversation."""
WIDEST = 128
"""Most positions of one prompt that are read in a step."""
BUDGET = 512
"""Most positions of all prompts that are read in a step: the others' next frame waits for them."""
FIRST, SOON, LATER = 2, 4, 20
"""Frames of a window: before the first sound, while the listener could run dry, and with time in hand."""
EASE: Ticks = 48_000
"""Sound in hand from which there is time."""
IMAGE_BYTES = 32 << 20
"""Files of a session's images."""
NOBODY = "without a key"
"""Tenant of the sessions that come without one; they are one another's."""


class _Session:
    def __init__(self, fence: Fence, tenant: str, emit: Emit) -> None:
        self.fence = fence
        self.tenant = tenant or NOBODY
        self.emit = emit
        self.replies: dict[str, Reply] = {}
        self.track = InputTrack()
        self.images: dict[str, bytes] = {}
        self.unusable: set[ContextPart] = set()
        """Of the history; an answer failed over each of them once, and the next ones go without."""


class OmniEngine:
    """`EnginePort` over a loaded `Omni`, for `max_sessions` at a time; one more gets `Busy` at once.

    `worker`: compute in a thread of its own; without it whoever calls `step` does. `shutdown` ends it.

    `counters` (names to totals): "sessions_refused", "requests_unknown", "requests_stale", "responses_stopped",
    "history_shortened" (turns that did not fit into the thinker's positions), "media_lost" (a part of a turn whose
    medium is not held any more, or that an answer failed over before, read by its transcript if it has one),
    "transfers_stale" (between two stages, of an answer that was cut), "transfers_refused" (anything else that a stage
    would not take; its answer fails).
    """

    def __init__(self, omni: Omni, *, max_sessions: int, worker: bool = True) -> None:
        if max_sessions < 1:
            raise ValueError(f"max_sessions {max_sessions} must be at least 1")
        self._omni = omni
        self._max_sessions = max_sessions
        self._rows = Rows(max_sessions, SPARE)
        self._encoders = Encoders(omni)
        self._thinker = Thinker(omni, self._rows.count, WIDEST)
        self._talker = Talker(omni, self._rows.count)
        self._code2wav = Code2Wav(omni)
        self._contracts = Contracts.of(omni)
        self._changed = threading.Condition()
        self._sessions: dict[str, _Session] = {}
        self._live: list[Reply] = []
        self._gone: list[str] = []
        self._order = 0
        self._closing = False
        self._counters: Counter[str] = Counter()
        self._worker = threading.Thread(target=self._work, name="talkover-omni", daemon=True) if worker else None
        if self._worker is not None:
            self._worker.start()

    @property
    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(
            turns="core",
            context="core",
            listens="audio",
            images=True,
            output_rate=RATE,
            interruption="rewind",
            tools=False,
            voices=("default", *self._omni.voices),
        )

    @property
    def counters(self) -> Mapping[str, int]:
        with self._changed:
            return dict(self._counters)

    @property
    def active(self) -> int:
        """Responses that are being computed."""
        with self._changed:
            return len(self._live)

    @property
    def rows_busy(self) -> int:
        """Rows of the batch that are at work."""
        return self._rows.busy

    def held(self, tenant: str) -> Mapping[str, int]:
        """See `Retains.held`."""
        return {"features": self._encoders.held(tenant or NOBODY)}

    def forget(self, tenant: str) -> None:
        """See `Retains.forget`."""
        self._encoders.forget(tenant or NOBODY)

    @property
    def features(self) -> CacheMetrics:
        """How the cache of encoded media does."""
        return self._encoders.metrics

    @property
    def occupancy(self) -> Occupancy:
        """See `Occupied`. "kv" among the caches: positions of prompts that a row held already, and those it read."""
        with self._changed:
            live = list(self._live)
        phases = Counter(reply.phase for reply in live)
        queues = {f"{phase}_replies": phases[phase] for phase in ("media", "row", "reading")}
        return Occupancy(
            slots=self._rows.count,
            busy=self._rows.busy,
            kv={"thinker": self._thinker.kv, "talker": self._talker.kv},
            queues={
                **queues,
                "tokens": sum(reply.passages.text.waiting for reply in live),
                "frames": sum(reply.track.waiting + reply.passages.codes.waiting for reply in live),
                "output_ticks": sum(reply.lane.ahead for reply in live),
            },
            caches={StateKind.FEATURE.name.lower(): self.features, StateKind.KV.name.lower(): self._thinker.prefixes},
        )

    # --- the port ---------------------------------------------------------------------------------------------------

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        """See `EnginePort.open`. An open session takes the new fence and goes on. Raises Busy."""
        with self._changed:
            known = self._sessions.get(fence.session)
            if known is None:
                if self._closing or len(self._sessions) >= self._max_sessions:
                    self._counters["sessions_refused"] += 1
                    raise Busy(f"all {self._max_sessions} sessions of this engine are taken", retry_after=5.0)
                self._sessions[fence.session] = _Session(fence, config.tenant, emit)
                return
            known.emit = emit
        self.advance(fence)

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        with self._changed:
            known = self._sessions.get(session)
            if known is not None:
                known.track.append(start, pcm, rate)

    def see(self, session: str, image: ImageRef, data: bytes) -> None:
        """See `Sees`. A session's newest images are held, together at most `IMAGE_BYTES`."""
        with self._changed:
            known = self._sessions.get(session)
            if known is None:
                return
            known.images.pop(image.digest, None)
            known.images[image.digest] = data
            known.unusable = {part for part in known.unusable if part.image != image}
            while sum(map(len, known.images.values())) > IMAGE_BYTES and len(known.images) > 1:
                del known.images[next(iter(known.images))]

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
            longest = self._omni.rules.longest_text
            decoder = self._omni.words.decoder()
            made = request.fence
            passages = Passages(self._contracts, request.response, session.tenant, made, lambda: holding(session, made))
            reply = Reply.of(request, session.tenant, session.emit, decoder, longest, self._order, passages)
            session.replies[request.response] = reply
            self._live.append(reply)
            self._changed.notify_all()

    def grant(self, request: GrantCredit) -> None:
        with self._changed:
            session = self._sessions.get(request.fence.session)
            reply = session.replies.get(request.response) if session else None
            if session is None or reply is None:
                return  # all of it was made and emitted before the credit came
        reply.lane.grant(request.until)
        with self._changed:
            if reply.lane.finished:
                session.replies.pop(request.response, None)
            self._changed.notify_all()

    def cancel(self, fence: Fence, response: str) -> None:
        with self._changed:
            session = self._sessions.get(fence.session)
            reply = session.replies.get(response) if session else None
            if reply is None:
                self._counters["requests_unknown"] += 1
                return
            self._stop([reply])

    def advance(self, fence: Fence) -> None:
        with self._changed:
            session = advanced(self._sessions, fence, self._counters)
            if session is None:
                return
            self._stop([reply for reply in session.replies.values() if reply.request.fence.order < fence.order])

    def close(self, session: str) -> None:
        with self._changed:
            gone = self._sessions.pop(session, None)
            if gone is not None:
                self._stop(list(gone.replies.values()))
                self._gone.append(session)
                self._changed.notify_all()

    def shutdown(self) -> None:
        """Stop everything and wait for the worker. Idempotent; blocks for about a step."""
        with self._changed:
            sessions = list(self._sessions)
            self._closing = True
        for session in sessions:
            self.close(session)
        with self._changed:
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join()

    def _stop(self, replies: Sequence[Reply]) -> None:
        """Under the lock: nothing more of them leaves from here on; the worker takes their rows at its next turn."""
        for reply in replies:
            reply.stopped = True
            reply.lane.stop()
            session = self._sessions.get(reply.request.fence.session)
            if session is not None:
                session.replies.pop(reply.request.response, None)
            self._counters["responses_stopped"] += 1
        self._changed.notify_all()

    # --- the worker -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        lower_priority(PROMPT)
        torch.set_num_threads(1)
        while True:
            with self._changed:
                while not self._closing and not self._runnable():
                    self._changed.wait()
                if self._closing and not self._live and not self._gone:
                    return
            self.step()

    def _runnable(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._gone) or any(self._can_go_on(reply) for reply in self._live)

    def _can_go_on(self, reply: Reply) -> bool:
        if reply.phase == "row" and not reply.stopped:
            return self._rows.can_take(reply.request.fence.session)
        return reply.stopped or reply.runnable

    def step(self) -> bool:
        """One turn of all stages. Returns whether there was anything to do."""
        with torch.inference_mode():
            replies = self._reap()
            for stage in (
                self._encode,
                self._settle,
                self._read,
                self._think,
                self._begin_talk,
                self._talk,
                self._decode,
            ):
                stage([reply for reply in replies if not reply.stopped and not reply.finished])
            self._retire(replies)
        return bool(replies)

    def _reap(self) -> list[Reply]:
        """Take back what belongs to cancelled responses and closed sessions; returns who is left."""
        with self._changed:
            stopped = [reply for reply in self._live if reply.stopped]
            self._live = [reply for reply in self._live if not reply.stopped]
            gone, self._gone = self._gone, []
            replies = list(self._live)
        for session in gone:
            row = self._rows.forget(session)
            if row is not None:
                self._thinker.forget(row)
        for reply in stopped:
            self._release(reply)
        return replies

    def _release(self, reply: Reply) -> None:
        if reply.row < 0:
            return
        self._talker.forget(reply.row)
        if self._rows.leave(reply.request.fence.session, reply.row):
            self._thinker.forget(reply.row)
        reply.row = -1

    def _retire(self, replies: Sequence[Reply]) -> None:
        """Responses that are made whole leave their rows; their sound goes on leaving by credit."""
        over = [reply for reply in replies if reply.finished and not reply.stopped]
        for reply in over:
            self._release(reply)
        with self._changed:
            for reply in over:
                self._live.remove(reply)
                session = self._sessions.get(reply.request.fence.session)
                if session is not None and reply.lane.finished:
                    session.replies.pop(reply.request.response, None)

    def _together(self, replies: Sequence[Reply], what: str, compute: Callable[[], None]) -> None:
        """A step of several responses. A fault in it ends them and nobody else."""
        try:
            compute()
        except Exception:
            log.exception("%s failed", what)
            for reply in replies:
                reply.fail("engine_failed", f"the {what} failed; see the server's log")

    def _crossing(self, reply: Reply, take: Callable[[], T]) -> T | None:
        """What a stage takes from the one before; None, and the answer fails, where its border refuses it."""
        try:
            return take()
        except StaleFence:
            # It was cut at this very moment, and whoever cut it told so.
            self._count("transfers_stale")
            reply.finished = True
        except TransferRefused as refused:
            log.error("between two stages: %s", refused)
            self._count("transfers_refused")
            reply.fail("transfer_refused", str(refused))
        return None

    def _count(self, name: str) -> None:
        with self._changed:
            self._counters[name] += 1

    # --- media ------------------------------------------------------------------------------------------------------

    def _encode(self, replies: Sequence[Reply]) -> None:
        """Look up what contexts hold besides text, and encode some of what nobody has encoded yet."""
        waiting: list[tuple[Reply, Need]] = []
        for reply in sorted((reply for reply in replies if reply.phase == "media"), key=lambda reply: reply.order):
            if reply.needs is None:
                self._together([reply], "reading of media", partial(self._look_up, reply))
            if reply.needs is None:
                continue
            for need in reply.needs.values():
                need.features = need.features or self._made(reply, need)
            missing = [need for need in reply.needs.values() if need.features is None]
            if not missing:
                reply.phase = "row"
            waiting += [(reply, need) for need in missing]
        if waiting:
            chosen = _alike(waiting)
            self._together([reply for reply, _ in chosen], "encoder", lambda: self._encode_together(chosen))

    def _look_up(self, reply: Reply) -> None:
        try:
            reply.needs = self._needs(reply)
        except MediaError as error:
            reply.fail(error.code, str(error))

    def _made(self, reply: Reply, need: Need) -> Features | None:
        return self._encoders.find(reply.tenant, need.kind, need.name)

    def _encode_together(self, chosen: Sequence[tuple[Reply, Need]]) -> None:
        media = [need.medium for _, need in chosen if need.medium is not None]
        made = self._encoders.encode(chosen[0][0].tenant, media)
        for (reply, need), features in zip(chosen, made, strict=True):
            need.features, need.medium = features, None
            reply.stage("features")

    def _needs(self, reply: Reply) -> dict[ContextPart, Need]:
        """What a context holds besides text. Raises MediaError."""
        needs: dict[ContextPart, Need] = {}
        with self._changed:
            session = self._sessions.get(reply.request.fence.session)
            unusable = set() if session is None else set(session.unusable)
        for part in (part for entry in reply.request.context for part in entry.parts):
            if part in unusable:
                self._count("media_lost")
                continue
            try:
                need = self._need(reply, part)
            except MediaError:
                if session is not None:
                    with self._changed:
                        session.unusable.add(part)
                raise
            if need is not None:
                needs[part] = need
        return needs

    def _need(self, reply: Reply, part: ContextPart) -> Need | None:
        """None for text, and for sound that is not held any more: its transcript is read."""
        with self._changed:
            session = self._sessions.get(reply.request.fence.session)
            data = session.images.get(part.image.digest) if session and part.image else None
            stretches = session.track.cut(part.heard) if session and part.heard else None
        if part.image is not None:
            need = Need("image", part.image.digest)
            need.features = self._made(reply, need)
            if need.features is None:
                if data is None:
                    raise MediaError("image_gone", "an image of the conversation is not held any more; send it again")
                need.medium = image(need.name, data, self._encoders.patches)
            return need
        if part.heard is None:
            return None
        if stretches is None:
            self._count("media_lost")
            return None
        digest = hashlib.sha256(b"".join(pcm + rate.to_bytes(4, "little") for pcm, rate in stretches)).hexdigest()
        need = Need("audio", digest)
        need.features = self._made(reply, need)
        if need.features is None:
            need.medium = audio(digest, sound(stretches))
        return need

    def _turns(self, reply: Reply) -> list[Turn]:
        """Raises TransferRefused."""
        needs = reply.needs or {}
        turns: list[Turn] = []
        for entry in reply.request.context:
            parts: list[str | Features] = [] if entry.parts else [text_of(entry)]
            for part in entry.parts:
                need = needs.get(part)
                if need is not None and need.features is not None:
                    reply.passages.features(need.features)
                    parts.append(need.features)
                else:
                    parts.append(part.text)
            turns.append(Turn(entry.role, tuple(parts)))
        return turns

    # --- stages -----------------------------------------------------------------------------------------------------

    def _settle(self, replies: Sequence[Reply]) -> None:
        """Give waiting responses a row each, and cut what it holds to how their history begins."""
        for reply in sorted((reply for reply in replies if reply.phase == "row"), key=lambda reply: reply.order):
            if not reply.prompt.ids and not self._compose(reply):
                continue
            session = reply.request.fence.session
            row = self._rows.take(session)
            if row is None:
                return
            reply.row = row
            reply.read = self._thinker.rewind(row, reply.prompt)
            reply.phase = "reading"

    def _compose(self, reply: Reply) -> bool:
        turns = self._crossing(reply, lambda: self._turns(reply))
        if turns is None:
            return False
        cells = self._omni.shape.cells
        reply.limit = min(reply.limit, cells // 2)
        prompt = build(self._omni, reply.request.instructions, turns, cells - reply.limit)
        if prompt is None:
            reply.fail("context_too_long", f"the newest turn has more than the {cells} positions of this model")
            return False
        reply.prompt = prompt
        return True

    def _read(self, replies: Sequence[Reply]) -> None:
        reading = sorted((reply for reply in replies if reply.phase == "reading"), key=lambda reply: reply.order)
        chosen: list[Reply] = []
        pieces: list[Piece] = []
        left = BUDGET
        for reply in reading:
            count = min(WIDEST, len(reply.prompt) - reply.read, left)
            if count <= 0:
                break
            left -= count
            chosen.append(reply)
            pieces.append(Piece(reply.row, reply.prompt, reply.read, reply.read + count))
        if chosen:
            self._together(chosen, "thinker", lambda: self._read_pieces(chosen, pieces))

    def _read_pieces(self, chosen: Sequence[Reply], pieces: Sequence[Piece]) -> None:
        logits = self._thinker.read(pieces)
        ended: list[int] = []
        for index, (reply, piece) in enumerate(zip(chosen, pieces, strict=True)):
            reply.read = piece.end
            if piece.end == len(piece.prompt):
                reply.phase = "going"
                if reply.speaks:
                    reply.heard = self._thinker.heard(reply.row, reply.prompt)
                    reply.passages.hidden.send(reply.heard.hidden[None])
                ended.append(index)
        if ended:
            self._say([chosen[index] for index in ended], logits[ended])

    def _think(self, replies: Sequence[Reply]) -> None:
        going = [reply for reply in replies if reply.phase == "going" and not reply.thought]
        if going:
            self._together(going, "thinker", lambda: self._next_tokens(going))

    def _next_tokens(self, going: Sequence[Reply]) -> None:
        tokens = torch.zeros(self._rows.count, dtype=torch.long)
        rows = [reply.row for reply in going]
        for reply in going:
            tokens[reply.row] = reply.tokens[-1]
        self._say(going, self._thinker.next_tokens(tokens, rows)[rows])

    def _say(self, replies: Sequence[Reply], logits: torch.Tensor) -> None:
        """Draw the next text token of each from `logits` [replies, V]."""
        broken = logits.isnan().any(-1).tolist()
        seeds = torch.tensor([reply.seed for reply in replies])
        numbers = torch.tensor([len(reply.tokens) for reply in replies])
        heat = torch.tensor([reply.request.temperature for reply in replies])
        tokens = self._thinker.sample(logits.nan_to_num(), seeds, numbers, heat).tolist()
        for reply, token, bad in zip(replies, tokens, broken, strict=True):
            if bad:
                self._thinker.forget(reply.row)
                reply.fail("engine_failed", "the model's numbers are not finite any more; the answer ends here")
            elif token == self._omni.tokens.im_end:
                self._thought(reply)
            else:
                reply.tokens.append(token)
                if reply.speaks:
                    reply.passages.text.send(torch.tensor([[token]]))
                reply.stage("first_token")
                reply.tell(reply.decoder.feed(token))
                if len(reply.tokens) >= reply.limit:
                    reply.reason = "max_output_tokens"
                    self._thought(reply)

    def _thought(self, reply: Reply) -> None:
        reply.thought = True
        reply.tell(reply.decoder.finish())
        if not reply.speaks or not reply.tokens:
            reply.done()

    def _begin_talk(self, replies: Sequence[Reply]) -> None:
        new = [reply for reply in replies if reply.speaks and reply.tokens and not reply.talking]
        if new:
            self._together(new, "talker", lambda: self._open_talk(new))

    def _open_talk(self, new: Sequence[Reply]) -> None:
        voices = self._omni.voices
        default = next(iter(voices.values()))
        openings: list[Opening] = []
        longest = self._talker.longest_opening
        for reply in new:
            heard = reply.heard
            hidden = self._crossing(reply, reply.passages.hidden.take)
            first = self._crossing(reply, reply.passages.text.take)
            if heard is None or hidden is None or first is None:
                continue
            spoken = self._talker.hear(heard, hidden[0])[-longest:]
            voice = voices.get(reply.request.voice, default)
            openings.append(Opening(reply.row, spoken, heard.positions[:, -longest:], voice, int(first)))
            reply.heard = None
            reply.given = 1
            reply.talking = True
        if openings:
            self._talker.begin(openings)

    def _talk(self, replies: Sequence[Reply]) -> None:
        ready = [reply for reply in replies if reply.may_talk]
        if ready:
            self._together(ready, "talker", lambda: self._next_frames(ready))

    def _next_frames(self, ready: Sequence[Reply]) -> None:
        count = self._rows.count
        texts = self._talker.no_text.expand(count, -1).clone()
        seeds, numbers = torch.zeros(count, dtype=torch.long), torch.zeros(count, dtype=torch.long)
        fed: dict[int, int] = {}
        for reply in ready:
            if reply.passages.text.waiting:
                token = self._crossing(reply, reply.passages.text.take)
                if token is not None:
                    fed[reply.row] = int(token)
        ready = [
            reply for reply in ready if not reply.finished and (reply.row in fed or reply.given >= len(reply.tokens))
        ]
        if not ready:
            return
        if fed:
            texts[list(fed)] = self._talker.embed(list(fed.values()))
        for reply in ready:
            if reply.given == len(reply.tokens):
                texts[reply.row] = self._talker.end_of_text
            reply.given += 1
            seeds[reply.row], numbers[reply.row] = reply.seed, reply.frames
        frames = self._talker.frame([reply.row for reply in ready], texts, seeds, numbers)
        for reply in ready:
            if bool(frames.ended[reply.row]):
                reply.spoken = True
            elif not self._talker.fit(reply.row):
                self._thinker.forget(reply.row)
                reply.fail("engine_failed", "the model's numbers are not finite any more; the answer ends here")
            else:
                reply.stage("first_code")
                reply.passages.codes.send(frames.codes[None, None, reply.row])
                reply.frames += 1
                full = not self._talker.has_room(reply.row)
                if full or reply.frames >= self._omni.rules.longest_speech:
                    reply.spoken, reply.reason = True, "max_output_tokens"

    def _decode(self, replies: Sequence[Reply]) -> None:
        due: list[Reply] = []
        windows: list[Window] = []
        for reply in sorted(replies, key=lambda reply: reply.urgency):
            while reply.passages.codes.waiting and not reply.finished:
                codes = self._crossing(reply, reply.passages.codes.take)
                if codes is not None:
                    reply.track.push(codes[0, 0])
            if reply.finished:
                continue
            frames = _window(reply)
            if frames:
                due.append(reply)
                windows.append(Window(reply.track, frames))
            elif reply.spoken and reply.thought:
                reply.done()
        if due:
            self._together(due, "speech decoder", lambda: self._sound(due, windows))

    def _sound(self, due: Sequence[Reply], windows: Sequence[Window]) -> None:
        for reply, wave in zip(due, self._code2wav.decode(windows), strict=True):
            last = reply.spoken and not reply.track.waiting
            pcm = (wave * 32767).round().to(torch.int16).numpy().tobytes()
            reply.sound(pcm, last)
            if last and reply.thought:
                reply.done()


def _alike(waiting: Sequence[tuple[Reply, Need]]) -> list[tuple[Reply, Need]]:
    """What goes into one step with the first that waits: its kind and tenant, the nearest in length first."""
    reply, need = waiting[0]
    kind, tenant, length = need.kind, reply.tenant, _length(need)
    fitting = [pair for pair in waiting if pair[1].kind == kind and pair[0].tenant == tenant]
    chosen: list[tuple[Reply, Need]] = []
    names: set[str] = set()
    total = 0
    for pair in sorted(fitting, key=lambda pair: abs(_length(pair[1]) - length)):
        total += _length(pair[1])
        if chosen and total > TOGETHER:
            break
        if pair[1].name not in names:
            chosen.append(pair)
            names.add(pair[1].name)
    return chosen


def _length(need: Need) -> int:
    return 0 if need.medium is None else need.medium.length


def _window(reply: Reply) -> int:
    """How many frames of a response are to be decoded now; 0: none yet.

    While it speaks one frame is kept back, so that its last words always find a sound to lie in.
    """
    waiting = reply.track.waiting
    if reply.spoken:
        return waiting
    wanted = FIRST if "first_audio" not in reply.stages else SOON if reply.lane.ahead < EASE else LATER
    return wanted if waiting > wanted else 0
