"""compose.yaml, and the files that it mounts into Prometheus and Grafana."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.files import DOCKER, documents, only_step, parse, stages

COMPOSE = DOCKER / "compose.yaml"
SERVICES = documents(COMPOSE)[0]["services"]


def seconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)s", text)
    assert match
    return int(match[1])


def test_the_file_follows_the_compose_specification():
    tool = Path(sys.executable).parent / "check-jsonschema"
    done = subprocess.run(
        [tool, "--builtin-schema", "vendor.compose-spec", COMPOSE],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_on_loopback_alone(name):
    assert SERVICES[name]["ports"]
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


def test_the_server_is_given_time_to_drain():
    server = SERVICES["server"]
    parsed = parse(server["command"])
    assert seconds(server["stop_grace_period"]) >= parsed.drain_timeout_seconds + 5
    (hard_stop,) = re.findall(r"hard-stop-after (\d+)s", (DOCKER / "haproxy.cfg").read_text())
    assert seconds(SERVICES["proxy"]["stop_grace_period"]) > int(hard_stop)


def test_health_check_and_prometheus_find_the_server():
    server = SERVICES["server"]
    parsed = parse(server["command"])
    image = stages(DOCKER / server["build"]["dockerfile"].removeprefix("docker/"))[-1]
    assert f":{parsed.metrics_port}/healthz" in only_step(image, "HEALTHCHECK").arguments
    (job,) = documents(DOCKER / "prometheus.yml")[0]["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"server:{parsed.metrics_port}"]}]
    assert [port.rpartition(":")[2] for port in server["ports"]] == [str(parsed.metrics_port)]


def test_clients_connect_to_the_proxy_of_the_server():
    port = parse(SERVICES["server"]["command"]).port
    proxy = SERVICES["proxy"]
    assert proxy["environment"] == {"LISTEN": f":{port}", "SERVER": f"server:{port}"}
    assert proxy["ports"] == [f"127.0.0.1:{port}:{port}"]
