"""What a few words said over the agent mean: a listener's signal, or a wish to speak.

A backchannel ("mm-hmm", "right") tells the speaker to go on (Yngve 1970); whatever else can be understood is taken as
an interruption, because to be talked over is worse than to pause once too often.
"""

from __future__ import annotations

import re
from typing import Literal

Meaning = Literal["nothing", "backchannel", "interruption"]


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
        "i see, got it, i got it, go on, of course, that's right, that's true, that's good, that's great",
        "that's nice, that's cool, that's interesting, fair enough, makes sense, that makes sense, no way",
        "very good, very nice, how nice, i know, is that so, sounds good, all right, i understand, keep going",
        "tell me more, good to know, for sure, oh no, my goodness, oh my, oh my god",
    )
    for phrase in line.split(",")
)
_COMMAND_WORDS = _words("no stop wait but actually hold hang sorry excuse pause quiet enough what why who when")
_SOUND = re.compile(r"[\[(*♪].*?[\])*♪]")
_WORD = re.compile(r"[a-z']+")


def meaning_of(text: str) -> Meaning:
    """The meaning of `text`, a transcript of a short sound over the agent's speech (English).

    "nothing": no words (noise, a cough, sound descriptions such as "[coughing]").
    """
    words = _WORD.findall(_SOUND.sub(" ", text.lower().replace("-", "").replace("\u2019", "'")))
    if not words:
        return "nothing"
    joined = " ".join(words)
    if joined in _PHRASES or all(word in _BACKCHANNELS for word in words):
        return "backchannel"
    return "backchannel" if _only_signals(words) else "interruption"


def _only_signals(words: list[str]) -> bool:
    """Whether the words are signals, phrases of agreement and the little words between them ("oh, I see, right")."""
    if any(word in _COMMAND_WORDS for word in words):
        return False
    rest = list(words)
    signals = 0
    while rest:
        for length in (3, 2):
            if " ".join(rest[:length]) in _PHRASES:
                signals += 1
                del rest[:length]
                break
        else:
            word = rest.pop(0)
            if word in _BACKCHANNELS:
                signals += 1
            elif word not in _FILLERS:
                return False
    return signals > 0
