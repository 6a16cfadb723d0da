"""One call by streamdouble, as its steps say; what it got, and what it holds against the server."""

import asyncio
from pathlib import Path

from scenario import arguments, report
from streamdouble import api, g711
from streamdouble.chaos import Impairments
from streamdouble.scenario import parse
from streamdouble.session import SessionConfig


async def main() -> None:
    given = arguments()
    config = SessionConfig(
        custom_parameters=given.get("parameters", {}),
        impairments=Impairments(loss=given.get("loss", 0.0), jitter_ms=given.get("jitter_ms", 0.0)),
        quiet_period_s=1.5,
        response_timeout_s=20.0,
        chaos_seed=7,
    )
    steps = parse({"name": "call", "steps": given["steps"]}, base_dir=Path(given["folder"]))
    called = await api.run_scenario(given["url"], steps, config=config)
    result = called.result
    if given.get("reply"):
        Path(given["reply"]).write_bytes(g711.decode(result.audio_received).astype("<i2").tobytes())
    report(
        {
            "exit_code": called.exit_code,
            "violations": [str(one) for one in result.violations],
            "warnings": [str(one) for one in result.warnings],
            "unknown": result.unknown_events,
            "failed": result.failed_expectations,
            "sound_s": len(result.audio_received) / 8000,
            "marks": len(result.marks_received),
            "echoed": len(result.marks_echoed),
            "clears": result.clears_received,
            "dropped": result.frames_dropped,
            "timed_out": result.timed_out,
        }
    )


asyncio.run(main())
