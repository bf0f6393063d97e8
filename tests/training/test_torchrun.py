"""`embershard train` under torchrun: killed, stopped and restarted ranks, and access counts."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from embershard import Client, Server, ServerOptions
from embershard.client import Lists
from embershard.data import SyntheticConfig, planted_click_log, to_rows
from embershard.data.requests import client_requests
from embershard.errors import ExportError
from embershard.export import export_checkpoint
from embershard.package import Identity, Package, Schema
from embershard.sharding.held_tables import read_access_counts
from embershard.training import latest_checkpoint, load_checkpoint, score, train
from tests.cases import refused
from tests.training.runs import config

DEADLINE_SECONDS = 250
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FILE = """
[data]
name = "synthetic"
examples = 8000
[model]
embedding_dim = 8
dense_layers = [8]
over_layers = [8, 1]
[training]
batch_size = 128
epochs = 2
evaluate_every_steps = 20
warmup_steps = 20
count_accesses = true
threads = 1
[checkpoint]
folder = "{folder}"
last_every_steps = 15
[sharding.tables]
"user*" = "column_wise"
"*" = "row_wise"
"""
STEPS = 100


def start(folder, *options, train=(), rank_1_adds=""):
    """Starts torchrun with two ranks in a process group of its own."""
    folder.mkdir(exist_ok=True)
    file, text = folder / "run.toml", FILE.format(folder=folder / "run")
    file.write_text(text)
    command = [sys.executable, "-m", "embershard", "train", str(file), *train]
    if rank_1_adds:
        (folder / "run.toml.1").write_text(text + rank_1_adds)
        (folder / "run.toml.0").symlink_to(file)
        command = ["sh", "-c", f'exec {shlex.join(command)}."$RANK"']
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
    return subprocess.Popen(
        [sys.executable, *launch, "--no-python", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process):
    try:
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return output


def wait_for_checkpoint(last, step, process):
    """Waits for a checkpoint of this step or of a later one, since old ones are deleted."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not any(int(path.parent.name) >= step for path in last.glob("[0-9]*/training.json")):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline, f"no checkpoint in {last} after {DEADLINE_SECONDS} s"
        time.sleep(0.01)


def ranks_of(process):
    """Process ids of torchrun's children, by rank."""
    results = {}
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            environment = Path(f"/proc/{child}/environ").read_text()
            if rank := re.search(r"\0RANK=(\d+)\0", environment):
                results[int(rank[1])] = int(child)
    return results


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torchrun") / "whole"
    process = start(folder)
    return folder, finish(process), process.returncode


def test_one_rank_reports_the_result(uninterrupted):
    folder, output, code = uninterrupted
    assert code == 0, output
    for line in (f"all epochs after step {STEPS}", "validation  auc", "test        auc"):
        assert output.count(line) == 1, output
    assert sorted(path.name for path in (folder / "run/last").iterdir()) == ["75", "90"]


def test_a_dry_run_says_once_what_ranks_hold_and_writes_nothing(tmp_path):
    process = start(tmp_path / "dry", train=["--dry-run"])
    output = finish(process)
    assert process.returncode == 0, output
    assert output.count("dlrm on synthetic, 2 ranks") == 1, output
    assert re.findall(r"^\| (\d) \|", output, re.M) == ["0", "1"], output
    assert f"at most {STEPS}, 50 an epoch" in output
    assert [path.name for path in (tmp_path / "dry").iterdir()] == ["run.toml"]


