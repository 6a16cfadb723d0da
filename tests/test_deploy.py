"""What is meant for other machines: every setting in it exists, and what the dashboard shows is measured."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from server.metrics import LoopLag, prometheus
from server.settings import Settings, variable_of
from server.voice_metrics import VoiceMetrics
from sessions.core.timeline import from_ms
from sessions.counters import Counters
from sessions.figures import Answer, Interruption, Pause, ResponseEnded

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
TEXTS = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".json")
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VARIABLES = {variable_of(setting) for setting in dataclasses.fields(Settings)}
GAUGES = ("sessions", "mail_waiting", "calls", "unsent_bytes", "resident_bytes", "tasks")
"""Of `server.app`, which `tests/server/test_app.py` asks for."""


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_setting_that_is_named_exists(path: Path) -> None:
    named = set(re.findall(r"TALKOVER_[A-Z_]+[A-Z]", path.read_text()))
    assert named - {"TALKOVER_NAME"} <= VARIABLES


@pytest.mark.parametrize("path", [path for path in TEXTS if path.suffix == ".yaml"], ids=lambda path: path.name)
def test_yaml_can_be_read(path: Path) -> None:
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(path.read_text()))


def test_compose_waits_for_what_it_needs_and_names_files_that_are_there() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"talkover-1", "talkover-2", "proxy", "redis", "coturn", "prometheus", "grafana"}
    for name, service in services.items():
        for needed in service.get("depends_on", {}):
            assert needed in services, name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith("./") or (DEPLOY / source).exists(), volume
    for upstream in re.findall(r"server (\S+):8787", (DEPLOY / "nginx.conf").read_text()):
        assert upstream in services
    targets = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"][0]
    assert all(target.split(":")[0] in services for target in targets["targets"])


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_manifests_select_their_own_pods_and_ports(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    (deployment,) = [one for one in documents if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    ports = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    for service in [one for one in documents if one["kind"] == "Service"]:
        assert service["spec"]["selector"] == labels
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
    drains = [
        int(entry["value"])
        for container in pod["spec"]["containers"]
        for entry in container.get("env", ())
        if entry["name"] == "TALKOVER_DRAIN_S"
    ]
    assert all(drain + 10 < grace for drain in drains)


def test_the_dashboard_asks_for_what_is_measured() -> None:
    metrics = VoiceMetrics()
    answer = Answer("r", from_ms(10), from_ms(20), from_ms(20), (("words", from_ms(15)),), from_ms(30))
    ended = ResponseEnded("r", from_ms(40), "completed", "audio", (1, 1), False)
    metrics.figures("s", [answer, ended, Interruption("barge_in", 1, 9, 3, 5, 7), Pause(1, 2, 3, "")])
    text = metrics.text() + prometheus(Counters(), LoopLag(), dict.fromkeys(GAUGES, 0))
    measured = set(re.findall(r"^(talkover_\w+)[{ ]", text, re.MULTILINE))
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "talkover.json").read_text())
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            asked |= set(re.findall(r"talkover_\w+", target["expr"]))
    assert len(asked) > 10
    assert asked <= measured


@pytest.mark.wide
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    text = (DEPLOY / "prometheus.yml").read_text().replace("/tmp/key", str(tmp_path / "key"))
    (tmp_path / "key").write_text("k")
    (tmp_path / "prometheus.yml").write_text(text)
    subprocess.run(["promtool", "check", "config", str(tmp_path / "prometheus.yml")], check=True)


@pytest.mark.wide
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "talkover.service"
    unit.write_text((DEPLOY / "talkover.service").read_text().replace("/opt/talkover/bin/talkover", "/bin/true"))
    subprocess.run(["systemd-analyze", "verify", str(unit)], check=True)


@pytest.mark.wide
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    server = re.sub(r"server talkover-\d:", "server 127.0.0.1:", (DEPLOY / "nginx.conf").read_text())
    whole = f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; {server} }}"
    (tmp_path / "nginx.conf").write_text(whole)
    subprocess.run(["nginx", "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")], check=True)
