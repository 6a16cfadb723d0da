"""Options of `talkover tenant`, apart from what it does so that every other command starts without that."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from .security.quotas import NAMES

EXAMPLES: Final = """\
The file is --tenants-file, or TALKOVER_TENANTS_FILE. Servers read it again when it changes.

examples:
  talkover tenant add acme                           a tenant; prints its first key, once
  talkover tenant add ops --operator                 a key that looks after the server
  talkover tenant key acme --days 90                 another key, for a while
  talkover tenant key acme --delete 0123456789ab     a key less
  talkover tenant limit acme sessions=10 audio_day=36000
  talkover tenant disable acme                       nothing opens any more, what runs ends
  talkover tenant state acme --url http://127.0.0.1:8787 --record recordings
  talkover tenant delete acme --url http://127.0.0.1:8787 --record recordings
  talkover tenant delete acme --session sess_0123456789abcdef --url http://127.0.0.1:8787
"""

OPERATOR_KEY: Final = "TALKOVER_OPERATOR_KEY"


def add_options(tenant: argparse.ArgumentParser) -> None:
    actions = tenant.add_subparsers(dest="what", required=True, metavar="ACTION")

    def action(name: str, about: str, *, of: bool = True) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=about, description=about)
        made.add_argument(
            "--tenants-file",
            type=Path,
            default=os.environ.get("TALKOVER_TENANTS_FILE"),
            metavar="FILE",
            help="the file of tenants [TALKOVER_TENANTS_FILE]",
        )
        if of:
            made.add_argument("name", help="the tenant")
        return made

    for name, about in (("add", "a new tenant, and its first key"), ("key", "another key, or one less")):
        made = action(name, about)
        made.add_argument("--operator", action="store_true", help="the key may look after the whole server")
        made.add_argument("--days", type=float, metavar="N", help="how long the key is good (default: until deleted)")
        if name == "key":
            made.add_argument("--delete", metavar="ID", help="delete this key instead")
    listed = action("list", "all tenants, their keys and limits", of=False)
    listed.add_argument("--json", action="store_true", help="print as JSON")
    for name, about in (("disable", "a tenant, or one of its keys, is no longer good"), ("enable", "and good again")):
        action(name, about).add_argument("--key", metavar="ID", help="only this key")
    limit = action("limit", "what a tenant may use, where it differs from the server's settings")
    limit.add_argument(
        "limits", nargs="+", metavar="NAME=N", help=f"{', '.join(NAMES)}; without a number: the server's"
    )
    for name, about in (
        ("state", "every piece of state of a tenant, or a session"),
        ("delete", "all of it is removed"),
    ):
        made = action(name, about)
        made.add_argument("--session", metavar="ID", help="only this session")
        made.add_argument("--url", action="append", default=[], help="a server that runs; repeatable")
        made.add_argument(
            "--with-key", metavar="KEY", help=f"operator's key for those servers; better by {OPERATOR_KEY}"
        )
        made.add_argument(
            "--record", type=Path, default=os.environ.get("TALKOVER_RECORD"), metavar="DIR", help="folder of recordings"
        )
        made.add_argument(
            "--directory", default=os.environ.get("TALKOVER_DIRECTORY"), metavar="URL", help="Redis that servers share"
        )
        made.add_argument("--json", action="store_true", help="print as JSON")
