"""`talkover doctor`: what a server would need on this machine, what is there, and what to do about the rest."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from .settings import Settings

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `remedy` says what to do; empty where all is well."""

    verdict: Verdict
    subject: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.verdict:<4}  {self.subject:<18}  {self.found}"
        return f"{line}\n{'':26}-> {self.remedy}" if self.remedy else line

    def plain(self) -> dict[str, str]:
        return {"verdict": self.verdict, "subject": self.subject, "found": self.found, "remedy": self.remedy}


Examination = Callable[[Settings], Iterable[Finding]]


def doctor(settings: Settings, *, as_json: bool) -> int:
    """Examine, print as it goes, and return 1 where something must be done before a server can work."""
    from .doctor_checks import EXAMINATIONS

    if settings.cache is not None:
        os.environ["TALKOVER_CACHE"] = str(settings.cache)
    findings: list[Finding] = []
    for finding in examine(settings, EXAMINATIONS):
        findings.append(finding)
        if not as_json:
            print(finding, flush=True)
    failures = sum(finding.verdict == "fail" for finding in findings)
    warnings = sum(finding.verdict == "warn" for finding in findings)
    if as_json:
        report = {"ok": failures == 0, "findings": [finding.plain() for finding in findings]}
        json.dump(report, sys.stdout, ensure_ascii=False, indent=1)
        print()
    else:
        print(f"\n{_count(failures, 'problem')}, {_count(warnings, 'warning')}")
    return 1 if failures else 0


def examine(settings: Settings, examinations: Iterable[Examination]) -> Iterator[Finding]:
    """All findings. An examination that breaks is itself a finding: whoever asks is in trouble already."""
    for examination in examinations:
        try:
            yield from examination(settings)
        except Exception as error:
            name = examination.__name__.replace("_", " ")
            yield Finding("fail", name, f"{type(error).__name__}: {error}", "this was not foreseen; please report it")


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