def test_a_run_resumes_after_a_killed_rank_with_the_same_weights(uninterrupted, tmp_path):
    folder, expected, _ = uninterrupted
    # Torchrun polls every 5 s, so that rank 0 reports the failure before torchrun ends it.
    process = start(tmp_path / "killed", "--max-restarts", "1", "--monitor-interval", "5")
    wait_for_checkpoint(tmp_path / "killed/run/last", 30, process)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    output = finish(process)
    assert process.returncode == 0, output
    # Torchrun names the rank whose end it notices first: rank 1, or rank 0 on a busy machine.
    assert (
        len(re.findall(r"failed \(exitcode: (?:-9\) local_rank: 1|1\) local_rank: 0)", output)) == 1
    )
    assert "rank 0: a collective failed; rank 1 ended or did not enter it" in output
    (best,) = re.findall(r"checkpoint +\S+/run/(\d+)", expected)
    assert re.findall(r"checkpoint +\S+/run/(\d+)", output) == [best]
    states = [
        load_checkpoint(parent / "run" / best).module.state_dict()
        for parent in (folder, tmp_path / "killed")
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    counts = [
        read_access_counts(parent / "run" / best / "state")
        for parent in (folder, tmp_path / "killed")
    ]
    assert counts[0].keys() == counts[1].keys()
    assert all(torch.equal(counts[0][name], counts[1][name]) for name in counts[0])


def test_a_configuration_unreadable_to_a_rank_is_one_message(tmp_path):
    process = start(tmp_path / "unread", rank_1_adds="[data]")
    output = finish(process)
    assert process.returncode != 0
    assert output.count("rank 1: ") == output.count("Cannot declare ('data',) twice") == 1, output
    assert "exitcode: -" not in output  # No rank was ended by a signal.


def with_unknown_ids():
    """The trained model, and its schema. The last row of each table is now that of unknown ids."""
    checkpoint = load_checkpoint(os.environ["TRAINED"])
    sparse = [
        replace(feature, ids=Identity(rows=feature.ids.rows - 1, unknown="oov"))
        for feature in checkpoint.schema.sparse
    ]
    return checkpoint.module, Schema(dense=checkpoint.schema.dense, sparse=sparse)


def test_export_leaves_out_rows_that_training_seldom_looked_up(
    uninterrupted, tmp_path, monkeypatch
):
    best = latest_checkpoint(uninterrupted[0] / "run")
    monkeypatch.setenv("TRAINED", str(best))
    counts, pruned, out = read_access_counts(best / "state"), {}, tmp_path / "ranker/1"
    settings = {"min_accesses": 5, "pruned": pruned.update}
    export_checkpoint(best, out, model=f"{__name__}:with_unknown_ids", **settings)
    assert pruned.keys() == counts.keys()
    rows = {table.name: table.rows for table in Package.open(out).manifest.tables}
    for name, count in counts.items():
        known = count[:-1]  # The last row is that of unknown ids.
        assert pruned[name].rows_kept == int((known >= 5).sum())
        assert pruned[name].rows_dropped == int((known < 5).sum())
        assert rows[name.rpartition(".")[2]] == pruned[name].rows_kept + 1
    assert sum(table.rows_dropped for table in pruned.values()) > 0


def test_every_lookup_of_training_is_counted_once(uninterrupted):
    folder, _, _ = uninterrupted
    best = latest_checkpoint(folder / "run")
    counts = read_access_counts(best / "state")
    (items,) = (counts[name] for name in counts if "item" in name)
    assert int(items.sum()) == int(best.name) * 128  # one id an example


def test_pruning_without_counts_is_refused(tmp_path):
    data = planted_click_log(SyntheticConfig(examples=2000)).dataset
    result = train(config(tmp_path / "run"), data)
    with refused(ExportError, "min_accesses"):
        export_checkpoint(result.checkpoint, tmp_path / "ranker/1", min_accesses=2)


def test_a_restart_keeps_the_checkpoints_of_an_earlier_job(tmp_path):
    earlier = tmp_path / "stale/run"
    for step in ("60", "last/60"):
        (earlier / step).mkdir(parents=True)
        (earlier / step / "checkpoint.json").write_text("{}")
    before = sorted(earlier.rglob("*"))
    process = start(tmp_path / "stale", "--max-restarts", "1")
    output = finish(process)
    assert process.returncode != 0
    *attempts, _ = output.split("failed (exitcode: 1)")  # Torchrun logs this once for each attempt.
    assert len(attempts) == 2, output
    for attempt in attempts:
        assert attempt.count("holds checkpoints of an earlier run (60, last/60)") == 1, output
    assert sorted(earlier.rglob("*")) == before


@pytest.mark.parametrize("signaled", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_leaves_no_process(tmp_path, signaled):
    process = start(tmp_path / "stopped")
    wait_for_checkpoint(tmp_path / "stopped/run/last", 15, process)
    ranks = ranks_of(process)
    assert sorted(ranks) == [0, 1]
    process.send_signal(signaled)
    output = finish(process)
    assert process.returncode != 0, output
    words = len(re.findall("interrupted; |stopped; |a collective failed", output))
    if signaled is signal.SIGKILL:  # The ranks' store ends with torchrun, so both may print.
        assert 1 <= words <= 2, output
        assert "Traceback" not in output
    else:  # Both ranks stop at the same step and print one message.
        assert words == 1, output
        (saved,) = re.findall(r"stopped; .*the same command continues from (\S+)", output)
        assert max(int(path.name) for path in Path(saved).parent.iterdir()) == int(Path(saved).name)
    assert not any(is_running(pid) for pid in ranks.values())


def test_scores_of_the_server_are_those_of_the_trained_module(uninterrupted, tmp_path):
    folder, _, _ = uninterrupted
    export_checkpoint(folder / "run", tmp_path / "ranker/1", weights="fp32")
    test = planted_click_log(SyntheticConfig(examples=8000)).dataset.test
    expected = torch.sigmoid(score(load_checkpoint(folder / "run").module, to_rows(test))).numpy()
    options = ServerOptions(port=0, threads=1)
    with (
        Server(tmp_path, options=options) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        for request in islice(client_requests(test), 50):
            sparse = {
                name: Lists(lengths=feature.lengths, values=feature.values)
                for name, feature in request.sparse.items()
            }
            actual = client.predict("ranker", dense=request.dense, sparse=sparse)["score"]
            np.testing.assert_allclose(actual, expected[request.positions], rtol=1e-5, atol=1e-6)
