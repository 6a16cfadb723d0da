"""Records a session in real time until it is killed; says on standard output how far it has come."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from sessions.core.config import SessionConfig
from sessions.core.effects import AdmitFrame
from sessions.core.events import AudioArrived, CarrierAttached, EngineAudio
from sessions.core.fence import Fence
from sessions.core.state import Abilities
from sessions.core.timeline import from_ms
from sessions.journal import Recorder

FENCE = Fence("sess_killed", 1, 0)
STEP = from_ms(20)


def main(root: Path) -> None:
    recorder = Recorder(root)
    journal = recorder.open("sess_killed", 1, SessionConfig(), Abilities(), 24_000)
    journal.event(CarrierAttached(), 0, None, 0)
    dice = np.random.default_rng(0)
    began = time.monotonic()
    number = 0
    while True:
        start = number * STEP
        pcm = dice.normal(0, 3000, 480).astype("<i2").tobytes()
        journal.event(AudioArrived(start, start + STEP), start, pcm, 24_000)
        journal.event(EngineAudio(FENCE, "r", start, start + STEP), start, pcm, 24_000)
        frame = AdmitFrame(FENCE, number, "r", "i", start, start + STEP, start, "r", start)
        journal.effects([frame])
        journal.sent(frame, pcm)
        number += 1
        print(start + STEP, flush=True)
        time.sleep(max(0.0, began + number * 0.02 - time.monotonic()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
