"""Words that begin with a fricative, of which a telephone leaves little, interrupt as fast as others.

The detector is the real one; the clock is virtual, so that only packets, windows and the turn policy take time.
"""

from __future__ import annotations

import pytest

from tests.bench.telephony import Line, virtual
from tests.speech import load

pytestmark = pytest.mark.models

HOLD = 0.130
CLEAR = 0.350
FRICATIVES = ("sorry", "seven", "four", "say", "stop talking", "skip")


@pytest.mark.parametrize("line", [Line(), Line(narrow=True), Line(noise=-58.0)], ids=["clean", "narrow", "noise"])
def test_a_weak_onset_holds_the_agent_and_clears_what_the_vendor_has(line: Line) -> None:
    clips = [clip for clip in load("commands", "test") if clip.text.lower().startswith(FRICATIVES)]
    assert len(clips) >= len(FRICATIVES)
    for one in virtual(clips, line):
        assert one.hold is not None, one
        assert one.hold <= HOLD, one
        assert one.clear is not None, one
        assert one.clear <= CLEAR, one
