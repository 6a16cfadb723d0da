"""What the emulated path does to frames, and that nothing remains of it."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
from itertools import groupby

import pytest

from tests.network.emulator import Conditions, Emulator, Way
from tests.network.namespaces import PREFIX, RUN, Namespace, NamespaceError, missing, sweep

WHY = missing()
possible = pytest.mark.skipif(WHY is not None, reason=str(WHY))


@pytest.mark.parametrize(
    ("field", "value"), [("delay_ms", -1), ("jitter_ms", float("nan")), ("loss", 1.5), ("burst", 0)]
)
def test_a_wrong_condition_is_refused_by_its_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        Conditions(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("burst", [1.0, 4.0])
def test_the_share_of_frames_that_is_said_is_lost_in_bursts_as_long_as_said(burst: float) -> None:
    way = Way(random.Random(5), Conditions(loss=0.1, burst=burst))
    lost = [way.loses() for _ in range(50_000)]
    assert sum(lost) / len(lost) == pytest.approx(0.1, abs=0.015)
    runs = [len(list(run)) for is_lost, run in groupby(lost) if is_lost]
    # Losses that do not know of each other follow each other too, now and then: 1 / (1 - loss).
    assert sum(runs) / len(runs) == pytest.approx(burst if burst > 1 else 1 / 0.9, rel=0.15)


def test_jitter_is_as_wide_as_said_and_around_the_delay() -> None:
    way = Way(random.Random(5), Conditions(delay_ms=100, jitter_ms=20))
    taken = sorted(way.arrival(0.0) for _ in range(10_000))
    assert taken[5_000] == pytest.approx(0.100, abs=0.001)
    assert sum(0.080 <= one <= 0.120 for one in taken) / len(taken) == pytest.approx(0.954, abs=0.01)


def test_frames_that_must_not_overtake_wait_for_the_one_before() -> None:
    way = Way(random.Random(5), Conditions(delay_ms=40, jitter_ms=40, reorder=False))
    at = [way.arrival(number * 0.005) for number in range(1000)]
    assert at == sorted(at)


def test_nothing_passes_a_cut() -> None:
    way = Way(random.Random(5), Conditions(cut=True))
    assert all(way.loses() for _ in range(100))


@possible
def test_a_namespace_is_gone_after_a_failure_and_the_machines_own_network_was_not_touched() -> None:
    def own() -> str:
        return subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout

    before = own()
    made: list[Namespace] = []
    with contextlib.suppress(ZeroDivisionError), Namespace("one") as one, Namespace("two") as two:
        made += [one, two]
        one.join("near", two, "far")
        assert "near" in one.ip("-o", "link")
        assert own() == before
        made[0].run(lambda: 1 // 0)
    for gone in made:
        assert not (RUN / gone.name).exists()
        with pytest.raises(NamespaceError, match=r"netns|namespace"):
            gone.ip("link")


@possible
def test_what_a_killed_run_left_behind_is_removed_by_the_next() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    name = f"{PREFIX}-{ended.pid}-0-test"
    subprocess.run(["ip", "netns", "add", name], check=True)
    left = subprocess.Popen(["ip", "netns", "exec", name, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert left.stdin is not None
    assert left.stdout is not None
    left.stdin.write(b"there\n")
    left.stdin.flush()
    assert left.stdout.readline() == b"there\n"
    with Namespace("mine") as mine:
        assert name in sweep()
        assert left.wait(timeout=10) == -signal.SIGKILL
        assert not (RUN / name).exists()
        assert (RUN / mine.name).exists()


@possible
def test_datagrams_pass_whole_until_the_path_is_cut_and_again_after_it() -> None:
    with Namespace("middle") as middle, Namespace("client") as near, Namespace("server") as far:
        near.join("near", middle, "left")
        far.join("near", middle, "right")
        near.ip("address", "add", "10.77.0.2/24", "dev", "near")
        far.ip("address", "add", "10.77.0.1/24", "dev", "near")

        def opened(address: str) -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((address, 0))
            made.settimeout(10)
            return made

        with (
            Emulator(middle, "left", "right") as path,
            near.run(lambda: opened("10.77.0.2")) as one,
            far.run(lambda: opened("10.77.0.1")) as other,
        ):
            one.sendto(b"first", other.getsockname())
            assert other.recv(100) == b"first"
            path.set(up=Conditions(cut=True))
            one.sendto(b"lost", other.getsockname())
            other.sendto(b"the other way", one.getsockname())
            assert one.recv(100) == b"the other way"
            counted = path.set(up=Conditions(delay_ms=1))
            assert counted["up"].lost == 1
            one.sendto(b"last", other.getsockname())
            assert other.recv(100) == b"last"
