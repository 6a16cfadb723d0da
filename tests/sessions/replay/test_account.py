"""What happened in a session, told with its times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sessions.core.effects import AdmitFrame, Effect, Notify
from sessions.core.events import CarrierAttached, Event, PlaybackReported, TimerDue
from sessions.core.fence import Fence
from sessions.core.notices import ResponseOpened, ResponseView
from sessions.core.timeline import from_ms
from sessions.replay.account import Account, account
from sessions.replay.explain import NoSuchInterruption, explain
from sessions.replay.reader import Recording, Step
from sessions.replay.statistics import figures, percentile

from .talks import CONFIG, interrupted


def told(folder: Path) -> Account:
    recording = Recording(folder)
    return account(recording.manifest.config, recording.steps())


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interrupted(tmp_path_factory.mktemp("talk"), cough=True)


def test_an_interruption_is_told_from_its_onset_to_what_the_history_keeps(talk: Path) -> None:
    one = told(talk)
    (cut,) = [cut for cut in one.interruptions if cut.cause == "barge_in"]
    assert cut.onset == from_ms(3500)
    assert cut.crossed == cut.held == from_ms(3520)
    assert cut.decided == from_ms(3700)
    assert cut.flushed == cut.decided
    assert "200 ms of speech" in cut.why
    # Asked at 2.1 s, held by the cough for 0.2 s on a carrier that does not pace.
    assert cut.heard is not None
    assert from_ms(1300) <= cut.heard <= from_ms(1620)
    assert cut.heard_by == "model"
    assert cut.heard_text == cut.kept
    assert cut.said == "what is the time"
    words = cut.heard_text.split()
    assert words == [f"w{number}" for number in range(len(words))]
    assert (len(words) + 1) * from_ms(200) > cut.heard >= len(words) * from_ms(200) - from_ms(200)


def test_a_cough_is_told_as_no_interruption(talk: Path) -> None:
    (overlap,) = told(talk).overlaps
    assert (overlap.onset, overlap.held) == (from_ms(3000), from_ms(3020))
    assert from_ms(200) < overlap.resumed - overlap.held < from_ms(300)


def test_what_kept_an_answer_waiting_sums_up_to_its_latency(talk: Path) -> None:
    first, second = told(talk).answers
    for answer in (first, second):
        assert answer.latency == sum(answer.parts().values()) > 0
    assert first.speech_end == from_ms(1500)
    assert (first.parts()["asr"], first.parts()["talker"]) == (from_ms(200), from_ms(300))
    assert first.status == "cancelled"
    assert second.status == "completed"
    assert first.user == second.user == "what is the time"


def test_an_answer_was_heard_where_the_least_late_report_has_it() -> None:
    fence, ms = Fence("s", 1, 0), from_ms(1)

    def step(now: int, event: Event, *effects: Effect) -> Step:
        return Step(1, now * ms, event, list(effects), None, None)

    def heard(*reports: tuple[int, int]) -> float:
        """Of an answer that was placed at 1 s, in ms. `reports`: time and position in ms."""
        frame = AdmitFrame(fence, 0, "r", "i", 0, 900 * ms, 1000 * ms, "r", 0)
        opened = Notify(ResponseOpened(ResponseView("r", "in_progress", "audio")))
        steps = [step(0, CarrierAttached(paced=True, delay=60 * ms)), step(1000, TimerDue("pump"), opened, frame)]
        steps += [step(now, PlaybackReported("r", position * ms)) for now, position in reports]
        (answer,) = account(CONFIG, iter(steps)).answers
        assert answer.heard is not None
        return answer.heard / ms

    assert heard() == 1060
    assert heard((1200, 80)) == 1120
    assert heard((1200, 80), (1210, 120)) == 1090
    # After a pause, and long after it was over.
    assert heard((1200, 80), (2500, 700), (9000, 900)) == 1120


def test_the_explanation_names_every_time_and_the_slow_stage(tmp_path: Path) -> None:
    one = told(interrupted(tmp_path, delay=1.2))
    text = explain(one)
    assert "most of it: talker" in text
    assert "late answer" in text
    assert "talker 1200 ms" in text
    assert "interruption 1" in explain(one, 1)
    assert "late answer" not in explain(one, 1)
    assert "late answer" not in explain(one, late=from_ms(5000))
    with pytest.raises(NoSuchInterruption, match="numbered from 1"):
        explain(one, 99)


def test_figures_of_a_folder_count_its_sessions(tmp_path: Path) -> None:
    for number in range(2):
        interrupted(tmp_path / str(number), cough=True).rename(tmp_path / f"s{number}")
        (tmp_path / str(number)).rmdir()
    (tmp_path / "s0" / "manifest.json").read_text()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text('{"version": 2}')
    total = figures(tmp_path)
    assert (total.sessions, total.unreadable) == (2, 1)
    assert (total.interruptions, total.false, total.overlaps, total.answers) == (2, 0, 2, 4)
    assert total.talk_over == 2 * from_ms(200)
    plain = total.plain()
    assert plain["latency_ms"] == {"count": 4, "median": 580.0, "p95": 580.0}
    assert "interruptions 2" in str(total)


def test_percentiles_are_by_nearest_rank() -> None:
    values = list(range(1, 101))
    assert [percentile(values, share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 50, 95, 100]
    assert percentile([7], 0.95) == 7


def test_an_account_depends_on_no_hash(talk: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sessions.replay.reader import Recording; "
        "from sessions.replay.account import account; r = Recording(Path(sys.argv[1])); "
        "print(account(r.manifest.config, r.steps()))"
    )
    outs = {
        subprocess.run(
            [sys.executable, "-c", code, str(talk)],
            cwd=Path(__file__).parents[3],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outs) == 1


def test_the_configuration_of_the_talk_is_the_usual_one() -> None:
    assert CONFIG.turns is not None
    assert CONFIG.turns.commit_ms == 200
