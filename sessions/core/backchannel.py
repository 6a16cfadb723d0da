"""What a few words said over the agent mean: a listener's signal, or a wish to speak.

A backchannel ("mm-hmm", "right") tells the speaker to go on (Yngve 1970). Recognizers hear short sounds badly, and the
beginning of a word worse, so words are believed by kind: those that ask for the floor at once, signals as far as they
go, and anything else not before it has gone on for longer than a signal does.
"""

from __future__ import annotations

import re
from typing import Literal

Meaning = Literal["nothing", "backchannel", "unclear", "interruption", "command"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BACKCHANNELS = _words(
    """
    ah aha ahh absolutely agreed alright amazing awesome aww certainly cool correct definitely exactly excellent fair
    fine gotcha good great ha haha hah heh hm hmm hmmm huh indeed interesting lovely m mhm mhmm mm mmhm mmhmm mmm
    mmmm nice oh ohh ok okay ooh perfect really right sure totally true uh uhhuh uhuh um umm wonderful wow ya yah yay
    yea yeah yep yes yup
    """
)
_FILLERS = _words("so well and then very that's thats is that it i see got of course")
_PHRASES = frozenset(
    phrase.strip()
    for line in (
        "i see, got it, i got it, go on, go ahead, of course, that's right, that's true, that's good, that's great",
        "that's nice, that's cool, that's interesting, fair enough, makes sense, that makes sense, no way, no kidding",
        "very good, very nice, how nice, i know, i agree, is that so, sounds good, all right, i understand, keep going",
        "tell me more, good to know, for sure, oh no, my goodness, oh my, oh my god, you know, no problem",
    )
    for phrase in line.split(",")
)
_FLOOR = _words(
    """
    actually again another anyway back but cancel can can't change could different don't enough excuse forget hang hey
    hold how instead just let let's listen meant need never no nope not one other pause please quiet repeat shut
    skip slow sorry speak stop talk talking tell wait want way what what's when where which who why will would wrong
    """
)
"""Words that ask for the floor: commands, refusals, questions, beginnings of a correction ("way": a clipped "wait")."""
_COMMANDS = _words("stop wait no nope hey hold hang excuse quiet shut way")
"""Those of them that are believed even half heard."""
_PHANTOMS = frozenset({"you", "thank you", "thanks", "thanks for watching", "bye", "the", "boom"})
"""What a recognizer writes down for a hum, a cough or a thud."""
BEGINNING = 4
"""Letters from which a beginning says anything: "fi" may become "fine" or "five"."""
_SOUND = re.compile(r"[\[(*♪].*?[\])*♪]")
_WORD = re.compile(r"[a-z0-9']*[aeiouy0-9][a-z0-9']*|h?m+h?m*")
"""A word has a vowel, or is a hum: "t-t-t" is no word."""


def meaning_of(text: str, whole: bool = True) -> Meaning:
    """The meaning of `text`, the transcript of a short sound over the agent's speech (English).

    `whole`: the sound is over; else its last word may be half a word. "nothing": no words in it. "unclear": words
    that are neither a signal nor a wish; how long they last must decide. "command": an interruption that is believed
    at its first word.
    """
    words = _WORD.findall(_SOUND.sub(" ", text.lower().replace("-", "").replace("\u2019", "'")))
    joined = " ".join(words)
    if not words or joined in _PHANTOMS:
        return "nothing"
    if joined in _PHRASES or all(word in _BACKCHANNELS for word in words):
        return "backchannel"
    if not whole and _begins_signal(joined):
        return "backchannel"
    rest = _without_phrases(words)
    asking = [word for word in rest if word not in _BACKCHANNELS]
    if asking and asking[0] in _COMMANDS:
        return "command"
    if joined == "now" or any(word in _FLOOR for word in rest):
        return "interruption"  # "now" alone is a "no" with a soft end
    return "backchannel" if _only_signals(words) else "unclear"


def _begins_signal(joined: str) -> bool:
    """Whether a signal may be under way ("inter", "makes", "of")."""
    last = joined.rpartition(" ")[2]
    if joined in _FLOOR or len(joined) < BEGINNING or last in _FILLERS:
        return False  # "that's" may become "that's right" or "that's enough"
    signals = (*_PHRASES, *_BACKCHANNELS)
    return any(signal.startswith(joined) for signal in signals) or (
        last != joined
        and all(word in _BACKCHANNELS for word in joined.split()[:-1])
        and any(signal.startswith(last) for signal in signals)
    )


def _without_phrases(words: list[str]) -> list[str]:
    """The words less the signal phrases among them ("no way" is not a no)."""
    rest: list[str] = []
    at = 0
    while at < len(words):
        for length in (3, 2):
            if at + length <= len(words) and " ".join(words[at : at + length]) in _PHRASES:
                at += length
                break
        else:
            rest.append(words[at])
            at += 1
    return rest


def _only_signals(words: list[str]) -> bool:
    """Whether the words are signals, phrases of agreement and the little words between them ("oh, I see, right")."""
    rest = _without_phrases(words)
    return all(word in _BACKCHANNELS or word in _FILLERS for word in rest) and (
        len(rest) < len(words) or any(word in _BACKCHANNELS for word in rest)
    )
