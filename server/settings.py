"""Settings of a server: defaults, then environment (`TALKOVER_*`), then the command line."""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ENGINES = ("embedded", "scripted", "duplex-script")


class SettingsError(ValueError):
    """A setting that cannot be; names it and says what to do."""


def _setting(default: typing.Any, help_text: str, **extra: typing.Any) -> typing.Any:
    return field(default=default, metadata={"help": help_text, **extra})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One field per setting; its option is the name with dashes, its variable `TALKOVER_` and the name in capitals."""

    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8787, "port to listen on (0: any free one)")
    engine: str = _setting("embedded", "what answers", choices=ENGINES)
    script: Path | None = _setting(None, "script of the scripted engines (TOML)", metavar="FILE")
    llm_url: str | None = _setting(
        None, "OpenAI-compatible endpoint that thinks instead of the embedded model", metavar="URL"
    )
    llm_model: str | None = _setting(None, "model name at that endpoint", metavar="NAME")
    llm_key: str | None = _setting(None, "key for that endpoint", metavar="KEY")
    record: Path | None = _setting(None, "record every session below this folder", metavar="DIR")
    max_sessions: int | None = _setting(
        None, "sessions at a time (default: as many as keep the first audio prompt)", metavar="N"
    )
    lead_ms: int = _setting(200, "how far audio is sent ahead of playback", metavar="MS")
    frame_ms: int = _setting(20, "length of one piece of audio that is sent", metavar="MS")
    cache: Path | None = _setting(None, "where prepared model files lie (default: ~/.cache/talkover)", metavar="DIR")
    log_level: str = _setting("info", "how much to log", choices=("debug", "info", "warning", "error"))

    def check(self) -> Settings:
        """Itself, or SettingsError."""
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"port {self.port} does not exist; choose one from 1 to 65535, or 0 for any free one")
        if self.engine not in ENGINES:
            raise SettingsError(f"there is no engine {self.engine!r}; choose one of {', '.join(ENGINES)}")
        if self.engine != "embedded" and self.script is None:
            raise SettingsError(f"--engine {self.engine} needs --script FILE.toml with its replies")
        if self.script is not None and not self.script.is_file():
            raise SettingsError(f"--script {self.script}: there is no such file")
        if (self.llm_url is None) != (self.llm_model is None):
            raise SettingsError("--llm-url and --llm-model go together; give both or neither")
        if self.max_sessions is not None and self.max_sessions < 1:
            raise SettingsError("--max-sessions must be at least 1")
        if not 40 <= self.lead_ms <= 5000:
            raise SettingsError("--lead-ms must lie between 40 and 5000")
        if not 10 <= self.frame_ms <= self.lead_ms:
            raise SettingsError("--frame-ms must lie between 10 and the lead")
        return self

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options of the settings `names` (none: all). An option not given stays out of the result."""
    hints = typing.get_type_hints(Settings)
    for setting in dataclasses.fields(Settings):
        if names and setting.name not in names:
            continue
        extra = {key: value for key, value in setting.metadata.items() if key != "help"}
        default = "" if setting.default is None else f" (default: {setting.default})"
        parser.add_argument(
            f"--{setting.name.replace('_', '-')}",
            type=_plain_type(hints[setting.name]),
            default=argparse.SUPPRESS,
            help=f"{setting.metadata['help']}{default} [TALKOVER_{setting.name.upper()}]",
            **extra,
        )


def _plain_type(hint: typing.Any) -> type:
    if isinstance(hint, types.UnionType):
        hint = next(option for option in typing.get_args(hint) if option is not type(None))
    return typing.cast(type, hint)


def from_environment(options: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from the environment, overridden by `options` (names of fields). Raises SettingsError."""
    hints = typing.get_type_hints(Settings)
    values: dict[str, typing.Any] = {}
    for setting in dataclasses.fields(Settings):
        variable = f"TALKOVER_{setting.name.upper()}"
        if setting.name in options:
            values[setting.name] = options[setting.name]
        elif environment.get(variable):
            try:
                values[setting.name] = _plain_type(hints[setting.name])(environment[variable])
            except ValueError:
                raise SettingsError(f"{variable}={environment[variable]!r} is not a valid value") from None
    return Settings(**values).check()
