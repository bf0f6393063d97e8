"""Runs on request rows have the losses of runs on impression rows, on one rank and on two."""

from dataclasses import dataclass

import pytest

from embershard.data import Dataset, Split
from embershard.models import DINConfig, DLRMConfig, SASRecConfig, TwoTowerConfig
from embershard.models.two_tower import Tower
from embershard.training import RunConfig, train
from tests.cases import cases
from tests.data.request_files import TASKS, both, expanded, request_table

CLICK = {"click": TASKS["click"]}
DLRM = DLRMConfig(embedding_dim=4, dense_layers=(4,), over_layers=(8, 1))
MODELS = {
    "dlrm": (DLRM, TASKS),
    "din": (DINConfig(embedding_dim=4, over_layers=(8, 1)), TASKS),
    "sasrec": (SASRecConfig(embedding_dim=4, over_layers=(8, 1)), TASKS),
    "two-tower": (TwoTowerConfig(embedding_dim=4, tower_layers=(8, 4)), CLICK),
    "in-batch": (
        TwoTowerConfig(embedding_dim=4, tower_layers=(8, 4), loss="in_batch", item="item"),
        CLICK,
    ),
}


@dataclass(frozen=True)
class Impressions:
    """Batches of a split of request rows, expanded to one list for each example and key."""

    split: Split

    def __getattr__(self, name):
        return getattr(self.split, name)

    def __len__(self):
        return len(self.split)

    def batches(self, **options):
        return map(expanded, self.split.batches(**options))


class ImpressionsDataset(Dataset):
    def digest(self):
        return "impressions"


def as_impressions(data):
    splits = {name: Impressions(getattr(data, name)) for name in ("train", "valid", "test")}
    return ImpressionsDataset(name="x", schema=data.schema, tables=data.tables, **splits)


def data_of(folder, tasks=TASKS):
    return both(folder, request_table(400), tasks, row_group_size=60, shuffle_rows=50)


def run_of(folder, data, model=DLRM, tasks=TASKS, **training):
    settings = {"batch_size": 48, "epochs": 1, "evaluate_every_steps": 10, "threads": 1}
    settings |= {"dense_learning_rate": 0.003, "table_learning_rate": 0.01}
    return RunConfig(
        data=data.train.config,
        tasks=tasks,
        model=model,
        training=settings | training,
        checkpoint={"folder": str(folder)},
    )


def losses_of(folder, data, run, env=None):
    """Losses after each step, and the result."""
    losses = []
    run = run.model_copy(
        update={"checkpoint": run.checkpoint.model_copy(update={"folder": str(folder)})}
    )
    result = train(run, data, env=env, progress=lambda now: losses.append(now.loss))
    return losses, result


@cases(("model", "tasks"), MODELS)
def test_losses_equal_those_of_impression_rows(model, tasks, tmp_path):
    data, _ = data_of(tmp_path, tasks)
    run = run_of(tmp_path, data, model, tasks)
    losses, result = losses_of(tmp_path / "a", data, run)
    expected, other = losses_of(tmp_path / "b", as_impressions(data), run)
    assert len(losses) == len(expected) == result.steps > 15
    assert losses == pytest.approx(expected, abs=1e-6)
    click, expected_click = result.test_tasks["click"], other.test_tasks["click"]
    assert click.gauc == pytest.approx(expected_click.gauc, abs=1e-3)
    assert click.log_loss == pytest.approx(expected_click.log_loss, abs=1e-6)


def test_towers_of_users_run_once_per_request(tmp_path):
    model, tasks = MODELS["two-tower"]
    data, _ = data_of(tmp_path, tasks)
    rows = []
    with pytest.MonkeyPatch.context() as patch:
        forward = Tower.forward

        def counted(tower, dense, pooled):
            vector = forward(tower, dense, pooled)
            rows.append((tower.keys, len(vector)))
            return vector

        patch.setattr(Tower, "forward", counted)
        losses_of(tmp_path / "a", data, run_of(tmp_path, data, model, tasks))
    users, items = (
        sum(count for keys, count in rows if keys == side)
        for side in (["user", "history"], ["item", "tags"])
    )
    assert 0 < users < 0.5 * items


def losses_on_ranks(env, folder, data, run, is_request):
    return losses_of(folder, data if is_request else as_impressions(data), run, env)[0]


@pytest.mark.parametrize("name", ["dlrm", "din", "in-batch"])
def test_losses_of_two_ranks_equal_those_of_impression_rows(workers, name, tmp_path):
    model, tasks = MODELS[name]
    data, _ = data_of(tmp_path, tasks)
    run = run_of(tmp_path, data, model, tasks)
    losses, same = workers.run(2, losses_on_ranks, tmp_path / "a", data, run, True)
    expected, _ = workers.run(2, losses_on_ranks, tmp_path / "b", data, run, False)
    assert losses == same
    assert len(losses) == len(expected) > 15
    assert losses == pytest.approx(expected, abs=1e-6)
