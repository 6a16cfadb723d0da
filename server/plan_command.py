"""`talkover plan`: what a model takes on a device, how many sessions fit, and what limits first."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from models.plan.edges import EdgePlan
    from models.plan.figures import Figure
    from models.plan.plan import Plan

EXAMPLES = """\
Nothing is loaded: sizes come from configurations and from the headers of weights. Each figure says whether
it is measured, declared by somebody, or computed. Times and sessions that are computed are bounds: no
step is shorter, no device holds more.

examples:
  talkover plan --device list
  talkover plan --family moshi --device h200
  talkover plan --family qwen3-omni --device l40s --context 4096
  talkover plan --family moshi --device l40s --step-ms 1=21 --step-ms 16=34
      with steps that were measured on that device
  talkover plan --family moshi --random-weights tiny --device cpu --measure
      make the tiny model here and measure its memory and its steps
  talkover plan --family minicpm-o --checkpoint ~/checkpoints/any-name --device h100 --json
"""

WIDTH = 110

K = TypeVar("K", int, str)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `talkover plan`."""
    parser.add_argument("--family", metavar="NAME", help="a family or a model that `talkover models list` prints")
    parser.add_argument(
        "--device", required=True, metavar="NAME", help="a device; list: those that are known; cpu: here"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="its own sizes, in place of the published ones")
    parser.add_argument("--random-weights", choices=("tiny",), help="the tiny configuration, in place of a checkpoint")
    parser.add_argument(
        "--context", type=int, metavar="N", help="positions of one session (Moshi: frames of the window)"
    )
    parser.add_argument("--dtype", metavar="NAME", help="of weights and states: bfloat16, float16, float32")
    parser.add_argument(
        "--usable", type=float, default=0.9, metavar="SHARE", help="share of the memory to be used (default: 0.9)"
    )
    parser.add_argument(
        "--step-ms",
        action="append",
        default=[],
        metavar="SESSIONS=MS",
        help="a step of so many sessions takes so long on that device (repeatable; two tell how it grows); "
        "STAGE:SESSIONS=MS, for every stage, where a model's stages step apart",
    )
    parser.add_argument(
        "--link",
        action="append",
        default=[],
        metavar="KIND=BYTES_PER_SECOND",
        help="a link of peer, host or network in one direction (repeatable)",
    )
    parser.add_argument("--measure", action="store_true", help="make it here and measure memory and steps")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def plan(options: Mapping[str, object]) -> int:
    """Run it; returns the exit status (2 for what cannot be planned)."""
    from models.checkpoint import CheckpointError
    from models.descriptor import DescriptorError
    from models.plan.figures import PlanError
    from models.plan.plan import Asked, make_plan
    from models.registry import UnknownModel

    # transformers remarks on its own models' configurations while they are laid out.
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        if options["device"] == "list":
            _list()
            return 0
        if options["family"] is None:
            raise PlanError("--family", "is missing; `talkover models list` prints the names")
        checkpoint = options["checkpoint"]
        context = options["context"]
        steps, stages = _steps(options["step_ms"])
        asked = Asked(
            family=str(options["family"]),
            device=str(options["device"]),
            checkpoint=checkpoint if isinstance(checkpoint, Path) else None,
            tiny=options["random_weights"] == "tiny",
            dtype=None if options["dtype"] is None else str(options["dtype"]),
            context=context if isinstance(context, int) else None,
            usable=_number(options["usable"]),
            steps=steps,
            stages=stages,
            links=_pairs(options["link"], "--link", str),
            measure=bool(options["measure"]),
        )
        made = make_plan(asked, _tell)
    except (PlanError, CheckpointError, DescriptorError, UnknownModel) as error:
        print(f"talkover plan: {error}", file=sys.stderr)
        return 2
    print(json.dumps(record(made), indent=2) if options["json"] else report(made), end="\n" if options["json"] else "")
    return 0


def _number(value: object) -> float:
    return value if isinstance(value, float) else 0.9


