"""English sentences to train a codec on, and others to judge it by.

Three sources, none of which is a data set: patterns filled with words (what an assistant says), sentences from the
documentation that comes with Python (what people write), and words of the voice's own pronunciation lexicon in random
order (every cluster of sounds). `HELD_OUT` is for evaluation and never comes out of `sentences`.
"""

from __future__ import annotations

import gzip
import importlib
import inspect
import json
import pydoc_data.topics
import random
import re
from collections.abc import Iterator
from importlib.resources import files

HELD_OUT: tuple[str, ...] = (
    "The ferry leaves the island at seven and comes back before noon.",
    "Would you rather sit by the window or next to the aisle?",
    "Grandfather kept his old fishing hooks in a jar on the shelf.",
    "I can send the receipt to your email address right away.",
    "A cold wind blew through the pines all night long.",
    "She asked whether the library stays open during the holidays.",
    "The baker puts fresh bread in the basket every morning.",
    "Your package is waiting at the post office on Green Street.",
    "He whistled a cheerful tune while he washed the dishes.",
    "Nothing grows in that field because the soil is too dry.",
    "Please hold the line while I look for your booking.",
    "The lake was so clear that we could see the stones at the bottom.",
    "My cousin studies chemistry and wants to become a pharmacist.",
    "They missed the last train and had to take a taxi home.",
    "Could you turn the music down a little so that we can talk?",
    "The committee will publish its report at the beginning of June.",
    "An owl was sitting on the chimney of the empty house.",
    "We have plenty of rice but there are no onions left.",
    "The engineer checked every bolt before the bridge was opened.",
    "Thanks for your patience, your refund has just been approved.",
    "If the battery is low the light on the front turns orange.",
    "Both sisters learned to swim before they could ride a bike.",
    "The painter mixed blue and yellow until he found the right green.",
    "I would like to change the date of my appointment with the dentist.",
    "The valley looks peaceful, but the river floods it every spring.",
    "You should drink enough water when you hike in the mountains.",
    "Her new job is close to the station and pays much better.",
    "The jury could not agree, so the judge sent everybody home.",
    "Put the flour and the sugar into a large bowl and stir gently.",
    "The concert was cancelled because the singer had lost her voice.",
    "We usually visit our friends in the village on Sunday afternoon.",
    "Sorry, I did not understand the last part of your question.",
    "The king ordered his soldiers to guard the northern gate.",
    "It is cheaper to repair the washing machine than to buy a new one.",
    "A small boy pointed at the airplane and waved his hand.",
    "The weather should improve later this week with some sunshine.",
    "He read the letter twice and then threw it into the fire.",
    "Choose a password that is easy to remember but hard to guess.",
    "The shelves in the garage are full of paint and rusty tools.",
    "Good evening, how may I help you with your account today?",
)
"""Sentences with plain spelling, so that a recognizer's words can be compared with them."""

_PATTERNS = """\
Certainly, I will {verb} the {thing} before {day}.
Shall I {verb} the {thing} or the {kind} {thing} first?
{name} paid {number} dollars for a {kind} {thing} in {place}.
The {thing} is {kind}, and the {thing} is even more so.
Your reference is {digit} {digit} {digit}, {digit} {digit}, {letter} {letter}.
On {day} at {hour} we {verb} the {thing} together with {name}.
{name} from {place} called about {topic}, twice.
No problem at all.
Well, that depends on {topic}.
One second, please.
Great, thank you, {name}!
Did {name} really {verb} {number} of them?
In {place} it is {hour} now, and about {number} degrees.
I would suggest that you {verb} it, {name}, and wait until {month}.
There were {number} people and only {number} chairs in {place}.
How much is the {kind} {thing} near the {thing}?
Either {name} or {name} has to {verb} that {kind} {thing}.
Yes.
I don't think so, no.
We could talk about {topic}, about {topic}, or about {place}.
The code begins with {letter}, then {letter}, then {number}.
Somebody left a {thing}, a {thing} and two {kind} {thing}s here!
Since {month} {number} every {thing} costs {number} cents more.
Why don't you just {verb} it?
What a {kind} idea, {name}.
Can you hear me? I was asking about {topic}.
Okay, so {name} lives in {place}, right?
Up to {number} percent of {topic} is {kind}.
Let me {verb} this again: {number}, {number}, and {number}.
{place} is {kind}; {place} is not.
"""


def _split(text: str, separator: str | None = None) -> tuple[str, ...]:
    return tuple(text.split(separator))


