"""From settings to loaded models behind their ports. Part of the composition root: only `server.app` uses it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.ports import EnginePort, PerceptionPort

from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from models.families.embedded.thinker import Thinker

    from .remote_loading import RemoteRecognizer

DEFAULT_SESSIONS = 8
"""Sessions of the embedded engine at a time where no setting says otherwise: on two cores the first audio then stays
under 3 s at p95 (`python -m tests.bench.admission --spawn`)."""

REMOTE_UTTERANCES = 8
"""Utterances that a remote recognizer is asked about at once; a thread waits for each."""

Progress = Callable[[str, float], None]
"""What is being done, and the fraction of all work that is done (0..1)."""


@dataclass(frozen=True, slots=True)
class Models:
    """The models behind their ports. `close` ends their threads; it blocks for about a token."""

    engine: EnginePort
    perception: PerceptionPort
    close: Callable[[], None]
    workers: Callable[[], list[dict[str, object]]] = list
    """How each process does that computes for it."""


def load(settings: Settings, progress: Progress) -> Models:
    """Prepare and load what `settings` ask for. Blocks.

    Raises AssetError, ThinkerError, TalkerError, ScriptError, CheckpointError, DescriptorError, UnknownModel,
    WorkerError or SettingsError, each with its remedy in the message.
    """
    # The imports are here because everything else of the server works without a model, and they take a second.
    from models.assets import ensure
    from models.memory import return_freed_memory
    from models.perception.perception import EmbeddedPerception

    if settings.cache is not None:
        os.environ["TALKOVER_CACHE"] = str(settings.cache)
    directories = ensure(needed_assets(settings), progress)
    progress("loading the models", 1.0)
    if settings.engine == "embedded" and settings.worker != "thread":
        return _elsewhere(settings, progress)
    engine, stop_engine = _engine(settings, directories, progress)
    recognizer = _recognizer(settings)
    if recognizer is None:
        perception = EmbeddedPerception.load(directories)
    else:
        perception = EmbeddedPerception.load(directories, workers=REMOTE_UTTERANCES, elsewhere=recognizer)
    return_freed_memory()

    def close() -> None:
        stop_engine()
        if recognizer is not None:
            # What it is being asked would be waited for.
            recognizer.close()
        perception.stop()

    if settings.worker == "thread":
        return Models(engine, perception, close)
    from models.workers.health import reports

    return Models(engine, perception, close, partial(reports, engine))


def _elsewhere(settings: Settings, progress: Progress) -> Models:
    """Both ports of the embedded models in workers."""
    from models.workers.health import reports

    from .cascade_loading import cascade

    workers = cascade(settings, settings.max_sessions or DEFAULT_SESSIONS, progress)
    return Models(workers.engine, workers.perception, workers.shutdown, partial(reports, workers.engine))


def needed_assets(settings: Settings) -> list[str]:
    """The prepared models that these settings load."""
    from models.perception.perception import ASSETS

    hears = [name for name in ASSETS if settings.asr_url is None or name != "whisper-base"]
    return [*hears, *_speaking_assets(settings)]


def _speaking_assets(settings: Settings) -> list[str]:
    if settings.engine in ("moshi", "qwen3-omni", "vllm-omni"):
        return []
    thinks = settings.engine == "embedded" and settings.llm_url is None
    speaks = settings.tts_url is None
    return [*(["hibari"] if speaks else []), *(["smollm2"] if thinks else [])]


def _engine(
    settings: Settings, directories: Mapping[str, Path], progress: Progress
) -> tuple[EnginePort, Callable[[], None]]:
    if settings.engine == "moshi":
        return _moshi(settings, progress)
    if settings.engine == "qwen3-omni":
        return _qwen3_omni(settings)
    if settings.engine == "vllm-omni":
        from .remote_loading import remote_engine

        progress("asking the remote engine what it can do", 1.0)
        remote = remote_engine(settings)
        return remote, remote.shutdown
    if settings.engine == "embedded":
        return _embedded(settings, directories)
    from models.families.duplex_script import ScriptedDuplexEngine
    from models.families.script import Script
    from models.families.scripted import ScriptedEngine

    if settings.script is None:
        raise ValueError("a scripted engine needs a script")
    script = Script.load(settings.script)
    talker = None
    if any(reply.text is not None for reply in script.replies):
        # It takes longer to load than all else that such a server has.
        from models.families.embedded.talker_hibari import HibariTalker

        talker = HibariTalker(directories["hibari"])
    replies = script.prepare(talker)
    scripted: ScriptedEngine | ScriptedDuplexEngine
    scripted = ScriptedEngine(replies) if settings.engine == "scripted" else ScriptedDuplexEngine(replies)
    return scripted, scripted.shutdown


def _embedded(settings: Settings, directories: Mapping[str, Path]) -> tuple[EnginePort, Callable[[], None]]:
    from models.families.embedded.engine import EmbeddedEngine
    from models.families.embedded.talker_hibari import HibariTalker

    from .remote_loading import remote_talker
    from .voice_path import voice_codec

    elsewhere = None if settings.tts_url is None else remote_talker(settings)
    talker = elsewhere or HibariTalker(directories["hibari"])
    rooms = settings.max_sessions or DEFAULT_SESSIONS
    engine = EmbeddedEngine(
        _thinker(settings, directories),
        talker,
        max_sessions=rooms,
        codec=voice_codec(settings, talker, rooms),
        codes_only=settings.voice_path == "codes",
    )

    def stop() -> None:
        if elsewhere is not None:
            # The clause that is being made would be waited for.
            elsewhere.close()
        engine.shutdown()

    return engine, stop


def _recognizer(settings: Settings) -> RemoteRecognizer | None:
    if settings.asr_url is None:
        return None
    from .remote_loading import remote_recognizer

    return remote_recognizer(settings)


def _moshi(settings: Settings, progress: Progress) -> tuple[EnginePort, Callable[[], None]]:
    if settings.checkpoint is not None:
        _require(settings.checkpoint, "moshi")
    for package in ("torch", "safetensors"):
        if find_spec(package) is None:
            raise SettingsError(f"--engine moshi needs the package {package}: pip install 'talkover[native]'")
    from models.families.moshi.worker import SLOTS, cuda_devices, workers

    if settings.worker == "ray":
        return _moshi_on_ray(settings, progress)
    if settings.worker == "process":
        devices = cuda_devices() if settings.checkpoint is not None else (None,)
        each = -(-settings.max_sessions // len(devices)) if settings.max_sessions is not None else SLOTS
        elsewhere = workers(settings.checkpoint, each, devices, progress)
        return elsewhere, elsewhere.shutdown
    from models.families.moshi.engine import moshi_engine

    here = moshi_engine(settings.checkpoint, slots=settings.max_sessions or SLOTS, record=True)
    return here, here.shutdown


def _moshi_on_ray(settings: Settings, progress: Progress) -> tuple[EnginePort, Callable[[], None]]:
    if find_spec("ray") is None:
        raise SettingsError("--worker ray needs the package ray: pip install 'talkover[ray]'")
    from models.families.moshi.worker import SLOTS, actors

    each = -(-settings.max_sessions // settings.ray_workers) if settings.max_sessions is not None else SLOTS
    try:
        there = actors(settings.checkpoint, each, settings.ray_workers, settings.ray_address, progress)
    except ConnectionError as why:
        raise SettingsError(
            f"--ray-address {settings.ray_address}: no Ray cluster answers there ({why}); `ray status` tells of one"
        ) from why
    return there, there.shutdown


def _qwen3_omni(settings: Settings) -> tuple[EnginePort, Callable[[], None]]:
    if settings.checkpoint is not None:
        _require(settings.checkpoint, "qwen3-omni")
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise SettingsError(f"--engine qwen3-omni needs the package {package}: pip install 'talkover[native]'")
    from models.families.qwen3_omni.loading import SESSIONS, omni_engine

    omni = omni_engine(settings.checkpoint, settings.max_sessions or SESSIONS)
    return omni, omni.shutdown


def _require(checkpoint: Path, family: str) -> None:
    """Refuses a checkpoint that cannot hold a voice session with the engine of `family`, before its weights are read.

    Raises CannotSpeak naming the missing part, DescriptorMismatch, CheckpointError, UnknownModel or SettingsError.
    """
    from models.registry import load_for_voice

    found = load_for_voice(checkpoint).family.name
    if found != family:
        raise SettingsError(
            f"--checkpoint {checkpoint}: by its own files this is {found}, which --engine {family} cannot run; see "
            f"`talkover models show {checkpoint}`"
        )


def _thinker(settings: Settings, directories: Mapping[str, Path]) -> Thinker:
    if settings.llm_url is not None and settings.llm_model is not None:
        from models.families.embedded.thinker_openai import OpenAIThinker

        return OpenAIThinker(settings.llm_url, settings.llm_model, settings.llm_key or "")
    from models.families.embedded.thinker_smollm2 import SmolLM2Thinker

    return SmolLM2Thinker(directories["smollm2"])
