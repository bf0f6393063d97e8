"""A dry run refuses what a run refuses, says what the run would do, and writes nothing."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from embershard.errors import ConfigError, InputError
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.training import dry_run, train
from embershard.training.config import ShardingConfig
from embershard.training.dry_run_report import rank_memory
from embershard.training.placement import plan_of
from embershard.training.setup import set_up
from tests.cases import cases, refused
from tests.training.runs import config, dataset, saving

DATA = dataset(examples=500)


def test_says_what_the_run_would_do_and_writes_nothing(tmp_path):
    estimates = dry_run(config(tmp_path / "run"), DATA)
    text = estimates.to_text()
    assert f"{len(DATA.train.labels)} training" in text
    assert "at most 14, 7 an epoch, of 64 examples" in text  # 400 / 64 rounded up, twice
    assert f"{tmp_path}/run: begins anew" in text
    assert "sparse_arch.embedding_bag_collection.item | 40 | 4 | table_wise x 1 | 0 |" in text
    assert estimates.memory[0].tables == (60 + 30 + 40) * 4 * 4
    assert estimates.memory[0].state == (60 + 30 + 40) * 4  # a float for each row
    assert not list(tmp_path.iterdir())


def test_a_run_that_would_resume_says_after_which_step(tmp_path):
    settings = saving(tmp_path / "run")
    train(settings, DATA)
    before = sorted(tmp_path.rglob("*"))
    assert dry_run(settings, DATA, resume=True).step == 10
    assert "resumes after step 10" in dry_run(settings, DATA, resume=True).to_text()
    assert dry_run(settings, DATA, overwrite=True).step == 0
    with refused(ConfigError, "earlier run"):
        dry_run(settings, DATA)
    other = settings.model_copy(update={"training": config("x", batch_size=32).training})
    with refused(ConfigError, "training.batch_size = 32, got 64"):
        dry_run(other, DATA, resume=True)
    assert sorted(tmp_path.rglob("*")) == before


def without_likes(data):
    return replace(data, test=replace(data.test, labels=np.zeros_like(data.test.labels)))


@cases(
    ("settings", "data", "place"),
    {
        "id-dropout": ({"id_dropout": {"nobody": 0.5}}, DATA, "'training.id_dropout.nobody'"),
        "labels": ({}, without_likes(DATA), "the test split"),
    },
)
def test_refuses_what_a_run_refuses(settings, data, place, tmp_path):
    for run in (dry_run, train):
        with refused(InputError, place):
            run(config(tmp_path / run.__name__, **settings), data)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with refused(ConfigError, tmp_path / "file"):
        dry_run(config(tmp_path / "file/run"), DATA)


@cases(
    ("sharding", "key"),
    {
        "machine": ({"plan": "auto", "machine": "nope.json"}, "machine"),
        "machine-without-auto": ({"machine": "nope.json"}, "machine"),
        "pattern": ({"tables": {"usr": "row_wise", "*": "table_wise"}}, "tables.usr"),
    },
)
def test_one_process_refuses_a_sharding_section_that_ranks_would(tmp_path, sharding, key):
    settings = config(tmp_path).model_copy(update={"sharding": ShardingConfig(**sharding)})
    with refused(ConfigError, f"'sharding.{key}'"):
        dry_run(settings, DATA)


def test_one_process_says_that_it_ignores_the_sharding_section(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # Set by another launcher.
    dry_run(config(tmp_path), DATA)
    assert not caplog.messages
    sharding = ShardingConfig(tables={"*": "row_wise"})
    dry_run(config(tmp_path).model_copy(update={"sharding": sharding}), DATA)
    assert caplog.messages == [
        "sharding: checked and ignored in one process; start it with torchrun --nproc-per-node N "
        "to cut tables"
    ]


def test_large_tables_go_first_to_the_host_with_fewest_values(tmp_path):
    sizes = {"rows": 12, "columns": 10, "rows_2": 4, "grid": 2}
    bags = EmbeddingBagCollection(
        [
            EmbeddingBagConfig(
                name=name, num_embeddings=rows, embedding_dim=8, feature_names=[name]
            )
            for name, rows in sizes.items()
        ],
        device="meta",
    )
    tables = {"rows*": "table_row_wise", "columns": "table_column_wise", "grid": "grid_shard"}
    settings = config(tmp_path).model_copy(update={"sharding": ShardingConfig(tables=tables)})
    plan = plan_of(settings, {"bags": bags}, world_size=4, local_size=2).plan["bags"]
    assert {name: cut.ranks for name, cut in plan.items()} == {
        "rows": [0, 1],
        "columns": [2, 3],
        "rows_2": [2, 3],
        "grid": [0, 1, 2, 3],
    }


def test_memory_of_two_ranks_counts_shards_replicas_and_vectors(tmp_path):
    tables = {"user": "row_wise", "history": "data_parallel", "item": "table_wise"}
    settings = config(tmp_path).model_copy(update={"sharding": ShardingConfig(tables=tables)})
    setup = set_up(settings, DATA, None)
    setup = replace(
        setup,
        env=SimpleNamespace(world_size=2),
        plan=plan_of(setup.config, setup.collections, world_size=2),
    )
    first, second = rank_memory(setup, {"user": 64, "history": 100, "item": 64})
    assert first.tables == (30 + 30 + 40) * 4 * 4
    assert second.tables == (30 + 30) * 4 * 4
    # A float for each row of fused tables. The replica has a gradient and Adagrad's state.
    assert first.state == (30 + 40) * 4 + 30 * 4 * 4 * 2
    assert second.state == 30 * 4 + 30 * 4 * 4 * 2
    # Ids and bags of three batches, of which two are in the pipeline. Vectors and gradients: of 64
    # examples for each table, and of 12 columns for the rank's own 32 examples.
    assert first.step == 3 * 8 * (32 + 64 + 2 * 64) + 2 * 4 * 64 * (4 + 4) + 2 * 4 * 32 * 12
    assert second.step == 3 * 8 * (32 + 64) + 2 * 4 * 64 * 4 + 2 * 4 * 32 * 12
    ((path, bags),) = setup.collections.items()
    weighted = EmbeddingBagCollection(bags.embedding_bag_configs(), is_weighted=True, device="meta")
    setup = replace(setup, collections={path: weighted})
    with_weights, _ = rank_memory(setup, {"user": 64, "history": 100, "item": 64})
    assert with_weights.step == first.step + 3 * 4 * (32 + 64)
