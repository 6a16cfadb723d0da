"""What a client may ask for. A refusal is a `CommandError`, becomes a notice and changes nothing."""

from __future__ import annotations

from . import counters
from .asides import Asides
from .config import SessionConfig
from .context import ContextEntry
from .conversation import Item
from .effects import Count, Effect, Notify, OpenEngine, OpenPerception, ShowImages, TellEngine
from .errors import CommandError
from .events import (
    CommandRejected,
    ConfigUpdate,
    InputClear,
    InputCommit,
    ItemCreate,
    ItemDelete,
    ItemRetrieve,
    ItemTruncate,
    OutputClear,
    ResponseCancel,
    ResponseCreate,
)
from .listening import Listening
from .notices import (
    CommandFailed,
    InputCleared,
    ItemAdded,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    Notice,
    SessionConfigured,
    SpeechStopped,
)
from .speaking import Cause, Speaking
from .state import State, Utterance
from .timeline import from_ms, to_ms
from .turns import Ended

NO_NOISE_REDUCTION = "noise_reduction_not_available"
NO_NOISE_REDUCTION_REMEDY = (
    "noise reduction is not installed on this server; have it installed there (pip install 'talkover[denoise]'), or "
    "leave it off"
)
NO_LOGPROBS = "logprobs_not_available"
NO_LOGPROBS_REMEDY = "what transcribes on this server does not tell how sure it is; leave the field out"
ASIDES_MAX = 8
"""Responses outside the conversation at a time."""
NOT_ACTIVE = "response_cancel_not_active"
"""Clients know this code, and a message that begins with "Cancellation failed", for a cancel that came too late."""
COMMIT_MIN = from_ms(100)
"""Less input than this is taken as an accident, as Realtime clients expect."""


def _idle_timeout(config: SessionConfig) -> int | None:
    return None if config.turns is None else config.turns.idle_timeout_ms


