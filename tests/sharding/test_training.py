"""Training runs on several ranks."""

import io
import re
from contextlib import redirect_stdout
from functools import partial

import numpy as np
import pytest
import torch

from embershard.commands.train import _show_plan
from embershard.errors import ConfigError
from embershard.planner import compare
from embershard.training import dry_run, load_checkpoint, train
from embershard.training.setup import set_up
from tests.cases import cases
from tests.sharding.training_cases import sharded_config, train_run
from tests.training.runs import dataset


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def on_2_ranks(workers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "two"
    return folder, workers.run(2, train_run, folder, "table_wise")


def test_ranks_agree_on_the_result_and_with_one_process(on_2_ranks, tmp_path):
    _, results = on_2_ranks
    assert not isinstance(results[0], str), results
    (result, weights), (other, _) = results
    assert (result.valid, result.test, result.best_step) == (
        other.valid,
        other.test,
        other.best_step,
    )
    alone = train(sharded_config(tmp_path / "one", "table_wise", dense_optimizer="adam"), dataset())
    assert alone.best_step == result.best_step
    assert alone.test.auc == pytest.approx(result.test.auc, abs=1e-4)
    assert alone.valid.auc == pytest.approx(result.valid.auc, abs=1e-4)
    state = load_checkpoint(alone.checkpoint).module.state_dict()
    for name, weight in weights.items():
        torch.testing.assert_close(state[name], weight, rtol=1e-3, atol=1e-4)


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(workers, on_2_ranks, tmp_path):
    _, ((result, weights), _) = on_2_ranks
    folder = tmp_path / "run"
    assert workers.run(2, train_stopped, folder, "table_wise") == [None, None]
    resumed = workers.run(2, train_resumed, folder, "table_wise")
    for outcome, state in resumed:
        assert (outcome.valid, outcome.test, outcome.steps) == (
            result.valid,
            result.test,
            result.steps,
        )
        assert same(state, weights)


def test_a_run_on_2_ranks_resumes_on_1(workers, tmp_path):
    folder = tmp_path / "run"
    assert workers.run(2, train_stopped, folder, "row_wise") == [None, None]
    ((result, _),) = workers.run(1, train_resumed, folder, "row_wise")
    whole = train(sharded_config(tmp_path / "one", "row_wise", dense_optimizer="adam"), dataset())
    assert result.steps == whole.steps
    assert result.test.auc == pytest.approx(whole.test.auc, abs=1e-3)


def test_an_automatic_plan_is_the_same_on_all_and_told_on_rank_0(workers, tmp_path):
    (result, report), (other, other_report) = workers.run(2, train_planned, tmp_path / "run", {})
    assert (result.valid, result.test) == (other.valid, other.test)
    assert other_report is None
    assert len(report.ranks) == 2
    assert {table.table for table in report.tables} == {"user", "history", "item"}
    assert report.bound_seconds > 0
    assert other.measured is None
    comparison = compare(tmp_path / "run")
    assert comparison == result.measured
    assert comparison.steps == result.steps
    assert all(part.lookup > 0 and part.update > 0 for part in comparison.measured)
    assert all(part.lookup > 0 and part.update > 0 for part in comparison.estimated)
    assert comparison.step.estimated == report.busiest_seconds + report.common_seconds
    assert comparison.step.measured > max(part.lookup + part.update for part in comparison.measured)


def train_resumed(env, folder, kind):
    return train_run(env, folder, kind, resume=True)


def train_stopped(env, folder, kind):
    return train_run(env, folder, kind, stop_at=38)


def test_the_last_checkpoints_stay_beside_the_best(on_2_ranks):
    folder, ((result, _), _) = on_2_ranks
    last = sorted(int(path.name) for path in (folder / "last").iterdir())
    assert last == [42, 49]
    others = [path.name for path in folder.iterdir() if path.name != "last"]
    assert str(result.best_step) in others
    assert not list(folder.glob(".*"))


def test_a_rank_with_another_configuration_is_one_message_on_all(workers, tmp_path):
    first, second = workers.run(2, train_other_seed, tmp_path / "run")
    assert (
        first
        == second
        == (
            "rank 1: expected the configuration and data of rank 0: training.seed = 0, "
            "got training.seed = 1"
        )
    )


def train_other_seed(env, folder):
    return train_run(env, folder, "row_wise", seed_of_rank_1=1)


def test_settings_that_changed_are_refused_when_resuming(workers, tmp_path):
    folder = tmp_path / "run"
    workers.run(1, train_stopped, folder, "row_wise")
    message = r"last/35 to be of a run with training.dense_optimizer = 'adagrad', got 'adam'"
    with pytest.raises(ConfigError, match=message):
        train(sharded_config(folder, "row_wise", seed=3), dataset(), resume=True)


@cases(
    ("tables", "message"),
    {
        "no": ({"usr": "row_wise"}, "sharding.tables.usr': expected a pattern that"),
        "missing": ({"user": "row_wise"}, "fits table 'item', got ['user']"),
    },
)
def test_patterns_that_do_not_fit_are_refused(workers, tmp_path, tables, message):
    (error,) = workers.run(1, train_by, tmp_path / "run", {"tables": tables})
    assert message in error


def test_a_plan_for_another_world_size_is_one_message_on_all(workers, tmp_path):
    file = tmp_path / "plan.json"
    setup = set_up(sharded_config(tmp_path / "run", "row_wise"), dataset(), None)
    setup.plan.save(file)
    results = workers.run(2, train_by, tmp_path / "run", {"plan": str(file)})
    message = f"key 'sharding.plan': {file}: rank 0: plan: module "
    assert results[0] == results[1]
    assert results[0].startswith(message)
    assert results[0].endswith(": expected a plan for world size 2, got one for world size 1")


def train_by(env, folder, sharding):
    """Error message of a run with this ``[sharding]`` section, or an empty text."""
    run = sharded_config(folder, "row_wise")
    changed = run.model_dump(mode="json", exclude_unset=True) | {"sharding": sharding}
    try:
        train(type(run).model_validate(changed), dataset(), env=env)
    except ConfigError as error:
        return str(error)
    return ""


@cases(
    ("sharding", "message"),
    {
        "cap": ({"memory_bytes": 100}, " short: tables and buffers need at least "),
        "file": ({"machine": "no.json"}, "'sharding.machine': no.json: expected a"),
        "off": ({"plan": None, "memory_bytes": 9}, "expected none without plan ="),
    },
)
def test_an_impossible_automatic_plan_is_one_message_on_all(workers, tmp_path, sharding, message):
    first, second = workers.run(2, train_planned, tmp_path / "run", sharding)
    assert message in first
    assert first == second


def train_planned(env, folder, sharding):
    run = sharded_config(folder, "row_wise", epochs=1)
    changed = run.model_dump(mode="json", exclude_unset=True) | {
        "sharding": {"plan": "auto"} | sharding
    }
    reports = []
    try:
        result = train(
            type(run).model_validate(changed), dataset(), env=env, planned=reports.append
        )
    except ConfigError as error:
        return str(error)
    return result, reports[0] if reports else None


def test_a_table_of_an_automatic_plan_is_explained_on_rank_0(workers, tmp_path):
    printed, other_printed = workers.run(2, explain_planned, tmp_path / "run", "item")
    assert re.search(r"^sparse\S*\.item: \w+ x \d+ on rank ", printed, re.M), printed
    assert "| other cut | ms |" in printed
    assert other_printed == ""


def test_a_table_missing_in_a_plan_is_one_message_on_all(workers, tmp_path):
    first, second = workers.run(2, explain_planned, tmp_path / "run", "nobody")
    assert re.search(r"explain: expected a table of the plan \(.*item.*\), got 'nobody'", first)
    assert first == second


def explain_planned(env, folder, table):
    run = sharded_config(folder, "row_wise", epochs=1)
    changed = run.model_dump(mode="json", exclude_unset=True) | {"sharding": {"plan": "auto"}}
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            dry_run(
                type(run).model_validate(changed),
                dataset(),
                env=env,
                planned=partial(_show_plan, html_file=None, table=table),
            )
    except ConfigError as error:
        return str(error)
    return printed.getvalue()


def with_nan_on_rank_1(env, folder):
    data = dataset()
    if env.rank == 1:
        data.train.dense[:] = np.nan
    with pytest.raises(ConfigError) as raised:
        train(sharded_config(folder, "row_wise"), data, env=env)
    return str(raised.value)


def test_a_loss_that_is_not_finite_names_the_rank(workers, tmp_path):
    assert set(workers.run(2, with_nan_on_rank_1, tmp_path)) == {
        "training: step 1: expected a finite loss, got nan (from rank 1); "
        "try smaller learning rates"
    }
