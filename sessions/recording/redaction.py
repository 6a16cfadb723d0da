"""Takes secrets out of what is written: keys that are known, and what looks like one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ..core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    AppendInput,
    AssessTurn,
    CancelPerception,
    ClearTimer,
    Count,
    DropAudio,
    FlushCarrier,
    ForgetInput,
    GrantCredit,
    HoldCarrier,
    ReleaseTrack,
    ResumeCarrier,
    SetTimer,
    Transcribe,
)
from ..core.events import AudioArrived, EndOfTurnProbability, EngineAudio, SpeechProbability, TimerDue
from ..core.records import Plain

MARK = "[redacted]"

SHAPES = (
    r"\b(?:sk|pk|rk|ek|tko)[-_][A-Za-z0-9_-]{16,}",
    r"\b(?:ghp|gho|ghu|ghs|glpat|xox[abpr])[-_][A-Za-z0-9_-]{16,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bhf_[A-Za-z0-9]{20,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{35}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"(?<=Bearer )[A-Za-z0-9._~+/-]{12,}=*",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|(?=\"))",
)
"""Keys of well-known services, JSON web tokens (RFC 7519), bearer tokens (RFC 6750), private keys (RFC 7468)."""


_SIGNS = (
    *(
        "sk-",
        "sk_",
        "pk-",
        "pk_",
        "rk-",
        "rk_",
        "ek-",
        "ek_",
        "tko",
        "ghp",
        "gho",
        "ghu",
        "ghs",
        "glpat",
        "xox",
        "github_pat_",
    ),
    *("hf_", "AKIA", "AIza", "eyJ", "Bearer ", "-----BEGIN "),
)
"""One of these stands in whatever `SHAPES` find; looking for them costs a tenth."""

NUMBERS = frozenset(
    (
        *(AudioArrived, EngineAudio, SpeechProbability, EndOfTurnProbability, TimerDue),
        *(AdmitFrame, SetTimer, ClearTimer, GrantCredit, ForgetInput, AppendInput, Count, DropAudio, ReleaseTrack),
        *(HoldCarrier, ResumeCarrier, FlushCarrier, AdvanceEpoch, CancelPerception, Transcribe, AssessTurn),
    )
)
"""Types that hold nothing but numbers and names of our own; most of a session is made of them."""


def may_tell(records: Iterable[object]) -> bool:
    """Whether anything among events or effects could hold a secret."""
    return not NUMBERS.issuperset(map(type, records))


class Redactor:
    """Replaces every secret by `MARK`. Applied twice it changes nothing more."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets`: texts that are secret whatever they look like; those of fewer than 4 characters are passed over,
        because they would be found everywhere."""
        known = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)
        # Lines are searched as JSON text, in which a known text may be escaped.
        written = {form for secret in known for form in (json.dumps(secret)[1:-1], _raw(secret))}
        exact = [re.escape(form) for form in sorted(written, key=len, reverse=True)]
        self._find = re.compile("|".join([*exact, *SHAPES]))
        self._signs = (*written, *_SIGNS)

    def line(self, line: str) -> str:
        """A line of JSON without its secrets; still the same JSON otherwise."""
        for sign in self._signs:
            if sign in line:
                return self._find.sub(MARK, line)
        return line

    def plain(self, value: dict[str, Plain]) -> dict[str, Plain]:
        """The same for plain data."""
        redacted: dict[str, Plain] = json.loads(self.line(json.dumps(value)))
        return redacted


def _raw(secret: str) -> str:
    return json.dumps(secret, ensure_ascii=False)[1:-1]


def same_but_for_secrets(one: Plain, other: Plain) -> bool:
    """Whether two records are equal where neither was redacted.

    A secret that came in pieces is only seen once they are joined, so that the rest of the text around a mark may
    differ between a recording and its re-run.
    """
    if isinstance(one, str) and isinstance(other, str):
        if one == other:
            return True
        if MARK not in one or MARK not in other:
            return False
        return one.partition(MARK)[0] == other.partition(MARK)[0]
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_but_for_secrets(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_but_for_secrets, one, other))
    return type(one) is type(other) and one == other
