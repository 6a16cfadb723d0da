"""Fuzzing, guided by coverage (atheris, Apache-2.0):

    pip install 'talkover[fuzz]'
    python -m tests.fuzz realtime --inputs 1000000
    python -m tests.fuzz all --inputs 20000

An input that ends a target by an exception is printed and kept as crash-*; `--replay FILE` runs it again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType

FOLLOWED = ("server.dialects.", "server.carriers.", "sessions.recording.", "sessions.replay.reader", "sessions.keeper")
"""Modules that read what came from outside. To follow the session's core behind them too made a run ten times as long;
its own interleavings are tested by `tests/sessions/core/test_invariants.py`."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", help="its name, or `all`, or `list`")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--longest", type=int, default=600, help="bytes of one input (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzer (default: %(default)s)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one kept input and nothing else")
    options = parser.parse_args()
    from .targets import targets

    known = targets()
    if options.target == "list":
        print("\n".join(known))
        return 0
    if options.target == "all":
        return _all(list(known), options)
    if options.target not in known:
        parser.error(f"there is no target {options.target!r}; choose one of {', '.join(known)}")
    target = known[options.target]
    if options.replay is not None:
        target(options.replay.read_bytes())
        print("it comes back")
        return 0
    try:
        import atheris
    except ImportError:
        parser.error("atheris is not installed: pip install 'talkover[fuzz]'")
    flags = [f"-runs={options.inputs}", f"-max_len={options.longest}", f"-seed={options.seed}", "-print_final_stats=1"]
    for module in list(sys.modules.values()):
        # What was imported before the fuzzer could see it is followed from here on.
        if getattr(module, "__name__", "").startswith(FOLLOWED):
            _instrument(atheris, module)
    atheris.Setup([sys.argv[0], *flags], target)
    atheris.Fuzz()
    return 0


def _instrument(atheris: ModuleType, module: ModuleType) -> None:
    for value in list(vars(module).values()):
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            atheris.instrument_func(value)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for method in vars(value).values():
                if isinstance(method, FunctionType):
                    atheris.instrument_func(method)


def _all(names: list[str], options: argparse.Namespace) -> int:
    """One process for each, because the fuzzer ends its own."""
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", "tests.fuzz", name, f"--inputs={options.inputs}", f"--seed={options.seed}"]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "no target failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
