"""`talkover models`: what each model family, and each checkpoint on disk, can really do."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.descriptor import Fact
    from models.graph.graph import ModelGraph
    from models.registry import Model

FORMATS = ("text", "mermaid", "dot", "json")

EXAMPLES = """\
examples:
  talkover models list
  talkover models show qwen3-omni-thinking
  talkover models show ~/checkpoints/any-name --require voice
  talkover models graph moshi --format mermaid > moshi.mmd
  talkover models graph bagel --format dot | dot -Tsvg > bagel.svg
"""

_NAME = "a name that `talkover models list` prints, or the folder of a checkpoint"

WIDTH = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    """The three commands below `talkover models`."""
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")

    def command(name: str, summary: str, description: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description="\n".join(textwrap.wrap(description, 79)),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    listed = command("list", "every family and variant, one a line", "List every family and variant that is described.")
    shown = command(
        "show",
        "what one model, or a checkpoint in a folder, can do, and who says so",
        "Show every capability with the place that states it. A folder is read by its own files: its name says "
        "nothing, its configuration is compared with the shapes of its weights, and what no source states is "
        "undetermined.",
    )
    shown.add_argument("model", metavar="NAME_OR_PATH", help=_NAME)
    shown.add_argument(
        "--require",
        choices=("voice",),
        help="end with status 1, naming what is missing, unless it can hold such a session",
    )
    drawn = command(
        "graph",
        "its stages, what flows between them, and when output may leave",
        "Print the model graph: by what each stage makes batches, which edges leave the device, what may be used "
        "again, how it recovers, and when an output may be delivered.",
    )
    drawn.add_argument("model", metavar="NAME_OR_PATH", help=_NAME)
    drawn.add_argument("--format", choices=FORMATS, default="text", help="how to print it (default: text)")
    for one in (listed, shown):
        one.add_argument("--json", action="store_true", help="print the result as JSON")
    drawn.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")


def models(options: Mapping[str, object]) -> int:
    """Run one of them; returns the exit status: 1 where a requirement is not met, 2 for a mistake."""
    from models.checkpoint import CheckpointError
    from models.descriptor import CannotSpeak, DescriptorError
    from models.registry import UnknownModel

    run: Mapping[str, Callable[[Mapping[str, object]], int]] = {"list": _list, "show": _show, "graph": _graph}
    what = str(options["what"])
    try:
        return run[what](options)
    except CannotSpeak as refused:
        print(f"talkover models {what}: {refused}", file=sys.stderr)
        return 1
    except (UnknownModel, CheckpointError, DescriptorError) as error:
        print(f"talkover models {what}: {error}", file=sys.stderr)
        return 2


def _list(options: Mapping[str, object]) -> int:
    from models.registry import models as known

    found = list(known().values())
    if options["json"]:
        print(json.dumps([{**row(model), "about": model.family.about} for model in found], indent=2))
        return 0
    rows = [row(model) for model in found]
    widths = {name: max(len(name), *(len(line[name]) for line in rows)) for name in rows[0]}
    for line in ({name: name.upper() for name in widths}, *rows):
        print("  ".join(f"{line[name]:<{width}}" for name, width in widths.items()).rstrip())
    print("\nserved: this server has an engine for it. `talkover models show NAME` tells who states what.")
    return 0


def row(model: Model) -> dict[str, str]:
    """One line of the list."""
    from models.graph.parts import Medium

    descriptor, graph = model.descriptor, model.graph
    takes = [Medium.TEXT, *descriptor.hears] if graph.takes_text else descriptor.hears
    return {
        "name": model.name,
        "takes": " ".join(medium.value for medium in takes),
        "gives": " ".join(dict.fromkeys(delivery.medium.value for delivery in graph.deliveries)),
        "speaks": "yes" if descriptor.speaks else "no",
        "interruptible": _short(descriptor.interruptible),
        "served": "yes" if model.served else "no",
    }


def _short(fact: Fact[bool]) -> str:
    return {"true": "yes", "false": "no"}.get(str(fact), str(fact))


def _show(options: Mapping[str, object]) -> int:
    from models.descriptor import require_voice
    from models.registry import find

    model = find(str(options["model"]))
    if options["json"]:
        print(json.dumps(record(model), indent=2))
    else:
        print(described(model), end="")
    if options["require"] == "voice":
        require_voice(model.descriptor)
    return 0


def described(model: Model) -> str:
    """Every fact with its source, for a terminal."""
    from models.descriptor import CannotSpeak, Stated, Undetermined, require_voice
    from models.graph.clocks import codes_per_frame, frame_rate

    facts = model.descriptor.facts()
    width = max(map(len, facts))
    lines = [f"{model.name}: {model.family.about}", ""]
    for name, fact in facts.items():
        # Neither a value nor a source may send control characters to the terminal: both can come from a file.
        source = "" if isinstance(fact, Undetermined) else f"  ({fact.source})"
        lines += _wrapped(f"  {name.replace('_', ' '):<{width}}  ", _printable(f"{fact}{source}"))
    if model.descriptor.symbols:
        sizes = ", ".join(f"{name} = {size}" for name, size in model.descriptor.symbols.items())
        lines += ["", *_wrapped("  sizes  ", sizes)]
    codec = model.descriptor.codec
    if isinstance(codec, Stated):
        frames = frame_rate(codec.value)
        lines += ["", *_wrapped("  rates  ", f"{frames}; {frames.convert(codes_per_frame(codec.value))}")]
    if model.compared:
        lines += ["", f"  weights: the shapes of {model.compared} tensors are those that the configuration says"]
    elif isinstance(model.descriptor.checkpoint, Stated) and model.name not in model.family.published:
        lines += [
            "",
            "  weights: not compared with the configuration; there are none here that can be read without loading",
        ]
    try:
        require_voice(model.descriptor)
        voice = "yes"
    except CannotSpeak as refused:
        missing = ", ".join(name.replace("_", " ") for name in refused.missing)
        voice = f"no, for want of: {missing}"
    lines += ["", f"  voice session: {voice}", f"  served here: {'yes' if model.served else 'no'}"]
    lines += ["", *_wrapped("  sources: ", "; ".join(model.family.sources))]
    return "\n".join(lines) + "\n"


def record(model: Model) -> dict[str, object]:
    """The same as plain values."""
    from models.descriptor import CannotSpeak, require_voice

    try:
        require_voice(model.descriptor)
        missing: Sequence[str] = ()
    except CannotSpeak as refused:
        missing = refused.missing
    return {
        "name": model.name,
        "family": model.family.name,
        "about": model.family.about,
        "facts": {name: _plain(fact) for name, fact in model.descriptor.facts().items()},
        "symbols": dict(model.descriptor.symbols),
        "tensors_compared": model.compared,
        "voice": {"possible": not missing, "missing": list(missing)},
        "served": model.served,
        "sources": list(model.family.sources),
    }


def _plain(fact: Fact[object]) -> object:
    from codec.identity import CodecIdentity
    from models.descriptor import Absent, Stated

    if isinstance(fact, Stated):
        value = fact.value.to_record() if isinstance(fact.value, CodecIdentity) else fact.value
        return {"value": value, "source": fact.source}
    return {"value": None, "source": fact.source} if isinstance(fact, Absent) else "undetermined"


def _graph(options: Mapping[str, object]) -> int:
    from models.graph.render import FORMATS as RENDERED
    from models.registry import find

    graph = find(str(options["model"])).graph
    if options["format"] == "json":
        print(json.dumps(graph_record(graph), indent=2))
    else:
        print(RENDERED[str(options["format"])](graph), end="")
    return 0


def graph_record(graph: ModelGraph) -> dict[str, object]:
    """A graph as plain values."""
    return {
        "name": graph.name,
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind.value,
                "batching": [batching.value for batching in node.batching],
                "within": node.within,
            }
            for node in graph.nodes
        ],
        "edges": [
            {
                "from": edge.source,
                "to": edge.target,
                "state": graph.state(edge).value,
                "shape": str(graph.shape(edge)),
                "clock": clock.name if (clock := graph.source_port(edge).clock) else None,
                "placement": edge.placement.value,
                "recovery": str(edge.recovery),
                "feedback": edge.loop,
                "reusable": not graph.reuse(edge).once,
            }
            for edge in graph.edges
        ],
        "outputs": [
            {
                "medium": delivery.medium.value,
                "from": delivery.port,
                "ready": delivery.ready.value,
                "delay_frames": delivery.delay_frames,
            }
            for delivery in graph.deliveries
        ],
    }


def _wrapped(lead: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)) or [lead.rstrip()]


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
