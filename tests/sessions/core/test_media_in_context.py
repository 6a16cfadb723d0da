"""Images and heard turns in a conversation: what an engine reads, and what is refused."""

from __future__ import annotations

from sessions.core.config import SessionConfig
from sessions.core.context import ContextPart, ImageRef
from sessions.core.conversation import Conversation, Item
from sessions.core.effects import ShowImages, StartResponse
from sessions.core.events import AudioArrived, EngineDraft, ItemCreate, ResponseCreate, Transcript
from sessions.core.notices import CommandFailed, OutputDraft
from sessions.core.state import Abilities
from sessions.core.timeline import Span
from tests.sessions.core.checker import Checker
from tests.sessions.core.driver import World, effects_in, notices_in

QUIET = SessionConfig(turns=None)

REF = ImageRef("aa", "image/png", 64, 48)
SECOND = 48_000


def desk(abilities: Abilities) -> World:
    return World(QUIET, abilities, observers=(Checker(QUIET, owns_turns=False),))


def test_an_engine_that_does_not_see_is_given_no_image_and_the_client_is_told() -> None:
    world = desk(Abilities())
    out = world.post(ItemCreate("user", text="look", images=(REF,)))
    (failed,) = notices_in(out, CommandFailed)
    assert (failed.code, failed.param) == ("images_not_supported", "item.content")
    assert not effects_in(out, ShowImages)
    assert not world.session.state.conversation.items


def test_an_image_is_shown_once_it_is_in_the_conversation_and_named_in_every_context_after() -> None:
    world = desk(Abilities(images=True))
    assert effects_in(world.post(ItemCreate("user", text="look", images=(REF,))), ShowImages) == [ShowImages((REF,))]
    world.post(ItemCreate("user", text="well?"))
    (start,) = effects_in(world.post(ResponseCreate()), StartResponse)
    (entry,) = start.context
    assert entry.text == "look well?"
    assert entry.parts == (ContextPart(image=REF), ContextPart("look"), ContextPart("well?"))


def test_only_an_engine_that_hears_turns_is_told_where_they_lie() -> None:
    for abilities, parts in (
        (Abilities(engine_listens=True), (ContextPart("hi", Span(0, SECOND)),)),
        (Abilities(), ()),
    ):
        world = desk(abilities)
        world.post(ItemCreate("user", audio=AudioArrived(0, SECOND)))
        (request,) = world.session.state.requests
        world.post(Transcript(request, 0, SECOND, "hi"))
        (start,) = effects_in(world.post(ResponseCreate()), StartResponse)
        assert start.context[0].parts == parts
        assert start.context[0].text == "hi"


def test_a_heard_turn_without_words_is_there_for_who_hears_and_for_nobody_else() -> None:
    conversation = Conversation([Item("i", "user", spoken=True, start=0, end=SECOND)])
    assert conversation.context() == ()
    (entry,) = conversation.context(hears=True)
    assert entry.parts == (ContextPart("", Span(0, SECOND)),)


def test_text_ahead_of_its_sound_is_told_and_is_no_part_of_the_history() -> None:
    world = desk(Abilities())
    (start,) = effects_in(world.post(ResponseCreate()), StartResponse)
    (draft,) = notices_in(world.post(EngineDraft(start.fence, start.response, "hel")), OutputDraft)
    assert draft == OutputDraft(start.response, "hel")
    assert not notices_in(world.post(EngineDraft(start.fence, "another", "lo")), OutputDraft)
    assert world.session.state.conversation.context() == ()
