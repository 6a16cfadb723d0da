"""The command `talkover`."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from . import models_command, plan_command, tenant_options
from . import settings as settings_module
from .leaving import leave
from .replay_options import (
    EXPLAIN_EXAMPLES,
    REPLAY_EXAMPLES,
    SESSIONS_EXAMPLES,
    add_explain_options,
    add_replay_options,
    add_sessions_options,
)
from .settings import SettingsError

# numpy's OpenBLAS would start a thread per core that spins while it waits, and so takes the cores from the models'
# own threads; the matrices here are too small to gain from it. It is read once, when numpy is imported, so it must be
# set before anything does that.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def default_recordings() -> Path:
    """Where a talk is recorded unless told otherwise: the user's state directory (XDG base directory specification)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "talkover" / "recordings"


ABOUT = "Real-time full-duplex voice sessions: people talk with a speech model and interrupt it."

EXAMPLES = """\
examples:
  talkover doctor                          is everything here that a server needs?
  talkover serve                           serve on http://127.0.0.1:8787
  talkover say "Good morning." --out a.wav
  talkover talk a.wav --out reply.wav      speak to it and keep what is heard
  talkover models list                     which models there are, and what they can do
  talkover plan --family moshi --device h200
                                           what it takes there, and how many sessions fit

`talkover COMMAND --help` tells more about each.
"""

SERVE_EXAMPLES = """\
Every option can also be set by the variable in brackets; the option wins.

examples:
  talkover serve
      on loopback, with the embedded models; any API key or none is accepted
  talkover serve --llm-url http://127.0.0.1:8000/v1 --llm-model qwen3 --record recordings
      another model thinks, and every session is kept
  talkover serve --host 0.0.0.0 --api-keys-file keys.txt --tls-cert cert.pem --tls-key key.pem
      for other machines: over TLS, to those who have a key
  talkover serve --tls-self-signed
      wss on loopback, for clients that insist on it
"""

TALK_EXAMPLES = """\
examples:
  talkover talk question.wav --out reply.wav
  talkover talk question.wav --interrupt-at 2.5 stop.wav
  talkover talk question.wav --url wss://voice.example/v1/realtime --key "$KEY"
"""

SAY_EXAMPLES = """\
examples:
  talkover say "Good morning." --out good-morning.wav
  talkover say --speed 1.2 --json A little faster
  echo "From a pipe." | talkover say -
"""

CALL_EXAMPLES = """\
examples:
  talkover call question.wav --vendor twilio --out heard.wav
  talkover call question.wav --vendor telnyx --url wss://voice.example --param token="$KEY"
  talkover call question.wav --vendor asterisk --interrupt-at 1.5 stop.wav
"""

