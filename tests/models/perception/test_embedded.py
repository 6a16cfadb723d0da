"""`EmbeddedPerception.load` with the real models: one spoken sentence from the microphone's rate to its words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jiwer
import numpy as np
import pytest

from codec.resample import Resampler
from models import assets
from models.perception.perception import ASSETS, EmbeddedPerception
from sessions.core.effects import AssessTurn, Transcribe
from sessions.core.events import EndOfTurnProbability, SpeechProbability, Transcript
from sessions.core.fence import Fence
from sessions.core.timeline import TICK_RATE, from_ms

from .speech import clips, plain, silence
from .test_perception import LISTEN, Events

pytestmark = pytest.mark.models


@pytest.mark.parametrize("rate", [8_000, 24_000, 48_000])
def test_a_sentence_is_heard_placed_and_written_down(rate: int) -> None:
    clip, said = clips()["0880.flac"]
    onset = TICK_RATE
    samples = np.concatenate([silence(1.0), clip, silence(0.6)])
    lane = Resampler(16_000, rate)
    microphone = np.concatenate([lane.process(np.round(samples * 32767).astype(np.int16)), lane.flush()])
    perception = EmbeddedPerception.load(assets.ensure(ASSETS))
    try:
        events = Events()
        perception.open(Fence("s", 1, 0), LISTEN, events)
        step, ticks = rate // 50, TICK_RATE // 50
        frames = len(microphone) // step
        for number in range(frames):
            perception.feed("s", number * ticks, microphone[number * step : (number + 1) * step].tobytes(), rate)
        end = frames * ticks
        perception.transcribe("s", Transcribe(1, onset - from_ms(300), end))
        perception.assess("s", AssessTurn(2, onset, end - from_ms(300)))
        (transcript,) = events.until(Transcript)
        events.until(EndOfTurnProbability)
        heard = events.until(SpeechProbability, end // perception.capabilities.window - 1)
    finally:
        perception.stop()
    assert isinstance(transcript, Transcript)
    assert jiwer.wer(said, plain(transcript.text)) <= 0.30  # eight words, and 8 kHz takes half the band
    assert "".join(word.text for word in transcript.words) == transcript.text
    assert all(transcript.start <= word.start <= word.end <= transcript.end for word in transcript.words)
    speech = [event.start for event in heard if isinstance(event, SpeechProbability) and event.probability > 0.5]
    # The reader begins 0.25 s into the clip and ends 0.1 s before its end.
    assert abs(speech[0] - (onset + from_ms(250))) <= from_ms(96)
    assert abs(speech[-1] - (onset + 3 * clip.size - from_ms(100))) <= from_ms(160)


LEFT_ALONE = """
import threading
from models import assets
from models.perception.perception import ASSETS, EmbeddedPerception
from sessions.core.effects import AssessTurn, OpenPerception, Transcribe
from sessions.core.fence import Fence

perception = EmbeddedPerception.load(assets.ensure(ASSETS))
computing = threading.Event()
perception.open(Fence("s", 1, 0), OpenPerception(speech=True, language="en"), lambda event, pcm=None: computing.set())
perception.feed("s", 0, bytes(2 * 10 * 24_000), 24_000)
for request in range(9):
    perception.transcribe("s", Transcribe(request, 0, 480_000))
assert computing.wait(30)
"""


def test_a_process_that_ends_without_stopping_ends_cleanly() -> None:
    root = Path(assets.__file__).parents[1]
    ended = subprocess.run([sys.executable, "-c", LEFT_ALONE], cwd=root, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
