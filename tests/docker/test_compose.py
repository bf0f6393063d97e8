"""compose.yaml, and what it mounts into Prometheus and Grafana."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docker.files import DOCKER, documents, one, parse, stages

COMPOSE = DOCKER / "compose.yaml"
SERVICES = documents(COMPOSE)[0]["services"]
PINNED = r"[\w./-]+:v?\d+\.\d+\.\d+"


def seconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)s", text)
    assert match
    return int(match[1])


def check(file: Path) -> subprocess.CompletedProcess[str]:
    """Against the schema of the Compose specification, as it comes with the tool."""
    tool = Path(sys.executable).parent / "check-jsonschema"
    return subprocess.run(
        [tool, "--builtin-schema", "vendor.compose-spec", file],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_it_is_what_compose_reads():
    done = check(COMPOSE)
    assert done.returncode == 0, done.stdout


def test_what_compose_does_not_read_is_noticed(tmp_path):
    changed = documents(COMPOSE)[0]
    changed["services"]["server"]["read_olny"] = True
    bad = tmp_path / "compose.yaml"
    bad.write_text(yaml.safe_dump(changed))
    done = check(bad)
    assert done.returncode == 1
    assert "read_olny" in done.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name):
    assert re.fullmatch(PINNED, SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_on_loopback_alone(name):
    assert SERVICES[name]["ports"]
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_may_gain_rights(name):
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]


def test_what_is_mounted_is_there():
    named = set(documents(COMPOSE)[0]["volumes"])
    for service in SERVICES.values():
        for mount in service["volumes"]:
            source = mount.replace("${REPOSITORY:-../repository}", "..").split(":")[0]
            assert source in named or (DOCKER / source).exists(), mount


def test_the_server_is_given_time_to_drain():
    server = SERVICES["server"]
    parsed = parse(server["command"])
    assert seconds(server["stop_grace_period"]) >= parsed.drain_timeout_seconds + 5
    (hard_stop,) = re.findall(r"hard-stop-after (\d+)s", (DOCKER / "haproxy.cfg").read_text())
    assert seconds(SERVICES["proxy"]["stop_grace_period"]) > int(hard_stop)


def test_the_server_is_found_by_its_health_check_and_by_prometheus():
    server = SERVICES["server"]
    parsed = parse(server["command"])
    image = stages(DOCKER / server["build"]["dockerfile"].removeprefix("docker/"))[-1]
    assert f":{parsed.metrics_port}/healthz" in one(image, "HEALTHCHECK").rest
    (job,) = documents(DOCKER / "prometheus.yml")[0]["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"server:{parsed.metrics_port}"]}]
    assert [port.rpartition(":")[2] for port in server["ports"]] == [str(parsed.metrics_port)]


def test_clients_connect_to_the_proxy_of_the_server():
    port = parse(SERVICES["server"]["command"]).port
    proxy = SERVICES["proxy"]
    assert proxy["environment"] == {"LISTEN": f":{port}", "SERVER": f"server:{port}"}
    assert proxy["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_the_server_writes_to_temporary_files_alone():
    server = SERVICES["server"]
    assert server["read_only"] is True
    (tmp,) = server["tmpfs"]
    assert tmp.partition(":")[0] == "/tmp"
    assert all(mount.endswith(":ro") for mount in server["volumes"])


def test_grafana_finds_prometheus_and_the_dashboard():
    mounts = dict(mount.split(":")[:2] for mount in SERVICES["grafana"]["volumes"])
    (source,) = documents(DOCKER / "grafana/provisioning/datasources/prometheus.yaml")[0][
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    (provider,) = documents(DOCKER / "grafana/provisioning/dashboards/embershard.yaml")[0][
        "providers"
    ]
    assert provider["options"]["path"] == mounts["./grafana/dashboards"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{mounts['./grafana/dashboards']}/embershard.json"
    assert (DOCKER / "grafana/dashboards/embershard.json").exists()
