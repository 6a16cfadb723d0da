"""`talkover replay` and `talkover explain`: a recorded session run again, otherwise, and told."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sessions.core.timeline import from_ms
from sessions.recording.format import JournalError
from sessions.replay.account import account
from sessions.replay.alterations import AlterationError, Alterations
from sessions.replay.explain import NoSuchInterruption, explain
from sessions.replay.reader import Recording
from sessions.replay.rerun import Difference, rerun
from sessions.replay.statistics import compare_all
from sessions.replay.what_if import what_if

from . import settings as settings_module
from .settings import SettingsError


def replay(options: Mapping[str, Any]) -> int:
    """Run `talkover replay`; returns the exit status."""
    try:
        return _replay(options)
    except (JournalError, AlterationError) as error:
        print(f"talkover replay: {error}", file=sys.stderr)
        return 2


def explain_command(options: Mapping[str, Any]) -> int:
    """Run `talkover explain`; returns the exit status. Of a damaged recording the readable part is told."""
    faults: list[str] = []
    try:
        recording = Recording(options["folder"])
        told = account(recording.manifest.config, recording.steps(faults))
        if options["json"]:
            print(json.dumps({**dataclasses.asdict(told), "faults": faults}, ensure_ascii=False, indent=1))
        else:
            print(explain(told, options["interruption"], from_ms(options["late"])))
    except (JournalError, NoSuchInterruption) as error:
        print(f"talkover explain: {error}", file=sys.stderr)
        return 2
    for fault in faults:
        print(f"talkover explain: {fault}", file=sys.stderr)
    return 2 if faults else 0


def _replay(options: Mapping[str, Any]) -> int:
    alterations = Alterations.parse([*_policy(options["policy"]), *options["set_"]], options["drop"], options["shift"])
    folder, all_ = options["folder"], options["all_"]
    if (folder is None) == (all_ is None):
        raise SettingsError("give the folder of one session, or --all DIR for all sessions below it")
    if sum((options["from_"] is not None, options["engine"] is not None, not alterations.none)) > 1:
        raise SettingsError("--from, --engine and alterations (--set, --drop, --shift, --policy) each go by themselves")
    if all_ is not None:
        if options["from_"] is not None or options["engine"] is not None:
            raise SettingsError("--all goes with alterations alone")
        return _all(all_, alterations, bool(options["json"]))
    if options["from_"] is not None:
        return _perceive(folder, options)
    if options["engine"] is not None:
        return _regenerate(folder, options)
    if not alterations.none:
        return _what_if(folder, alterations, bool(options["json"]))
    result = rerun(folder)
    return _verdict(result.difference, f"({result.events} events)", bool(options["json"]))


def _verdict(difference: Difference | None, what: str, as_json: bool) -> int:
    if as_json:
        told = None if difference is None else dataclasses.asdict(difference)
        print(json.dumps({"identical": difference is None, "difference": told, "what": what}, ensure_ascii=False))
    elif difference is None:
        print(f"identical {what}")
    else:
        print(f"different {what}\n{difference}")
    return 0 if difference is None else 1


def _what_if(folder: Path, alterations: Alterations, as_json: bool) -> int:
    result = what_if(folder, alterations)
    if as_json:
        plain = {
            "same": result.same,
            "recorded": dataclasses.asdict(result.recorded),
            "altered": dataclasses.asdict(result.altered),
            "limits": result.limits,
        }
        print(json.dumps(plain, ensure_ascii=False, indent=1))
    else:
        print(result)
    return 0


def _all(root: Path, alterations: Alterations, as_json: bool) -> int:
    changed = 0
    rows: list[dict[str, object]] = []
    try:
        for one in compare_all(root, alterations):
            if one.result is None:
                rows.append({"session": one.session, "fault": one.fault})
                if not as_json:
                    print(f"{one.session}  cannot be run: {one.fault}")
                continue
            changed += not one.result.same
            before, after = len(one.result.recorded.interruptions), len(one.result.altered.interruptions)
            rows.append({"session": one.session, "same": one.result.same, "before": before, "after": after})
            if not as_json:
                verdict = "as recorded" if one.result.same else f"otherwise: {before} ends of an epoch, now {after}"
                print(f"{one.session}  {verdict}")
    except OSError as error:
        raise JournalError(f"{root} cannot be read: {error.strerror}") from None
    if as_json:
        print(json.dumps({"sessions": rows, "otherwise": changed}, ensure_ascii=False))
    else:
        print(f"{changed} of {len(rows)} sessions would go otherwise")
    return 1 if changed else 0


def _policy(path: Path | None) -> Sequence[str]:
    """NAME=VALUE for each setting in a TOML file, tables by their dotted names. Raises SettingsError."""
    if path is None:
        return ()
    try:
        return list(_flat(tomllib.loads(path.read_text(encoding="utf-8"))))
    except OSError as error:
        raise SettingsError(f"--policy {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"--policy {path}: {error}") from None


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[str]:
    settings = []
    for name, value in table.items():
        if isinstance(value, dict):
            settings += _flat(value, f"{prefix}{name}.")
        else:
            settings.append(f"{prefix}{name}={str(value).lower() if isinstance(value, bool) else value}")
    return settings


def _perceive(folder: Path, options: Mapping[str, Any]) -> int:
    from models.assets import AssetError, ensure
    from models.perception.perception import ASSETS, EmbeddedPerception
    from sessions.replay.perceive import perceive

    _choose_cache(options)
    try:
        perception = EmbeddedPerception.load(ensure(ASSETS, lambda what, share: None))
    except AssetError as error:
        raise SettingsError(str(error)) from None
    try:
        result = perceive(folder, perception)
    finally:
        perception.stop()
    return _verdict(result.difference, f"({result.events} events; {result})", bool(options["json"]))


def _regenerate(folder: Path, options: Mapping[str, Any]) -> int:
    from sessions.replay.regenerate import check_repeatable, regenerate

    recorded = Recording(folder).manifest
    check_repeatable(recorded)
    named = (recorded.engine or {}).get("engine", "moshi")
    if named != "moshi":
        raise JournalError(
            f"{recorded.session} was answered by the engine {named}, and only moshi is run again; run the session "
            "again without --engine, which compares every effect"
        )
    from codec.mimi.errors import CheckpointError
    from models.families.moshi.engine import moshi_engine

    settings = settings_module.from_environment(
        {"engine": "moshi", **{name: options[name] for name in ("checkpoint", "random_weights") if name in options}}
    )
    try:
        engine = moshi_engine(settings.checkpoint, slots=1, worker=False)
    except CheckpointError as error:
        raise SettingsError(str(error)) from None
    try:
        result = regenerate(folder, engine)
    finally:
        engine.shutdown()
    seconds = result.frames * engine.hop / 24_000
    if options["json"]:
        print(json.dumps(dataclasses.asdict(result)))
    elif result.identical:
        lost = f"; {result.lost} more were lost at cuts" if result.lost else ""
        print(
            f"identical ({result.frames} frames, {seconds:.1f} s; {result.coded} of them compared by their codes{lost})"
        )
    else:
        print(f"different after {result.frames} frames: {result.difference}")
    return 0 if result.identical else 1


def _choose_cache(options: Mapping[str, Any]) -> None:
    if "cache" in options:
        os.environ["TALKOVER_CACHE"] = str(options["cache"])
