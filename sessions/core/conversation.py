"""The conversation: items in order, and a history that holds only what was heard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .context import ContextEntry, ContextPart, ImageRef, ItemReference
from .notices import ItemStatus, ItemView
from .timeline import Span, Ticks, Word


@dataclass(slots=True)
class Item:
    """One item. Times of an agent's item are content ticks, of a user's item input-track ticks.

    `words`: what the agent's audio says, as far as it was admitted. `sent`: audio handed to the carrier. `heard`: set
    when the item was cut, and from then on only ever shortened. `transcript`: state of a user's spoken item.
    """

    id: str
    role: Literal["user", "assistant", "system"]
    kind: Literal["message", "function_call", "function_call_output"] = "message"
    status: ItemStatus = "completed"
    text: str = ""
    spoken: bool = False
    call: str = ""
    name: str = ""
    response: str = ""
    words: list[Word] = field(default_factory=list)
    sent: Ticks = 0
    heard: Ticks | None = None
    transcript: Literal["none", "pending", "done", "failed"] = "none"
    start: Ticks = 0
    end: Ticks = 0
    images: tuple[ImageRef, ...] = ()

    def view(self) -> ItemView:
        return ItemView(
            self.id,
            self.role,
            self.kind,
            self.status,
            self.text,
            self.spoken,
            self.call,
            self.name,
            self.heard,
            self.images,
        )

    def parts(self, hears: bool) -> tuple[ContextPart, ...]:
        """Its content in pieces; none where text says it all. `hears`: what a user said is named by its span too."""
        images = tuple(ContextPart(image=image) for image in self.images)
        heard = Span(self.start, self.end) if hears and self.spoken and self.role == "user" else None
        if heard is None and not images:
            return ()
        return images if not self.text and heard is None else (*images, ContextPart(self.text, heard))

    def cut(self, heard: Ticks) -> None:
        """Keep what was heard up to content position `heard`, at the word: a word counts once it was played whole."""
        self.heard = heard if self.heard is None else min(self.heard, heard)
        limit = self.heard
        self.words = [word for word in self.words if word.end <= limit]
        self.text = "".join(word.text for word in self.words).strip()


@dataclass(slots=True)
class Conversation:
    """Items in order, found by id; tool calls and their single answers."""

    items: list[Item] = field(default_factory=list)
    open_calls: list[str] = field(default_factory=list)
    answered_calls: list[str] = field(default_factory=list)

    def find(self, item_id: str) -> Item | None:
        for item in reversed(self.items):
            if item.id == item_id:
                return item
        return None

    @property
    def last_id(self) -> str | None:
        return self.items[-1].id if self.items else None

    def previous_of(self, item_id: str) -> str | None:
        previous: str | None = None
        for item in self.items:
            if item.id == item_id:
                return previous
            previous = item.id
        return None

    def append(self, item: Item) -> str | None:
        """Add at the end; returns the id before it."""
        previous = self.last_id
        self.items.append(item)
        return previous

    def insert_after(self, previous: str, item: Item) -> bool:
        """Insert behind `previous` ("root": at the front). False when there is no such item."""
        if previous == "root":
            self.items.insert(0, item)
            return True
        for index, present in enumerate(self.items):
            if present.id == previous:
                self.items.insert(index + 1, item)
                return True
        return False

    def delete(self, item_id: str) -> bool:
        for index, item in enumerate(self.items):
            if item.id == item_id:
                del self.items[index]
                return True
        return False

    def context(self, spoken: str = "", hears: bool = False, heard: Span | None = None) -> tuple[ContextEntry, ...]:
        """The history for the engine: what was heard, said and answered, and then `spoken`, if anything.

        Neighbouring user messages are one (an utterance that went on after a withdrawn answer is one turn), empty
        messages are left out, and a call without its answer waits. `hears`: the engine takes what was said itself, so
        entries name its place on the input track; `heard` is that of `spoken`.
        """
        entries: list[ContextEntry] = []
        for item in self.items:
            self._add(entries, item, hears)
        if spoken:
            parts = (ContextPart(spoken, heard),) if hears and heard is not None else ()
            _add_message(entries, "user", spoken, parts)
        return tuple(entries)

    def resolve(
        self, given: tuple[ContextEntry | ItemReference, ...], hears: bool = False
    ) -> tuple[ContextEntry, ...] | str:
        """A context of a response's own, its references looked up; the id of the first that is not there."""
        entries: list[ContextEntry] = []
        for entry in given:
            if isinstance(entry, ContextEntry):
                entries.append(entry)
                continue
            item = self.find(entry.item)
            if item is None:
                return entry.item
            self._add(entries, item, hears)
        return tuple(entries)

    def _add(self, entries: list[ContextEntry], item: Item, hears: bool) -> None:
        if item.kind == "message":
            parts = item.parts(hears)
            if item.text or parts:
                _add_message(entries, item.role, item.text, parts)
        elif item.call in self.answered_calls:
            entries.append(ContextEntry(item.role, item.kind, item.text, item.call, item.name))


def _add_message(
    entries: list[ContextEntry],
    role: Literal["user", "assistant", "system"],
    text: str,
    parts: tuple[ContextPart, ...] = (),
) -> None:
    last = entries[-1] if entries else None
    if last is not None and last.kind == "message" and last.role == role == "user":
        both = f"{last.text} {text}" if last.text and text else last.text + text
        if last.parts or parts:
            parts = (*(last.parts or (ContextPart(last.text),)), *(parts or (ContextPart(text),)))
        entries[-1] = ContextEntry("user", "message", both, parts=parts)
    else:
        entries.append(ContextEntry(role, "message", text, parts=parts))
