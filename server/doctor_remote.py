"""What `talkover doctor` asks of models that run elsewhere: are they there, and do they speak the protocol.

Each is asked as a session would ask it, once: the engine for a session, the voice for a word, the recognizer for a
second of sound. What a voice or a recognizer costs, that costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .doctor import Finding
from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from models.families.vllm_omni.protocol import RemoteCapabilities

WORD = "Testing."
SLOW_MS = 1500.0
"""For one word, or a second of sound: beyond this conversations drag."""
ENGINE, VOICE, RECOGNIZER = "remote engine", "remote voice", "remote recognizer"


def remote_engine(settings: Settings) -> Iterator[Finding]:
    if settings.engine != "vllm-omni":
        return

    def ask() -> Finding:
        from .remote_loading import remote_engine as load

        engine = load(settings)
        try:
            can = engine.remote
        finally:
            engine.shutdown()
        found = f"{settings.engine_url} serves {settings.engine_model}: {_abilities(can)}"
        if can.resume:
            return Finding("ok", ENGINE, found)
        remedy = "a lost connection begins a new session there; enable session resume at that server to keep it"
        return Finding("warn", ENGINE, found, remedy)

    yield _asked(ENGINE, ask)


def _abilities(can: RemoteCapabilities) -> str:
    turns = "turns of its own" if can.turns_of_its_own else "the server's turn detection"
    told = [name for name, has in (("barge-in", can.barge_in), ("playback reports", can.playback_ack)) if has]
    return ", ".join([turns, *told, "resume" if can.resume else "no resume"])


def remote_voice(settings: Settings) -> Iterator[Finding]:
    if settings.tts_url is None:
        return

    def ask() -> Finding:
        from .remote_loading import remote_talker

        talker = remote_talker(settings)
        try:
            began = time.perf_counter()
            spoken = talker.speak(WORD)
            took = (time.perf_counter() - began) * 1000
        finally:
            talker.close()
        sounds = len(spoken.pcm) / 2 / talker.rate
        return _timed(VOICE, f"{settings.tts_url} said {WORD!r}: {sounds:.1f} s of sound", took)

    yield _asked(VOICE, ask)


def remote_recognizer(settings: Settings) -> Iterator[Finding]:
    if settings.asr_url is None:
        return

    def ask() -> Finding:
        import numpy as np

        from models.perception.mel import SAMPLE_RATE

        from .remote_loading import remote_recognizer as load

        recognizer = load(settings)
        try:
            began = time.perf_counter()
            heard = recognizer.recognize(np.zeros(SAMPLE_RATE, np.float32), recognizer.languages[0])
            took = (time.perf_counter() - began) * 1000
        finally:
            recognizer.close()
        return _timed(RECOGNIZER, f"{settings.asr_url} heard {heard.text!r} in a second of silence", took)

    yield _asked(RECOGNIZER, ask)


def _timed(subject: str, found: str, took_ms: float) -> Finding:
    found = f"{found}, {took_ms:.0f} ms"
    if took_ms <= SLOW_MS:
        return Finding("ok", subject, found)
    remedy = "every answer waits for it; is that server overloaded, far away, or loading its model?"
    return Finding("warn", subject, found, remedy)


def _asked(subject: str, ask: Callable[[], Finding]) -> Finding:
    """Its finding, or what went wrong: errors of remote models say what to do behind their last semicolon."""
    from models.families.embedded.talker import TalkerError
    from models.remote.errors import RemoteError

    try:
        return ask()
    except (RemoteError, TalkerError, SettingsError) as error:
        found, separator, remedy = str(error).rpartition("; ")
        if not separator:
            found, remedy = remedy, "see the log of that server"
        return Finding("fail", subject, found, remedy)