def _pairs(given: object, option: str, key: Callable[[str], K]) -> dict[K, float]:
    from models.plan.figures import PlanError

    found: dict[K, float] = {}
    for text in given if isinstance(given, list) else []:
        left, separator, right = str(text).partition("=")
        try:
            if not separator:
                raise ValueError(text)
            found[key(left.strip())] = float(right)
        except ValueError:
            raise PlanError(option, f"{text!r} must be written NAME=NUMBER") from None
    return found


def _steps(given: object) -> tuple[dict[int, float], dict[str, dict[int, float]]]:
    """Seconds of whole steps by sessions, and of stages."""
    whole: dict[int, float] = {}
    stages: dict[str, dict[int, float]] = {}
    for text in given if isinstance(given, list) else []:
        stage, separator, rest = str(text).rpartition(":")
        seconds = {sessions: ms / 1000 for sessions, ms in _pairs([rest], "--step-ms", int).items()}
        (stages.setdefault(stage.strip(), {}) if separator else whole).update(seconds)
    return whole, stages


def _tell(what: str) -> None:
    print(f"plan: {what} ...", file=sys.stderr, flush=True)


def _list() -> None:
    from models.plan.devices import CPU, device, names

    for name in names():
        if name == CPU:
            print(f"{name:10} this machine's processor, measured when it is asked for")
            continue
        found = device(name)
        print(f"{name:10} {found.about}: {found.memory}, {found.bandwidth}, {found.flops['bfloat16']} in bfloat16")


# --- as plain values ------------------------------------------------------------------------------------------------


def record(made: Plan) -> dict[str, object]:
    """The plan as plain values."""
    geometry, can, taken = made.geometry, made.capacity, made.measured
    return {
        "model": made.model,
        "dtype": geometry.dtype,
        "context": geometry.context,
        "source": geometry.source,
        "not_counted": list(geometry.missing),
        "device": {
            "name": made.device.name,
            "about": made.device.about,
            "memory": made.device.memory.record(),
            "bandwidth": made.device.bandwidth.record(),
            "links": {kind: link.record() for kind, link in made.device.links.items()},
        },
        "parts": [
            {
                "name": part.name,
                "weights_bytes": part.weights,
                "session_bytes": part.session,
                "fixed_state_bytes": part.fixed,
                "steps_per_tick": float(part.ticks),
                "kv": [
                    {
                        "name": kv.name,
                        "layers": kv.layers,
                        "kv_heads": kv.kv_heads,
                        "head_dim": kv.head_dim,
                        "positions": kv.cells,
                        "bytes_per_number": kv.item,
                        "bytes": kv.bytes,
                        "window_moves": kv.moves,
                    }
                    for kv in part.attention
                ],
            }
            for part in geometry.parts
        ],
        "weights": can.weights.record(),
        "session": can.session.record(),
        "spare": can.spare.record(),
        "budget": can.budget.record(),
        "devices_for_weights": can.devices_for_weights,
        "sessions_by_memory": can.by_memory.record(),
        "tick": _record(can.tick),
        "steps": [{"sessions": sessions, **seconds.record()} for sessions, seconds in can.steps],
        "stages": [{"sessions": sessions, "stage": stage, **one.record()} for sessions, stage, one in can.stages],
        "sessions_by_tick": _record(can.by_tick),
        "limit": can.limit,
        "edges": [_edge(edge) for edge in made.edges],
        "measured": None
        if taken is None
        else {
            "weights": taken.weights.record(),
            "session": taken.session.record(),
            "total_bytes": {str(sessions): size for sessions, size in taken.total.items()},
            "step_seconds": {str(sessions): seconds for sessions, seconds in taken.steps.items()},
            "stage_seconds": {
                stage: {str(sessions): seconds for sessions, seconds in times.items()}
                for stage, times in taken.stages.items()
            },
            "step_how": taken.how,
        },
    }


def _record(figure: Figure | None) -> dict[str, object] | None:
    return None if figure is None else figure.record()


def _edge(edge: EdgePlan) -> dict[str, object]:
    return {
        "edge": edge.name,
        "state": edge.state.value,
        "shape": edge.shape,
        "clock": edge.clock,
        "rate": _record(edge.rate),
        "payload": _record(edge.payload),
        "payload_is": edge.unit,
        "placement": edge.placement.value,
        "crosses": edge.crosses,
        "recovery": edge.recovery,
        "transfer_at_least": {kind: seconds.record() for kind, seconds in edge.transfers.items()},
    }