_WORDS: dict[str, tuple[str, ...]] = {
    "verb": _split(
        "open close bring weigh fetch fix paint wash write change share choose judge measure squeeze vouch-for "
        "examine cancel renew replace"
    ),
    "thing": _split(
        "parcel kettle jigsaw thermostat beach chair voyage anchor cushion pillow sword garage orchestra yacht zebra "
        "breakfast teaspoon lantern bathtub photograph wrench violin shovel joystick engine leather azure"
    ),
    "kind": _split(
        "smooth shiny awkward lukewarm vicious joyful thick young obvious purple tidy whole rough genuine average "
        "delicious fresh unusual strange cheap"
    ),
    "name": _split(
        "Judith Xavier Chloe Thaddeus Owen Yvonne Hugo Fiona Sergei Wyatt Leila Brian Zachary Mei Ursula Jerome Agnes "
        "Cho Viktor Eugenia"
    ),
    "place": _split(
        "Oregon Zagreb Lisbon Cheyenne Bangkok Havana Yorkshire Montreal Johannesburg Warsaw Genoa Utah Quebec "
        "Delhi Athens Shanghai Iowa Thames"
    ),
    "topic": _split(
        "the harvest|solar power|the opera|your invoice|cheese|early mathematics|the school budget|youth hockey|"
        "washing machines|the other option|foreign films|the bathroom tiles|whale watching|the exchange rate",
        "|",
    ),
    "day": _split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday tomorrow today tonight"),
    "month": _split("January February March April May June July August September October November December"),
    "hour": _split("noon|midnight|half past nine|a quarter to three|eight o'clock|six thirty|ten a m|four p m", "|"),
    "digit": _split("zero one two three four five six seven eight nine"),
    "letter": tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
}

_MODULES = _split(
    "asyncio argparse collections csv dataclasses datetime decimal difflib email.message fractions http.client json "
    "logging pathlib random socket statistics string tempfile textwrap threading turtle unittest urllib.request zipfile"
)
_PLAIN = re.compile(r"[A-Z][A-Za-z ,;'!?.-]+[.!?]")
_WORDS_IN_A_SENTENCE = range(4, 27)
_SHARE_OF_PATTERNS, _SHARE_OF_DOCUMENTATION = 0.45, 0.40
"""The rest are lexicon words."""


def sentences(seed: int) -> Iterator[str]:
    """English sentences without end; the same for the same seed and Python version."""
    chance = random.Random(seed)
    barred = {_letters(sentence) for sentence in HELD_OUT}
    found = sorted(set(_documentation()))
    chance.shuffle(found)
    lexicon = _lexicon()
    position = 0
    while True:
        draw = chance.random()
        if draw < _SHARE_OF_PATTERNS:
            sentence = _filled(chance)
        elif draw < _SHARE_OF_PATTERNS + _SHARE_OF_DOCUMENTATION:
            sentence = found[position % len(found)]
            position += 1
        else:
            sentence = " ".join(chance.choice(lexicon) for _ in range(chance.randint(4, 10))).capitalize() + "."
        if _letters(sentence) not in barred:
            yield sentence


def _letters(sentence: str) -> str:
    return re.sub(r"\W", "", sentence.lower())


def _filled(chance: random.Random) -> str:
    def word(match: re.Match[str]) -> str:
        kind = match[1]
        if kind == "number":
            return str(chance.randint(2, 99) if chance.random() < 0.6 else chance.randint(100, 9999))
        return chance.choice(_WORDS[kind]).replace("-", " ")

    return re.sub(r"\{(\w+)\}", word, chance.choice(_PATTERNS.splitlines()))


def _documentation() -> Iterator[str]:
    """Sentences that are only words and plain punctuation, from Python's reference and its library's docstrings."""
    texts = list(pydoc_data.topics.topics.values())
    for name in _MODULES:
        members: list[object] = [value for _, value in inspect.getmembers(importlib.import_module(name))]
        members += [value for member in members if inspect.isclass(member) for _, value in inspect.getmembers(member)]
        documented: Iterator[str | None] = (inspect.getdoc(member) for member in members if callable(member))
        texts += [text for text in documented if text]
    for text in texts:
        for sentence in re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text)):
            if len(sentence.split()) in _WORDS_IN_A_SENTENCE and _PLAIN.fullmatch(sentence) and _spoken(sentence):
                yield sentence


def _spoken(sentence: str) -> bool:
    """Whether it has no abbreviation in capitals, no dotted name and no dash that stands for a gap."""
    return not re.search(r"[A-Z]{4}|\.\w|--", sentence)


def _lexicon() -> list[str]:
    """Lower-case words of the default voice's pronunciation lexicon."""
    packed = files("hibari").joinpath("assets/lexicon_us_gold.json.gz").read_bytes()
    entries: dict[str, object] = json.loads(gzip.decompress(packed))
    return sorted(word for word in entries if word.isascii() and word.isalpha() and word.islower() and len(word) > 2)
