"""What holds for every test, and the server that many of them speak to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import ServerProcess, free_port

# On a busy machine anything takes long: no example is judged by the clock, neither its making nor its run.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def audiosocket_port() -> int:
    """Where `speaking_server` takes calls of AudioSocket."""
    return free_port()


@pytest.fixture(scope="session")
def speaking_server(audiosocket_port: int) -> Iterator[ServerProcess]:
    """`talkover serve` with the embedded engine: for everybody who speaks to it and leaves it as they found it."""
    with ServerProcess("embedded", arguments=["--audiosocket-port", str(audiosocket_port)]) as process:
        yield process