# --- for people -----------------------------------------------------------------------------------------------------


def report(made: Plan) -> str:
    """The plan as text."""
    lines = [f"{made.model}, {made.geometry.dtype}, on {made.device.about}", ""]
    lines += [*_memory(made), "", *_time(made), "", f"  what limits first: {made.capacity.limit}", ""]
    if made.measured is not None:
        lines += [*_measured(made), ""]
    lines += _edges(made)
    return "\n".join(lines) + "\n"


def _memory(made: Plan) -> list[str]:
    from models.plan.figures import spelled

    geometry, can = made.geometry, made.capacity
    lines = ["memory"]
    for part in geometry.parts:
        lines.append(f"  {part.name:22} weights {spelled(part.weights, 'bytes'):>10}{_share(part.session)}")
        lines += [
            f"  {'':22}   keys and values of {kv.name}: {kv.cells:,} positions · {kv.layers} layers · 2 · "
            f"{kv.kv_heads} heads · {kv.head_dim} · {kv.item} B = {spelled(kv.bytes, 'bytes')}"
            + (" (the window moves)" if kv.moves else "")
            for kv in part.attention
        ]
        if part.fixed:
            lines.append(f"  {'':22}   other state: {spelled(part.fixed, 'bytes')}")
    lines += [
        _line("weights", can.weights),
        _line("one session", can.session),
        *([_line("spare state", can.spare)] if can.spare.value else []),
        _line("may be used", can.budget),
        _line("sessions by memory", can.by_memory),
    ]
    if can.devices_for_weights > 1:
        lines.append(f"  the weights alone need {can.devices_for_weights} such devices")
    if geometry.missing:
        lines += _wrapped("  not counted: ", "; ".join(geometry.missing))
    return [*lines, *_wrapped("  sizes: ", geometry.source)]


def _share(session: int) -> str:
    from models.plan.figures import spelled

    return f", one session {spelled(session, 'bytes'):>10}" if session else ""


def _time(made: Plan) -> list[str]:
    can = made.capacity
    lines = ["time"]
    if can.tick is None or can.by_tick is None:
        lines.append("  no tick is stated for this model, so no number of sessions follows from its steps")
    else:
        lines.append(_line("tick", can.tick))
    for sessions, seconds in can.steps:
        lines.append(_line(f"step of {sessions:,}", seconds))
        lines += [f"  {'':22} {one!s:>10}  {stage}" for count, stage, one in can.stages if count == sessions]
    if can.by_tick is not None:
        lines.append(_line("sessions by tick", can.by_tick))
    return lines


def _measured(made: Plan) -> list[str]:
    taken, can = made.measured, made.capacity
    if taken is None:
        return []
    lines = ["measured here, beside what was computed"]
    for name, found, thought in (("weights", taken.weights, can.weights), ("one session", taken.session, can.session)):
        off = (thought.value - found.value) / found.value if found.value else 0.0
        lines.append(f"  {name:22} {found!s:>10} measured, {thought!s} computed ({off:+.1%})")
    return lines


def _edges(made: Plan) -> list[str]:
    lines = ["edges: clock, size, and the least that moving it takes (payload / bandwidth, no waiting)"]
    for edge in made.edges:
        rate = f", {edge.rate}" if edge.rate is not None else ""
        size = f"{edge.payload} for {edge.unit}" if edge.payload is not None else edge.unit
        lines.append(f"  {edge.name}")
        lines.append(f"      {edge.state.value} [{edge.shape}], {edge.clock}{rate}; {size}")
        times = ", ".join(f"{kind} {seconds}" for kind, seconds in edge.transfers.items())
        crosses = "crosses" if edge.crosses else "stays"
        lines.append(
            f"      {edge.placement.value} ({crosses}); lost: {edge.recovery}" + (f"; {times}" if times else "")
        )
    return lines


def _line(name: str, figure: Figure) -> str:
    lead = f"  {name:22} {figure!s:>10}  [{figure.origin.value}] "
    return "\n".join(_wrapped(lead, figure.source))


def _wrapped(lead: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)) or [lead.rstrip()]
