"""Two simulated hosts: two torchrun agents on 127.0.0.1, two ranks each, one launch."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.sharding.test_embeddingbag import check_equal, plan_of
from tests.sharding.two_hosts import KINDS, LOCAL, RANKS, SETTINGS, case_of

HOSTS = RANKS // LOCAL
REPOSITORY = Path(__file__).parents[2]
DEADLINE_SECONDS = 250
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank saved."""
    folder = tmp_path_factory.mktemp("hosts")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(HOSTS)]
    command += ["--nproc-per-node", str(LOCAL), "--master-addr", "127.0.0.1"]
    command += ["--master-port", str(port), "--node-rank"]
    script = [str(REPOSITORY / "tests/sharding/two_hosts.py"), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    agents = []
    try:
        for host in range(HOSTS):
            log = (folder / f"{host}.log").open("w")
            agents.append(
                subprocess.Popen(
                    [*command, str(host), *script], env=environment, stdout=log, stderr=log
                )
            )
            log.close()
        codes = [agent.wait(DEADLINE_SECONDS) for agent in agents]
    finally:
        for agent in agents:
            agent.terminate()  # It ends its ranks.
            agent.wait(DEADLINE_SECONDS)
    assert codes == [0] * HOSTS, "\n".join(path.read_text() for path in folder.glob("*.log"))
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(RANKS)]


def test_hosts_are_those_of_torchrun(found):
    assert [result["local_sizes"] for result in found] == [(LOCAL, None)] * RANKS


@pytest.mark.parametrize(
    ("kind", "setting"), [(kind, setting) for kind in KINDS for setting in SETTINGS]
)
def test_five_steps_on_two_hosts_equal_unsharded_training(found, kind, setting):
    case = case_of(*setting)
    check_equal(case, plan_of(case, kind, RANKS), [result[kind, setting] for result in found])


@pytest.mark.parametrize("way", [0, 1], ids=["vectors", "gradients"])
def test_one_sum_of_a_host_crosses_in_place_of_one_a_rank(found, way):
    crossed = {
        name: sum(result[name][way] for result in found)
        for name in ("reduced", "unreduced", "flat row_wise")
    }
    # 4 examples a rank, 48 columns of float32, to the 2 ranks of the other host.
    assert crossed["reduced"] == 4 * 48 * 4 * 2
    assert crossed["reduced"] <= 1.05 / LOCAL * crossed["unreduced"]
    assert crossed["reduced"] <= 1.05 / (HOSTS * LOCAL) * crossed["flat row_wise"]
