"""Options of `talkover replay`, `explain` and `sessions`; nothing here needs numpy, which is imported late."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from . import settings as settings_module

EXPORTS = ("audacity", "json", "mcap", "perfetto", "wav", "webvtt")
"""Names of `sessions.replay.export.FORMATS`."""

REPLAY_EXAMPLES = """\
The exit status is 0 for identical, 1 for different, 2 where a recording cannot be read.

examples:
  talkover replay recordings/sess_1f2e
      run its events through the core again; every effect must be the recorded one
  talkover replay recordings/sess_1f2e --from user_in
      run perception too, on what the user said
  talkover replay recordings/sess_1f2e --engine same --random-weights tiny
      run the engine again from the recorded seed (engines that own their turns)
  talkover replay recordings/sess_1f2e --set turn.hold_ms=80 --set vad.threshold=0.7
      what if the turn policy had been another one?
  talkover replay recordings/sess_1f2e --drop playback.ack --shift interruption.2=-200ms
      what if reports had been lost, and the second interruption had come earlier?
  talkover replay --all recordings --policy new.toml
      which sessions would go otherwise under the settings of new.toml (turn.silence_ms = 300 ...)?
"""

EXPLAIN_EXAMPLES = """\
examples:
  talkover explain recordings/sess_1f2e
  talkover explain recordings/sess_1f2e --interruption 2
  talkover explain recordings/sess_1f2e --late 500 --json
"""


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Options of `talkover replay`."""
    parser.add_argument("folder", type=Path, nargs="?", help="folder of one session below the --record folder")
    parser.add_argument("--from", dest="from_", choices=("user_in",), help="run perception again on the user's audio")
    parser.add_argument("--engine", choices=("same",), help="run the engine again and compare what it says")
    parser.add_argument("--set", dest="set_", action="append", default=[], metavar="NAME=VALUE", help="another setting")
    parser.add_argument("--drop", action="append", default=[], metavar="WHAT", help="leave out, such as playback.ack")
    parser.add_argument(
        "--shift", action="append", default=[], metavar="interruption[.N]=MSms", help="let it come earlier or later"
    )
    parser.add_argument("--all", dest="all_", type=Path, metavar="DIR", help="every session below DIR")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="settings for --set from a TOML file")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    settings_module.add_options(parser, "checkpoint", "random_weights", "cache")


def add_explain_options(parser: argparse.ArgumentParser) -> None:
    """Options of `talkover explain`."""
    parser.add_argument("folder", type=Path, help="folder of one session below the --record folder")
    parser.add_argument("--interruption", type=int, metavar="N", help="this one alone (from 1)")
    parser.add_argument("--late", type=float, default=800.0, metavar="MS", help="from when an answer is late (800)")
    parser.add_argument("--json", action="store_true", help="print the account as JSON, times in ticks of 1/48000 s")


SESSIONS_EXAMPLES = """\
SESSION is the id of a session below the --record folder (its beginning suffices where only one begins so), or a folder.

examples:
  talkover sessions list --record recordings
  talkover sessions show sess_1f2e
  talkover sessions export sess_1f2e --format perfetto --out why.perfetto-trace
  talkover sessions stats --record recordings
  talkover sessions rm sess_1f2e
  talkover sessions rm --older-than 30 --tenant acme
"""


def add_sessions_options(parser: argparse.ArgumentParser, default: Callable[[], Path]) -> None:
    """The commands below `talkover sessions`. `default`: where recordings lie unless told otherwise."""
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")

    def command(name: str, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.add_argument(
            "--record", type=Path, metavar="DIR", default=None, help=f"folder of the recordings (default: {default()})"
        )
        added.set_defaults(default_root=default())
        return added

    listed = command("list", "all recordings, oldest first")
    listed.add_argument("--json", action="store_true", help="print them as JSON")
    shown = command("show", "what one recording holds")
    shown.add_argument("session", metavar="SESSION")
    removed = command("rm", "delete recordings")
    removed.add_argument("session", nargs="*", metavar="SESSION")
    removed.add_argument("--older-than", type=float, metavar="DAYS", help="all that were last written so long ago")
    removed.add_argument("--tenant", metavar="NAME", help="only those of this tenant")
    exported = command("export", "turn one recording into a file for other programs")
    exported.add_argument("session", metavar="SESSION")
    exported.add_argument("--format", choices=EXPORTS, default="wav", help="(default: wav, user left)")
    exported.add_argument("--out", type=Path, metavar="FILE", help="(default: SESSION and the format's ending)")
    counted = command("stats", "interruptions, backchannels, talk-over and latencies over all recordings")
    counted.add_argument("--json", action="store_true", help="print them as JSON")
