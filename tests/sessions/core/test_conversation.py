from __future__ import annotations

from sessions.core.context import ContextEntry
from sessions.core.conversation import Conversation, Item
from sessions.core.timeline import Word

WORDS = [Word("The", 0, 100), Word(" capital", 100, 300), Word(" is", 300, 400), Word(" Paris.", 400, 700)]


def spoken(words: list[Word] = WORDS) -> Item:
    return Item("a", "assistant", text="".join(w.text for w in words), spoken=True, words=list(words), sent=700)


def said(text: str, item: str = "u") -> Item:
    return Item(item, "user", text=text)


# --- what was heard ------------------------------------------------------------------------------------------------


def test_a_word_counts_once_it_was_played_whole() -> None:
    for heard, text in (
        (0, ""),
        (99, ""),
        (100, "The"),
        (399, "The capital"),
        (400, "The capital is"),
        (699, "The capital is"),
    ):
        item = spoken()
        item.cut(heard)
        assert (item.text, item.heard) == (text, heard)


def test_a_cut_at_the_end_keeps_everything() -> None:
    item = spoken()
    item.cut(700)
    assert item.text == "The capital is Paris."


def test_a_later_cut_only_shortens() -> None:
    item = spoken()
    item.cut(300)
    item.cut(700)
    assert (item.text, item.heard) == ("The capital", 300)
    item.cut(100)
    assert (item.text, item.heard) == ("The", 100)


def test_a_view_shows_what_a_client_may_see() -> None:
    item = Item(
        "c", "assistant", "function_call", "in_progress", '{"x": 1}', call="call_1", name="look_up", response="r"
    )
    view = item.view()
    assert (view.id, view.role, view.kind, view.status) == ("c", "assistant", "function_call", "in_progress")
    assert (view.text, view.spoken, view.call, view.name, view.heard) == ('{"x": 1}', False, "call_1", "look_up", None)


# --- items in order ------------------------------------------------------------------------------------------------


def test_items_are_found_by_id_and_follow_one_another() -> None:
    conversation = Conversation()
    assert Conversation().last_id is None
    assert conversation.append(said("one", "i1")) is None
    assert conversation.append(said("two", "i2")) == "i1"
    assert conversation.last_id == "i2"
    found = conversation.find("i1")
    assert found is not None
    assert found.text == "one"
    assert conversation.find("i3") is None


def test_the_item_before_another() -> None:
    conversation = Conversation([said("", "i1"), said("", "i2")])
    assert conversation.previous_of("i1") is None
    assert conversation.previous_of("i2") == "i1"
    assert conversation.previous_of("i3") is None


def test_an_item_can_be_inserted_anywhere() -> None:
    conversation = Conversation([said("", "i1"), said("", "i2")])
    assert conversation.insert_after("i1", said("", "i1b"))
    assert conversation.insert_after("root", said("", "i0"))
    assert conversation.insert_after("i2", said("", "i3"))
    assert [item.id for item in conversation.items] == ["i0", "i1", "i1b", "i2", "i3"]


def test_an_item_cannot_be_inserted_after_an_unknown_one() -> None:
    conversation = Conversation([said("", "i1")])
    assert not conversation.insert_after("i9", said("", "i2"))
    assert [item.id for item in conversation.items] == ["i1"]


def test_an_item_is_deleted_once() -> None:
    conversation = Conversation([said("", "i1"), said("", "i2")])
    assert conversation.delete("i1")
    assert not conversation.delete("i1")
    assert [item.id for item in conversation.items] == ["i2"]


# --- the history ---------------------------------------------------------------------------------------------------


def test_the_history_holds_only_what_was_heard() -> None:
    item = spoken()
    conversation = Conversation([said("what is it?"), item])
    item.cut(350)
    assert conversation.context() == (
        ContextEntry("user", "message", "what is it?"),
        ContextEntry("assistant", "message", "The capital"),
    )


def test_a_reply_of_which_nothing_was_heard_is_not_in_the_history() -> None:
    item = spoken()
    item.cut(10)
    assert Conversation([said("hello"), item]).context() == (ContextEntry("user", "message", "hello"),)


def test_a_turn_that_went_on_after_a_withdrawn_reply_is_one_turn() -> None:
    item = spoken()
    item.cut(0)
    conversation = Conversation([said("what is", "u1"), item, said("the capital", "u2")])
    assert conversation.context("of France") == (ContextEntry("user", "message", "what is the capital of France"),)


def test_neighbouring_messages_of_others_stay_apart() -> None:
    conversation = Conversation([Item("s1", "system", text="be brief"), Item("s2", "system", text="be kind")])
    assert [entry.text for entry in conversation.context()] == ["be brief", "be kind"]


def test_the_words_of_a_closing_turn_come_last() -> None:
    assert Conversation([Item("s", "system", text="be brief")]).context("hello")[-1] == ContextEntry(
        "user", "message", "hello"
    )


def test_a_call_without_its_answer_waits() -> None:
    call = Item("c", "assistant", "function_call", text="{}", call="call_1", name="look_up")
    conversation = Conversation([call], open_calls=["call_1"])
    assert conversation.context() == ()
    conversation.append(Item("o", "user", "function_call_output", text="42", call="call_1"))
    conversation.answered_calls.append("call_1")
    assert conversation.context() == (
        ContextEntry("assistant", "function_call", "{}", "call_1", "look_up"),
        ContextEntry("user", "function_call_output", "42", "call_1", ""),
    )
