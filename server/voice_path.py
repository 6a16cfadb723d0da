"""How the embedded voice travels: as codec frames where that is possible, else as PCM. Part of the composition root."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from codec.rvq.shipped import SHIPPED, identity_of

from .doctor import Finding
from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from models.families.embedded.talker import Talker
    from models.families.embedded.voice_codec import VoiceCodec

log = logging.getLogger(__name__)

_PACKAGES = ("torch", "safetensors")
_INSTALL = "pip install 'talkover[native]'"

ROOM_BESIDES = 4
"""Utterances beyond one for each session: responses outside the conversation, and those that were just cut."""


def voice_codec(settings: Settings, talker: Talker, sessions: int) -> VoiceCodec | None:
    """The codec that carries the embedded engine's voice; None where it goes as PCM.

    Raises SettingsError where codes were asked for and cannot be.
    """
    if settings.voice_path == "pcm":
        return None
    obstacle = _obstacle()
    if obstacle is not None:
        _as_pcm(settings, obstacle)
        return None
    from models.families.embedded.talker_hibari import HibariTalker
    from models.families.embedded.voice_codec import VoiceCodec, VoiceCodecError

    if not isinstance(talker, HibariTalker):
        _as_pcm(settings, "the codec was trained on the embedded voice alone; leave --voice-path auto")
        return None
    try:
        codec = VoiceCodec.load(slots=sessions + ROOM_BESIDES)
    except VoiceCodecError as error:
        _as_pcm(settings, str(error))
        return None
    log.info("the voice travels as codes of %s", codec.identity)
    return codec


def _as_pcm(settings: Settings, why: str) -> None:
    """Says why there are no codes; raises SettingsError where nothing else would do."""
    if settings.voice_path == "codes":
        raise SettingsError(f"--voice-path codes: {why}")
    log.warning("the voice travels as PCM: %s", why)


def _obstacle() -> str | None:
    """Why there can be no codec here, with the remedy; None where there can."""
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            return f"the package {package} is not installed; {_INSTALL}"
    if identity_of() is None:
        return f"{SHIPPED} is not there or is no checkpoint of the codec; install the package again"
    return None


def voice_path(settings: Settings) -> Iterator[Finding]:
    """For `talkover doctor`."""
    if settings.engine != "embedded":
        return
    if settings.voice_path == "pcm":
        yield Finding("ok", "voice path", "PCM, as it was asked for")
        return
    obstacle = _obstacle()
    if obstacle is None:
        yield Finding("ok", "voice path", f"codes of {identity_of()}")
        return
    found, _, remedy = obstacle.partition("; ")
    if settings.voice_path == "codes":
        yield Finding("fail", "voice path", f"codes were asked for: {found}", remedy)
    else:
        yield Finding("warn", "voice path", f"PCM: {found}", f"{remedy}, or choose --voice-path pcm")
