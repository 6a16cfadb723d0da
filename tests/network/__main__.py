"""What calls make of a bad network: all figures, as tables.

`python -m tests.network` needs root, Debian's iproute2 and the prepared model files, and takes about ten minutes.
`--only uplink|words|breaks|bargein` (repeatable) measures a part.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

from tests.bench.report import percentile, progress, table

from .bargein import barge_in
from .breaks import Rejoined, cut, move, rejoin
from .emulator import Conditions
from .namespaces import missing
from .uplink import PATH_MS, delay, words

Row = list[object]


def uplink(seconds: float) -> str:
    """Added delay on the way up."""
    rows: list[Row] = []
    for loss, jitter, reorder in ((0.02, 20.0, True), (0.02, 20.0, False), (0.05, 20.0, True)):
        progress(f"{loss:.0%} lost, {jitter:.0f} ms of jitter")
        got = delay(loss, jitter, seconds, reorder=reorder)
        rows.append(
            [
                f"{(got.recovered + got.concealed) / (50 * seconds):.1%}",
                round(jitter),
                "yes" if reorder else "no",
                *(round(one, 1) for one in (got.median, got.p95, got.worst, got.after, got.machine_ms)),
                *(got.recovered, got.concealed, got.late, round(got.drift_s, 3)),
            ]
        )
    head = (
        "lost, jitter ms, overtaking, p50 ms, p95 ms, max ms, p50 after, p95 clean, recovered, concealed, late, drift s"
    )
    return table(rows, head.split(", "))


def transcripts() -> str:
    """Word error rates of spoken questions."""
    rows: list[Row] = []
    for conditions in (
        Conditions(PATH_MS),
        Conditions(PATH_MS, jitter_ms=20, loss=0.05),
        Conditions(PATH_MS, loss=0.05, burst=3),
    ):
        progress(str(conditions))
        got = words(conditions)
        row: Row = [f"{conditions.loss:.0%}", round(conditions.burst), round(conditions.jitter_ms), got.questions]
        rows.append([*row, f"{got.wer:.1%}"])
    return table(rows, ("lost", "burst", "jitter ms", "questions", "word error rate"))


def breaks() -> str:
    """A cut, a longer one, and another address."""
    progress("breaks")
    one = cut()
    rows: list[Row] = [
        ["cut of 3 s", "survived" if one.survived else "lost", one.back_ms, one.event_ms, one.stale, one.new_heard]
    ]
    named: tuple[tuple[str, Rejoined], ...] = (("cut of 8 s", rejoin()), ("new address", move()))
    for name, again in named:
        same = again.same_session and again.same_history
        became = f"joined, epoch +{again.epochs}" if same else "another session"
        rows.append([name, became, "", again.joined_ms, again.old_heard, again.new_heard])
    return table(rows, ("", "call", "first packet ms", "first event ms", "old packets", "new packets"))


def cuts() -> str:
    """The client's cancel over a slow way."""
    rows: list[Row] = []
    for reports in (True, False):
        progress("cancel over 100 ms each way, " + ("reports" if reports else "model"))
        got = barge_in(reports=reports)
        errors = [percentile([abs(one) for one in way], 0.95) for way in (got.at_commit, got.at_cancel, got.unmuted)]
        silent = percentile(got.silent, 0.95)
        rows.append(["/".join(sorted(got.heard_by)), got.cuts, got.stale, got.stale_at_gate, silent, *errors])
    head = ("heard by", "cuts", "stale", "at gate", "last old packet ms", "error p95 ms", "muted at once", "not muted")
    return table(rows, head)


PARTS: Final = ("uplink", "words", "breaks", "bargein")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.network", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="a part (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of bad network (default: 60)")
    options = parser.parse_args(arguments)
    why = missing()
    if why is not None:
        print(f"cannot run here: {why}", file=sys.stderr)
        return 1
    # The way that a failure goes, so that nothing remains of the networks.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    measures: dict[str, Callable[[], str]] = {
        "uplink": lambda: uplink(options.seconds),
        "words": transcripts,
        "breaks": breaks,
        "bargein": cuts,
    }
    for part in options.only or PARTS:
        print(f"{measures[part]()}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