DOCTOR_EXAMPLES = """\
The exit status is 1 where a server could not work as asked, else 0.

examples:
  talkover doctor
  talkover doctor --port 443 --host 0.0.0.0 --api-keys-file keys.txt
  talkover doctor --llm-url http://127.0.0.1:8000/v1 --llm-model qwen3 --json
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="talkover", description=ABOUT, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"talkover {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, summary: str, description: str, examples: str = "") -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description="\n".join(textwrap.wrap(description, 79)),
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    serve = command(
        "serve",
        "serve conversations",
        "Serve conversations: page and API on one port. The first start prepares the model files.",
        SERVE_EXAMPLES,
    )
    settings_module.add_options(serve)

    _add_talk(
        command(
            "talk",
            "play a recording to a server as a microphone would, and keep the answer",
            "Play FILE in real time as a microphone, write down what happens and keep what is heard. Without --url a "
            "server of its own is started for it.",
            TALK_EXAMPLES,
        )
    )

    say = command(
        "say",
        "speak a text into a WAV file",
        "Speak TEXT with the embedded voice into a WAV file, and print when each word begins and ends, in seconds.",
        SAY_EXAMPLES,
    )
    say.add_argument("text", nargs="+", help="what to say; - reads it from standard input")
    say.add_argument("--out", type=Path, default=Path("say.wav"), metavar="FILE", help="WAV file (default: say.wav)")
    say.add_argument("--voice", default="default", metavar="NAME", help="voice (default: default)")
    say.add_argument("--speed", type=float, default=1.0, metavar="X", help="0.25 to 2 times as fast (default: 1)")
    say.add_argument("--json", action="store_true", help="print the result as JSON")

    doctor = command(
        "doctor",
        "check libraries, models, ports and speed, and say what to do",
        "Check what `serve` with the same options would need: Python, libraries, model files, port, keys and "
        "certificate, endpoint; and how fast the models are on this machine.",
        DOCTOR_EXAMPLES,
    )
    doctor.add_argument("--json", action="store_true", help="print the result as JSON")
    settings_module.add_options(doctor, *DOCTOR_SETTINGS)

    models_command.add_options(
        command(
            "models",
            "what each model family, and a checkpoint on disk, can really do",
            "Describe model families and checkpoints: capabilities with their sources, and model graphs.",
            models_command.EXAMPLES,
        )
    )

    _add_call(
        command(
            "call",
            "play a telephone vendor to a server: a recording as the caller",
            "Play FILE as a caller through a vendor's protocol, in real time, and tell what the server sent.",
            CALL_EXAMPLES,
        )
    )

    plan_command.add_options(
        command(
            "plan",
            "what a model takes on a device, how many sessions fit, and what limits first",
            "Weights, keys and values, codec state, sessions by memory and by tick time, and the least that moving "
            "each state to another device takes.",
            plan_command.EXAMPLES,
        )
    )

    tenant_options.add_options(
        command(
            "tenant",
            "who may use a server: tenants, their keys and limits, and what is kept of them",
            "Tenants in a file that holds no key, only digests; and every piece of state of a tenant or a session, "
            "listed and deleted.",
            tenant_options.EXAMPLES,
        )
    )

    prepare = command(
        "prepare",
        "fetch and prepare the model files, once",
        "Fetch the model files, check them and prepare them in the cache. `serve` does it when it must.",
    )
    settings_module.add_options(prepare, "cache")

    codes = command(
        "codes",
        "decode what the agent said in a recorded session from its codes",
        "Print what the codes of a recorded session are: codec, utterances, bits a second. With --out decode them into "
        "the samples that were generated.",
    )
    codes.add_argument("recording", type=Path, help="folder of one session below the --record folder")
    codes.add_argument("--out", type=Path, metavar="FILE", help="write the decoded speech (WAV)")
    codes.add_argument("--json", action="store_true", help="print the result as JSON")

    add_replay_options(
        command(
            "replay",
            "run a recorded session again and compare, or ask what would have been otherwise",
            "Run the events of a recorded session through the core again and compare every effect. Prints "
            '"identical", or the first difference with its cause and ends with status 1. With alterations: the '
            "session as it would have gone, beside the recorded one.",
            REPLAY_EXAMPLES,
        )
    )
    add_explain_options(
        command(
            "explain",
            "why a recorded session was interrupted, and what made an answer late",
            "Tell each interruption of a recorded session with its times, each sound that was none, and each answer "
            "that came late with the stage that took the time.",
            EXPLAIN_EXAMPLES,
        )
    )
    add_sessions_options(
        command(
            "sessions",
            "list, show, delete and export recordings",
            "The recordings below the --record folder: list, show, rm, export, stats.",
            SESSIONS_EXAMPLES,
        ),
        default_recordings,
    )
    return parser


def _add_call(call: argparse.ArgumentParser) -> None:
    from .phone_peers import PEERS

    call.add_argument("file", type=Path, help="what the caller says (WAV, FLAC, Ogg; any rate)")
    call.add_argument("--vendor", choices=tuple(PEERS), default="twilio", help="whose protocol (default: twilio)")
    call.add_argument(
        "--url",
        default="ws://127.0.0.1:8787",
        metavar="URL",
        help="the server, without a path; tcp://HOST:PORT for audiosocket (default: ws://127.0.0.1:8787)",
    )
    call.add_argument(
        "--param", dest="parameters", action="append", default=[], metavar="NAME=VALUE", help="parameter of the call"
    )
    call.add_argument("--digits", default="", metavar="KEYS", help="keys to press after the recording")
    call.add_argument(
        "--interrupt-at",
        nargs=2,
        action="append",
        default=[],
        metavar=("SECONDS", "FILE"),
        help="play FILE as well, SECONDS after the first sound of the agent (repeatable)",
    )
    call.add_argument("--out", type=Path, metavar="FILE", help="write what the caller's ear got (WAV)")
    call.add_argument("--json", dest="as_json", action="store_true", help="print the result as JSON")


def _add_talk(talk: argparse.ArgumentParser) -> None:
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
        talk,
        *("engine", "script", "checkpoint", "random_weights", "llm_url", "llm_model", "llm_key"),
        *REMOTE_SETTINGS,
        *("voice_path", "record", "cache", "lead_ms", "frame_ms"),
    )
    talk.add_argument("--no-record", action="store_true", help=f"do not record (default: below {default_recordings()})")


def _version() -> str:
    try:
        return importlib.metadata.version("talkover")
    except importlib.metadata.PackageNotFoundError:
        return "of a source tree that is not installed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (2 for a mistake in it)."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    command = options.pop("command")
    try:
        if command in ("replay", "explain"):
            from . import replay_command

            return replay_command.replay(options) if command == "replay" else replay_command.explain_command(options)
        if command == "sessions":
            from .sessions_command import sessions

            return sessions(options)
        if command == "prepare":
            return _prepare(options)
        if command == "talk":
            return _talk(options)
        if command == "say":
            from .say import say

            return say(
                text=options["text"],
                out=options["out"],
                voice=options["voice"],
                speed=options["speed"],
                as_json=options["json"],
            )
        if command == "codes":
            from .codes_command import codes

            return codes(recording=options["recording"], out=options["out"], as_json=options["json"])
        if command == "call":
            from .call_command import call

            return call(**options)
        if command == "models":
            return models_command.models(options)
        if command == "tenant":
            from .tenant_command import tenant

            return tenant(options)
        if command == "plan":
            return plan_command.plan(options)
        if command == "doctor":
            from .doctor import doctor

            as_json = bool(options.pop("json"))
            return doctor(settings_module.from_environment(options), as_json=as_json)
        from .serve import serve

        return leave(serve(settings_module.from_environment(options)))
    except SettingsError as error:
        print(f"talkover {command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return leave(130)
    except BrokenPipeError:
        # Whoever reads our output wanted no more of it; nothing more may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


TALK_OPTIONS = ("file", "interrupt_at", "out", "url", "key", "turns", "instructions", "json")

REMOTE_SETTINGS = (
    *("engine_url", "engine_model", "engine_key", "engine_session"),
    *("tts_url", "tts_model", "tts_voice", "tts_key"),
    *("asr_url", "asr_model", "asr_languages", "asr_key"),
)

DOCTOR_SETTINGS = (
    "voice_path",
    "host",
    "port",
    "engine",
    "script",
    "checkpoint",
    "random_weights",
    "llm_url",
    "llm_model",
    "llm_key",
    *REMOTE_SETTINGS,
    "cache",
    "api_keys",
    "api_keys_file",
    "tenants_file",
    "insecure_no_auth",
    "tls_cert",
    "tls_key",
    "tls_self_signed",
    "record",
)

OWN_SERVER: dict[str, object] = {
    "host": "127.0.0.1",
    "port": 0,
    "api_keys": (),
    "api_keys_file": None,
    "tenants_file": None,
    "jwt_jwks": None,
    "jwt_issuer": None,
    "jwt_audience": None,
    "jwt_algorithms": (),
    "insecure_no_auth": False,
    "tls_cert": None,
    "tls_key": None,
    "tls_self_signed": False,
}
"""What holds for the server of one talk, whatever the environment says about servers for others."""


def _talk(options: dict[str, Any]) -> int:
    from .talk import talk

    own = {name: options.pop(name) for name in TALK_OPTIONS}
    if options.pop("no_record"):
        options["record"] = None
    elif own["url"] is None:
        options.setdefault("record", default_recordings())
    return talk(**own, settings=settings_module.from_environment({**OWN_SERVER, **options}))


def _prepare(options: dict[str, object]) -> int:
    from models.assets import main as prepare

    if "cache" in options:
        os.environ["TALKOVER_CACHE"] = str(options["cache"])

    def terminated(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    # By itself the signal would end this process and leave its download behind.
    signal.signal(signal.SIGTERM, terminated)
    return prepare([])


if __name__ == "__main__":
    sys.exit(main())
