"""The end of a pod in the order of the manifest, while clients call two pods in turn."""

import signal

import grpc
import pytest

from tests.attack.proxy import proxy
from tests.docker.test_kubernetes import POD
from tests.serving.failures.busy import (
    body,
    export_heavy,
    predictor,
    run_long,
    serving_heavy,
    until,
)

pytestmark = pytest.mark.needs_proxy
CALL_SECONDS = 60
OPTIONS = [("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}')]


def end_order():
    """Names of containers in the order in which they receive SIGTERM or the image's STOPSIGNAL.
    Sidecars come last."""
    ends = {}
    for container in POD["containers"]:
        sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        ends[container["name"]] = sleep.get("seconds", 0)
    sidecars = [
        initcontainer["name"]
        for initcontainer in POD["initContainers"]
        if "restartPolicy" in initcontainer
    ]
    return [*sorted(ends, key=ends.get), *reversed(sidecars)]


def test_a_client_of_two_pods_sees_no_error_when_one_ends(tmp_path):
    repository = export_heavy(tmp_path)
    with (
        serving_heavy(repository) as server,
        serving_heavy(repository) as other,
        proxy(server.address) as (process, address),
        proxy(other.address) as (_, other_address),
        grpc.insecure_channel(address) as direct,
        grpc.insecure_channel(f"ipv4:{address},{other_address}", options=OPTIONS) as channel,
    ):
        predict, small = predictor(channel), body(1)

        def is_spread():
            predict(small, timeout=CALL_SECONDS, wait_for_ready=True)
            return min(count(server), count(other)) > 0

        def count(pod):
            return pod.metrics().total("embershard_requests")

        until(is_spread)
        under_way = run_long(server, direct, timeout=CALL_SECONDS)
        for name in end_order():
            if name == "proxy":
                process.send_signal(signal.SIGUSR1)  # The image's STOPSIGNAL.
                before = count(other)
                # After the proxy's GOAWAY all calls go to the other pod.
                until(lambda: predict(small, timeout=CALL_SECONDS) and process.poll() is not None)
                assert count(other) > before
            elif name == "server":
                server.stop()
                for _ in range(20):
                    predict(small, timeout=CALL_SECONDS)
        assert under_way.result()