class Commands:
    """Effects of client commands. Methods raise CommandError before they change anything."""

    def __init__(
        self, state: State, out: list[Effect], listening: Listening, speaking: Speaking, asides: Asides
    ) -> None:
        self._s = state
        self._asides = asides
        self._out = out
        self._listening = listening
        self._speaking = speaking

    def _notify(self, notice: Notice) -> None:
        self._out.append(Notify(notice))

    def rejected(self, event: CommandRejected) -> None:
        raise CommandError(event.code, event.message, event.param)

    # --- session and input -----------------------------------------------------------------------------------------

    def configure(self, event: ConfigUpdate) -> None:
        s = self._s
        config = event.config
        if s.spoke and config.voice != s.config.voice:
            raise CommandError(
                "cannot_update_voice",
                "the voice cannot change once the agent has spoken; open a new session for another voice",
                "voice",
            )
        if config.responses != s.config.responses:
            raise CommandError(
                "cannot_update_responses", "whether a session answers is decided when it is opened; open another one"
            )
        self._check_voice(config.voice, "voice")
        if config.denoise and not s.abilities.noise_reduction:
            raise CommandError(NO_NOISE_REDUCTION, NO_NOISE_REDUCTION_REMEDY, "denoise")
        if config.transcript_logprobs and not s.abilities.logprobs:
            raise CommandError(NO_LOGPROBS, NO_LOGPROBS_REMEDY, "transcript_logprobs")
        listened = s.config.turns is not None
        if _idle_timeout(config) != _idle_timeout(s.config):
            self._listening.stir()
        other = (config.instructions, config.voice) != (s.config.instructions, s.config.voice)
        if s.abilities.engine_told:
            other |= (config.tools, config.tool_choice) != (s.config.tools, s.config.tool_choice)
        s.config = config
        if other and s.opened and config.responses and s.abilities.engine_turns:
            # Nothing asks it for a response, so nothing else would tell it who it is.
            self._out.append(OpenEngine(s.fence, config))
        if (config.turns is not None) != listened:
            self._listening.forget()
        self._out.append(OpenPerception.of(config))
        self._notify(SessionConfigured(config))

    def _check_voice(self, voice: str | None, param: str) -> None:
        voices = self._s.abilities.voices
        if voice is not None and voices and voice not in voices:
            raise CommandError(
                "unknown_voice", f"there is no voice {voice!r}; choose one of {', '.join(voices)}", param
            )

    def commit_input(self, event: InputCommit) -> None:
        """Close the user's input by hand. With turn detection on, it ends the turn that is open."""
        s = self._s
        length = s.input.watermark - (s.input.buffer_start if s.utterance is None else s.utterance.start)
        if length < COMMIT_MIN:
            raise CommandError(
                "input_audio_buffer_commit_empty",
                f"the input buffer holds {to_ms(length)} ms of audio; append at least {to_ms(COMMIT_MIN)} ms first",
            )
        utterance = s.utterance or Utterance(s.fresh_id("item"), s.input.buffer_start)
        ended: Ended | None = None
        if s.utterance is not None:
            ended = Ended(s.policy.start, s.policy.voiced_until, s.input.watermark, "client")
            self._notify(SpeechStopped(utterance.item, s.policy.voiced_until))
            self._listening_reset(utterance)
        else:
            self._listening.forget()  # what was heard in this input so far belongs to the item
        self._listening.commit(utterance, s.input.watermark, ended)
        if ended is not None and s.answers:
            self._listening.answer(ended.speech_end)

    def _listening_reset(self, utterance: Utterance) -> None:
        """A hand-made end needs words up to here, not those looked up at an earlier silence."""
        s = self._s
        if utterance.request is not None and utterance.text is None:
            if utterance.request in s.requests:
                self._listening.cancel(utterance.request)
            utterance.request = None
        s.policy.reset()

    def clear_input(self, event: InputClear) -> None:
        self._listening.forget()
        self._notify(InputCleared())

    # --- items -----------------------------------------------------------------------------------------------------

    def _item(self, item_id: str, param: str = "item_id", code: str = "item_not_found") -> Item:
        item = self._s.conversation.find(item_id)
        if item is None:
            raise CommandError(code, f"no item {item_id!r} in this conversation; use an id from an item event", param)
        return item

    def create_item(self, event: ItemCreate) -> None:
        s = self._s
        conversation = s.conversation
        if event.id is not None and conversation.find(event.id) is not None:
            raise CommandError(
                "item_create_duplicate_item_id", f"item {event.id!r} already exists; choose another id", "item.id"
            )
        if event.previous not in (None, "root"):
            self._item(event.previous or "", "previous_item_id")
        if event.images and not s.abilities.images:
            raise CommandError(
                "images_not_supported",
                "what answers here does not see; send text or audio, or have a model that sees served",
                "item.content",
            )
        if event.kind == "function_call_output":
            if event.call in conversation.answered_calls:
                raise CommandError("tool_output_exists", f"call {event.call!r} already has its output", "item.call_id")
            if event.call not in conversation.open_calls:
                raise CommandError(
                    "call_not_found", f"no call {event.call!r} waits for an output in this conversation", "item.call_id"
                )
            conversation.open_calls.remove(event.call)
            conversation.answered_calls.append(event.call)
        elif event.kind == "function_call":
            if event.call in conversation.open_calls or event.call in conversation.answered_calls:
                raise CommandError("call_exists", f"call {event.call!r} already exists", "item.call_id")
            conversation.open_calls.append(event.call)
        item = Item(
            event.id or s.fresh_id("item"), event.role, event.kind, text=event.text, call=event.call, name=event.name
        )
        if event.images:
            item.images = event.images
            self._out.append(ShowImages(event.images))
        if event.audio is not None:
            item.spoken = True
            item.start, item.end = event.audio.start, event.audio.end
            self._listening.arrived(event.audio)
            if s.utterance is None:
                self._listening.forget()
        if event.previous is None:
            previous = conversation.append(item)
        else:
            conversation.insert_after(event.previous, item)
            previous = conversation.previous_of(item.id)
        self._notify(ItemAdded(item.view(), previous))
        if item.spoken and s.abilities.transcripts:
            self._listening.await_words(item)
        if s.abilities.engine_told and not item.spoken and item.kind != "function_call":
            entry = ContextEntry(item.role, item.kind, item.text, item.call, item.name)
            self._out.append(TellEngine(s.fence, (entry,)))

    def truncate(self, event: ItemTruncate) -> None:
        """Shorten what the history holds of an agent's spoken item to what the client says it played."""
        s = self._s
        item = self._item(event.item)
        if item.role != "assistant" or item.kind != "message" or not item.spoken:
            raise CommandError(
                "item_not_truncatable",
                f"item {event.item!r} is not spoken by the agent; only such items are cut",
                "item_id",
            )
        if event.content_index != 0:
            raise CommandError(
                "invalid_content_index", "the item has one content part; use content_index 0", "content_index"
            )
        if event.position < 0:
            raise CommandError("invalid_audio_end", "audio_end_ms must not be negative", "audio_end_ms")
        playing = s.active is not None and s.active.item == item.id
        whole = item.heard is None and not playing
        if whole and to_ms(event.position) > to_ms(item.sent):
            raise CommandError(
                "audio_shorter",
                f"the item's audio is {to_ms(item.sent)} ms long, already shorter than {to_ms(event.position)} ms",
                "audio_end_ms",
            )
        if playing or any(sounding.item == item.id for sounding in s.sounding):
            self._speaking.cut("client_cancel")
            if s.abilities.engine_turns:
                self._speaking.mute()
        limit = item.sent if item.heard is None else item.heard
        if item.heard is not None or event.position < limit:
            limit = min(event.position, limit)
            item.cut(limit)
            item.status = "incomplete"
        self._notify(ItemTruncated(item.id, event.content_index, limit, item.text))

    def delete_item(self, event: ItemDelete) -> None:
        s = self._s
        item = self._item(event.item)
        if s.active is not None and item.id in s.active.outputs:
            raise CommandError(
                "item_in_progress", "the item belongs to the response in progress; cancel the response first", "item_id"
            )
        s.conversation.delete(item.id)
        if item.kind == "function_call" and item.call in s.conversation.open_calls:
            s.conversation.open_calls.remove(item.call)
        if item.id in s.awaiting:
            s.awaiting.remove(item.id)
        self._notify(ItemDeleted(item.id))
        self._listening.respond()

    def retrieve(self, event: ItemRetrieve) -> None:
        self._notify(ItemRetrieved(self._item(event.item, code="item_retrieve_invalid_item_id").view()))

    # --- responses -------------------------------------------------------------------------------------------------

    def create_response(self, event: ResponseCreate) -> None:
        s = self._s
        if not s.config.responses:
            raise CommandError(
                "responses_not_available",
                "this session only transcribes; open a session of the conversational kind for responses",
            )
        if event.aside:
            self._create_aside(event)
            return
        if s.active is not None and s.active.announced:
            raise CommandError(
                "conversation_already_has_active_response",
                f"response {s.active.id!r} is still in progress; wait for its end or cancel it first",
            )
        if s.abilities.engine_turns:
            raise CommandError(
                "engine_owns_turns", "this model decides itself when it speaks; responses cannot be asked for"
            )
        self._check_voice(event.voice, "audio.output.voice")
        given = self._resolved(event)
        self._speaking.retract()
        s.respond = False
        self._speaking.begin(event, given=given)

    def _resolved(self, event: ResponseCreate) -> tuple[ContextEntry, ...] | None:
        """What a response reads of its own, its references looked up."""
        if event.input is None:
            return None
        found = self._s.conversation.resolve(event.input, self._s.abilities.hears_turns)
        if isinstance(found, str):
            raise CommandError("item_not_found", f"no item {found!r} in this conversation", "response.input")
        return found

    def _create_aside(self, event: ResponseCreate) -> None:
        s = self._s
        if s.abilities.engine_turns:
            raise CommandError("engine_owns_turns", "this model answers only what it hears")
        if len(s.asides) >= ASIDES_MAX:
            raise CommandError(
                "too_many_responses", f"{ASIDES_MAX} responses outside the conversation are in progress; wait for one"
            )
        self._check_voice(event.voice, "audio.output.voice")
        self._asides.begin(event, self._resolved(event))

    def cancel_response(self, event: ResponseCancel) -> None:
        s = self._s
        active = s.active
        if event.response is not None and event.response in s.asides:
            self._asides.cancel(event.response, "client_cancel")
            return
        if active is None or not active.announced:
            raise CommandError(NOT_ACTIVE, "Cancellation failed: there is no response in progress")
        if event.response is not None and event.response != active.id:
            raise CommandError(
                NOT_ACTIVE, f"Cancellation failed: response {event.response!r} is not in progress", "response_id"
            )
        self.stop("client_cancel")

    def clear_output(self, event: OutputClear) -> None:
        s = self._s
        if s.sounding or (s.active is not None and s.active.announced):
            self.stop("client_clear")

    def stop(self, cause: Cause) -> None:
        """End what the agent is saying."""
        s = self._s
        s.respond = False
        if s.policy.phase == "over":
            s.policy.reset()
            self._listening.drop("look")
        self._speaking.cut(cause)
        if s.abilities.engine_turns:
            self._speaking.mute()

    def refuse(self, error: CommandError, command: str | None) -> None:
        self._out.append(Count(counters.REJECTED))
        self._notify(CommandFailed(error.code, error.message, error.param, command))
