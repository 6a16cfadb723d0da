"""The command `talkover`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import settings as settings_module
from .settings import SettingsError


def default_recordings() -> Path:
    """Where a talk is recorded unless told otherwise: the user's state directory (XDG base directory specification)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "talkover" / "recordings"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="talkover",
        description="Real-time full-duplex voice sessions: people talk with a speech model and interrupt it.",
        epilog="Every option of `serve` can also be set by the variable named in brackets.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser(
        "serve",
        help="serve conversations",
        description="Serve conversations: page and API on one port. The first start prepares the model files.",
    )
    settings_module.add_options(serve)

    talk = commands.add_parser(
        "talk",
        help="play a recording to a server as a microphone would, and keep the answer",
        description="Play FILE in real time as a microphone, write down what happens and keep what is heard. Without "
        "--url a server of its own is started for it.",
    )
    talk.add_argument("file", type=Path, help="what the user says (WAV, FLAC, Ogg; any rate)")
    talk.add_argument(
        "--interrupt-at",
        nargs=2,
        action="append",
        default=[],
        metavar=("SECONDS", "FILE"),
        help="play FILE over the agent, SECONDS after its voice began to sound (repeatable)",
    )
    talk.add_argument("--out", type=Path, metavar="FILE", help="write what was heard: user left, agent right (WAV)")
    talk.add_argument("--url", metavar="URL", help="a server that runs, such as ws://127.0.0.1:8787/v1/realtime")
    talk.add_argument("--key", default="none", metavar="KEY", help="key for that server")
    talk.add_argument(
        "--turns",
        choices=("semantic_vad", "server_vad"),
        default="semantic_vad",
        help="turn detection (default: semantic_vad)",
    )
    talk.add_argument("--instructions", default="", metavar="TEXT", help="instructions for the agent")
    talk.add_argument("--json", type=Path, metavar="FILE", help="also write the timeline and the figures as JSON")
    settings_module.add_options(
        talk, "engine", "script", "llm_url", "llm_model", "llm_key", "record", "cache", "lead_ms", "frame_ms"
    )

    talk.add_argument("--no-record", action="store_true", help=f"do not record (default: below {default_recordings()})")

    prepare = commands.add_parser(
        "prepare",
        help="fetch and prepare the model files, once",
        description="Fetch the model files, check them and prepare them in the cache. `serve` does it when it must.",
    )
    settings_module.add_options(prepare, "cache")

    replay = commands.add_parser(
        "replay",
        help="run a recorded session through the core again and compare",
        description="Run the events of a recorded session through the core again and compare every effect. "
        'Prints "identical", or the first difference and ends with status 1.',
    )
    replay.add_argument("folder", type=Path, help="folder of one session below the --record folder")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (2 for a mistake in it)."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    command = options.pop("command")
    try:
        if command == "replay":
            return _replay(options["folder"])
        if command == "prepare":
            return _prepare(options)
        if command == "talk":
            from .talk import talk

            own = {name: options.pop(name) for name in TALK_OPTIONS}
            if options.pop("no_record"):
                options["record"] = None
            elif own["url"] is None:
                options.setdefault("record", default_recordings())
            return talk(**own, settings=settings_module.from_environment({"port": 0, **options}))
        from .serve import serve

        return serve(settings_module.from_environment(options))
    except SettingsError as error:
        print(f"talkover {command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


TALK_OPTIONS = ("file", "interrupt_at", "out", "url", "key", "turns", "instructions", "json")


def _prepare(options: dict[str, object]) -> int:
    from models.assets import main as prepare

    if "cache" in options:
        os.environ["TALKOVER_CACHE"] = str(options["cache"])
    return prepare([])


def _replay(folder: Path) -> int:
    from sessions.replay.rerun import JournalError, rerun

    try:
        result = rerun(folder)
    except JournalError as error:
        print(f"talkover replay: {error}", file=sys.stderr)
        return 2
    if result.difference is None:
        print(f"identical ({result.events} events)")
        return 0
    print(f"different after {result.events} events\n{result.difference}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
