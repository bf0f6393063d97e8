"""A run's TOML file is read strictly, and refused with line and key."""

from pathlib import Path

import pytest

from embershard.data import DataConfig, ParquetConfig, TaskConfig
from embershard.errors import ConfigError
from embershard.training import read_config
from tests.cases import cases

SMALLEST = """
[data]
name = "synthetic"

[checkpoint]
folder = "here"
"""


def read(text, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(text)
    return read_config(file)


def test_what_is_left_out_has_its_default(tmp_path):
    config = read(SMALLEST, tmp_path)
    assert config.data == DataConfig(name="synthetic", path=None, examples=None, seed=None)
    assert (config.model.name, config.model.embedding_dim) == ("dlrm", 16)
    assert (config.training.batch_size, config.training.seed, config.training.threads) == (
        512,
        0,
        0,
    )
    assert config.checkpoint.folder == "here"


def test_every_key_is_read(tmp_path):
    config = read(
        """
        [data]
        name = "synthetic"
        examples = 50
        seed = 6
        [model]
        name = "dlrm"
        embedding_dim = 8
        dense_layers = [4, 8]
        over_layers = [3, 1]
        [training]
        batch_size = 7
        epochs = 2
        table_optimizer = "sgd"
        table_learning_rate = 1
        dense_optimizer = "adam"
        dense_learning_rate = 0.5
        id_dropout = { user = 0.25 }
        evaluate_every_steps = 9
        patience = 3
        rank_at = 4
        warmup_steps = 4
        warmup_start = 0.5
        decay = "linear"
        decay_end = 0.25
        clip_norm = 2
        dense_dtype = "bf16"
        count_accesses = true
        seed = 11
        threads = 1
        [checkpoint]
        folder = "there"
        last_every_steps = 5
        keep_last = 3
        [sharding]
        plan = "auto"
        machine = "m.json"
        memory_bytes = 9
        tables = { user = "row_wise" }
        [tracking]
        tensorboard = "events"
        mlflow = "http://tracker"
        experiment = "clicks"
        run = "first"
        every_steps = 2
        """,
        tmp_path,
    )
    assert config.model_dump() == {
        "data": {
            "name": "synthetic",
            "path": None,
            "examples": 50,
            "seed": 6,
            "valid": None,
            "test": None,
            "min_count": None,
            "buckets": None,
        },
        "model": {
            "name": "dlrm",
            "embedding_dim": 8,
            "dense_layers": (4, 8),
            "over_layers": (3, 1),
        },
        "training": {
            "batch_size": 7,
            "epochs": 2,
            "table_optimizer": "sgd",
            "table_learning_rate": 1.0,
            "dense_optimizer": "adam",
            "dense_learning_rate": 0.5,
            "warmup_steps": 4,
            "warmup_start": 0.5,
            "decay": "linear",
            "decay_end": 0.25,
            "clip_norm": 2,
            "dense_dtype": "bf16",
            "count_accesses": True,
            "id_dropout": {"user": 0.25},
            "evaluate_every_steps": 9,
            "patience": 3,
            "rank_at": 4,
            "seed": 11,
            "threads": 1,
        },
        "tasks": {"score": {"label": None, "loss": "bce", "weight": 1.0, "mask": None}},
        "checkpoint": {"folder": "there", "last_every_steps": 5, "keep_last": 3},
        "sharding": {
            "tables": {"user": "row_wise"},
            "plan": "auto",
            "machine": "m.json",
            "memory_bytes": 9,
        },
        "tracking": {
            "tensorboard": "events",
            "mlflow": "http://tracker",
            "experiment": "clicks",
            "run": "first",
            "every_steps": 2,
        },
    }


def test_a_folder_is_a_path(tmp_path):
    config = read(SMALLEST.replace('"synthetic"', '"movielens"\npath = "~/ml"'), tmp_path)
    assert config.data == DataConfig(name="movielens", path=Path("~/ml"))


def test_the_example_that_the_demo_trains_is_read():
    file = Path(__file__).parents[2] / "examples/movielens/movielens.toml"
    config = read_config(file)
    assert config.training.id_dropout == {"user": 0.9, "zip3": 0.9}


PARQUET = """
[data]
name = "parquet"
files = ["clicks/*.parquet"]
[data.split]
by = "time"
column = "timestamp"
[data.dense.price]
null = 0.0
transforms = ["log1p", { clip = [0, 5.0] }, "standardize", { bucketize = [1.0, 2.0] }]
[data.sparse.item]
column = "item_id"
min_count = 2
[data.sparse.history]
table = "item"
min_count = 2
max_ids = 50
keep = "last"
[tasks.click]
label = "click"
[checkpoint]
folder = "here"
"""


def test_parquet_files_are_read_from_a_file(tmp_path):
    data = read(PARQUET, tmp_path).data
    assert isinstance(data, ParquetConfig)
    assert data.files == ("clicks/*.parquet",)
    assert (data.split.by, data.split.column, data.split.valid) == ("time", "timestamp", 0.1)
    assert data.dense["price"].transforms == (
        "log1p",
        {"clip": (0.0, 5.0)},
        "standardize",
        {"bucketize": (1.0, 2.0)},
    )
    assert list(data.sparse) == ["item", "history"]
    assert (data.sparse["item"].column, data.sparse["history"].max_ids) == ("item_id", 50)
    assert data.shuffle_rows == 262_144


@cases(
    ("old", "new", "message"),
    {
        "data": ("files =", "file =", ":4: key 'data.file': .*; did you mean 'files'[?]$"),
        "split": ("by =", "bye =", ":6: key 'data.split.bye': .*; did you mean 'by'[?]$"),
        "dense": (
            "null =",
            "nulls =",
            ":9: key 'data.dense.price.nulls': expected one of column, scope, null, transforms; "
            "did you mean 'null'[?]$",
        ),
        "sparse": (
            'column = "item_id"',
            'colum = "item_id"',
            ":12: key 'data.sparse.item.colum': expected one of column, .*; did you mean 'column'",
        ),
        "type": ("max_ids = 50", 'max_ids = "50"', ":17: key 'data.sparse.history.max_ids': .*int"),
        "transform": (
            '"log1p"',
            '"log"',
            ":10: key 'data.dense.price.transforms': expected 'log1p', 'standardize', .* with "
            "rising numbers, got 'log'$",
        ),
        "clip": ("[0, 5.0]", "[5.0, 0]", ":10: .*rising numbers, got {'clip': .5.0, 0.}$"),
        "two-standardize": ('"log1p"', '"standardize"', ":10: .*'standardize' at most once"),
        "no-column": (
            'column = "timestamp"',
            "",
            ":5: key 'data.split.column': expected a column with by = \"time\", got None",
        ),
        "files-and-column": (
            '"time"',
            '"files"',
            ":7: key 'data.split.column': expected none with by = \"files\", got 'timestamp'",
        ),
        "shares": (
            'column = "timestamp"',
            "column = 'time'\nvalid = 0.5\ntest = 0.5",
            ":9: key 'data.split.test': expected valid and test to be less than 1 together, "
            "and valid is 0.5, got 0.5",
        ),
        "share-beside-the-default": (
            'column = "timestamp"',
            "column = 'time'\nvalid = 0.95",
            ":8: key 'data.split.valid': expected valid and test to be less than 1 together, "
            "and test is 0.1 by default, got 0.95",
        ),
        "files-of-a-split-by-time": (
            'column = "timestamp"',
            "column = 'time'\ntest_files = ['a']",
            ":8: key 'data.split.test_files': expected none with by = \"time\"",
        ),
        "no-buckets": (
            'column = "item_id"\nmin_count = 2',
            'ids = "hash"',
            ":11: key 'data.sparse.item.buckets': expected a number of rows with ids = \"hash\"",
        ),
        "rows": (
            'column = "item_id"',
            "rows = 5",
            ":12: key 'data.sparse.item.rows': expected none with ids = \"vocabulary\", got 5",
        ),
        "min-count": (
            'column = "item_id"',
            'ids = "hash"\nbuckets = 4',
            ":14: key 'data.sparse.item.min_count': expected none with ids = \"hash\", got 2",
        ),
        "unknown": (
            'column = "item_id"\nmin_count = 2',
            'ids = "hash"\nbuckets = 4\nunknown = "zero"',
            ":[0-9]+: key 'data.sparse.item.unknown': expected none with ids = \"hash\", got",
        ),
        "vocabulary-of-no-table": (
            'table = "item"\nmin_count = 2',
            'vocabulary = "films"',
            ":[0-9]+: key 'data.sparse': expected a vocabulary of .*'item'.*, got 'films'",
        ),
        "vocabulary": (
            'table = "item"\nmin_count = 2',
            'vocabulary = "item"',
            ":[0-9]+: key 'data.sparse': expected the same min_count for inputs 'item' and "
            "'history' of vocabulary 'item'",
        ),
        "shared-table": (
            'table = "item"\nmin_count = 2',
            'table = "item"',
            ":[0-9]+: key 'data.sparse': expected the same min_count for inputs 'item' and "
            "'history' of table 'item'",
        ),
        "no-split": (
            '[data.split]\nby = "time"\ncolumn = "timestamp"',
            "",
            "key 'data.split': expected a value, got none",
        ),
        "no-files": (
            '["clicks/*.parquet"]',
            "[]",
            ":4: key 'data.files': expected at least 1 item, got \\[\\]$",
        ),
    },
)
def test_a_wrong_key_of_parquet_files_has_its_line(tmp_path, old, new, message):
    assert old in PARQUET
    with pytest.raises(ConfigError, match="run.toml" + message if message[0] == ":" else message):
        read(PARQUET.replace(old, new), tmp_path)


@cases(
    ("text", "message"),
    {
        "unknown-key": (
            SMALLEST + "[training]\nbatchsize = 3\n",
            "run.toml:8: key 'training.batchsize': expected one of batch_size, epochs, "
            ".*threads; did you mean 'batch_size'[?]$",
        ),
        "negative-warmup": (
            SMALLEST + "[training]\nwarmup_steps = -1\n",
            "run.toml:8: key 'training.warmup_steps': expected greater than or equal to 0.*, "
            "got -1",
        ),
        "warmup-from-0": (
            SMALLEST + "[training]\nwarmup_steps = 5\nwarmup_start = 0.0\n",
            "run.toml:9: key 'training.warmup_start': .* greater than 0, got 0.0",
        ),
        "warmup-from-above": (
            SMALLEST + "[training]\nwarmup_start = 1.5\n",
            "run.toml:8: key 'training.warmup_start': .* less than or equal to 1, got 1.5",
        ),
        "no-boolean": (
            SMALLEST + "[training]\ncount_accesses = 1\n",
            "run.toml:8: key 'training.count_accesses': .* boolean, got 1",
        ),
        "unknown-data-set": (
            '[data]\nname = "netflix"\n',
            "run.toml:2: key 'data.name': expected one of movielens, criteo, yambda, "
            "synthetic, synthetic_criteo, parquet, got 'netflix'",
        ),
        "key-of-another-data-set": (
            '[data]\nname = "movielens"\nexamples = 9\n',
            "run.toml:3: key 'data.examples': expected none for movielens, got 9",
        ),
        "folder-of-another-data-set": (
            '[data]\nname = "synthetic"\n\npath = "x"\n',
            "run.toml:4: key 'data.path': expected none for synthetic, got",
        ),
        "unknown-key-of-the-data": (
            '[data]\nname = "synthetic"\nrows = 9\n',
            "run.toml:3: key 'data.rows': expected one of name, path, examples, seed, valid, ",
        ),
        "unknown-section": (
            SMALLEST + "[trainig]\nseed = 3\n",
            "run.toml:7: key 'trainig': expected one of data, .*; did you mean 'training'[?]$",
        ),
        "wrong-type": (
            SMALLEST + '[training]\n\n# why\nbatch_size = "many"\n',
            "run.toml:10: key 'training.batch_size': expected a valid integer, got 'many'",
        ),
        "true-is-no-number": (
            SMALLEST + "[training]\nepochs = true\n",
            "run.toml:8: key 'training.epochs': expected a valid integer, got True",
        ),
        "too-small": (
            SMALLEST + "[training]\nbatch_size = 0\n",
            "run.toml:8: .*'training.batch_size': expected greater than or equal to 1, got 0",
        ),
        "too-large": (
            SMALLEST + "[training]\nbatch_size = 100000000000000000000\n",
            "run.toml:8: .*'training.batch_size': expected less than 2147483648, got 1000000",
        ),
        "too-many-threads": (
            SMALLEST + "[training]\nthreads = 100000\n",
            "run.toml:8: key 'training.threads': expected less than or equal to 1024, got 100000",
        ),
        "not-a-number": (
            SMALLEST + "[training]\ndense_learning_rate = nan\n",
            "run.toml:8: .*learning_rate': expected",
        ),
        "unknown-optimizer": (
            SMALLEST + '[training]\ndense_optimizer = "adamw"\n',
            "run.toml:8: .*: expected 'adagrad', 'adam' or 'sgd', got 'adamw'",
        ),
        "nested-table": (
            SMALLEST + "[training.id_dropout]\nitem = 0.5\nuser = 1.5\n",
            "run.toml:9: key 'training.id_dropout.user': expected less than or equal to 1, got 1.5",
        ),
        "inline-table": (
            SMALLEST + '[training]\nid_dropout = { user = "often" }\n',
            "run.toml:8: key 'training.id_dropout.user': expected a valid number, got 'often'",
        ),
        "dotted-key": (
            SMALLEST + "[training]\nid_dropout.user = -1\n",
            "run.toml:8: key 'training.id_dropout.user'",
        ),
        "inside-a-list": (
            SMALLEST + "[model]\ndense_layers = [32, 0, 16]\n",
            "run.toml:8: key 'model.dense_layers.1': expected greater",
        ),
        "unknown-model": (
            SMALLEST + "[model]\nname = 'dlmr'\n",
            "run.toml:8: key 'model.name': expected one of dlrm, .*, dmt, got 'dlmr'",
        ),
        "key-of-another-model": (
            SMALLEST + "[model]\nname = 'din'\ndense_layers = [8]\n",
            "run.toml:9: key 'model.dense_layers': expected one of name, embedding_dim, history, ",
        ),
        "no-attention": (
            SMALLEST + "[model]\nname = 'din'\nattention_layers = []\n",
            r"run.toml:9: key 'model.attention_layers': expected at least one layer, got \[\]",
        ),
        "layer-without-width": (
            SMALLEST + "[model]\nname = 'two_tower'\ntower_layers = [4, 0]\n",
            "run.toml:9: key 'model.tower_layers.1': expected greater",
        ),
        "dim-over-65536": (
            SMALLEST + "[model]\nembedding_dim = 65537\n",
            "run.toml:8: key 'model.embedding_dim': expected less than .* 65536, got 65537",
        ),
        "dense-layers-end-elsewhere": (
            SMALLEST + "[model]\ndense_layers = [32, 8]\n",
            r"run.toml:8: key 'model.dense_layers': expected a last layer 16 wide, .* \[32, 8\]",
        ),
        "default-layers-do-not-fit": (
            SMALLEST + "[model]\nembedding_dim = 8\n",
            r"run.toml:7: key 'model.dense_layers': expected a last layer 8 wide, .* \[32, 16\]",
        ),
        "no-layers": (
            SMALLEST + "[model]\ndense_layers = []\n",
            r"run.toml:8: key 'model.dense_layers': expected at least one layer, got \[\]",
        ),
        "one-over-layer": (
            SMALLEST + "[model]\nover_layers = [1]\n",
            r"run.toml:8: key 'model.over_layers': expected at least two layers, .* got \[1\]",
        ),
        "two-scores": (
            SMALLEST + "[model]\nover_layers = [8, 2]\n",
            r"run.toml:8: key 'model.over_layers': .*the last 1 wide, got \[8, 2\]",
        ),
        "missing-section": (
            '[data]\nname = "synthetic"\n',
            "run.toml:1: key 'checkpoint': expected a value, got none",
        ),
        "missing-key": (
            '[checkpoint]\nfolder = "x"\n[data]\nexamples = 3\n',
            "run.toml:3: key 'data.name': expected a value, got none",
        ),
        "no-value": ("[data]\nname = \n", "run.toml:2: expected TOML, got: .*"),
        "no-end": ("[data]\nname = 'x", "run.toml:2: expected TOML, got: "),
        "twice": ("[data]\nname = 'x'\nname = 'y'\n", "run.toml:3: expected TOML, got: "),
    },
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(text, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        read(text.lstrip("\n") if not text.startswith(SMALLEST) else text, tmp_path)


@cases(
    ("make", "message"),
    {
        "a-folder": (lambda file: file.mkdir(), "directory"),
        "other-encoding": (lambda file: file.write_bytes(b"\xff\xfe"), "utf-8"),
    },
)
def test_what_is_no_text_file_is_refused(make, message, tmp_path):
    make(tmp_path / "run.toml")
    with pytest.raises(ConfigError, match=f"run.toml: expected a TOML file .*{message}"):
        read_config(tmp_path / "run.toml")


def test_a_plan_among_the_patterns_of_tables_is_told_its_place(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        '[data]\nname = "synthetic"\n[checkpoint]\nfolder = "x"\n'
        '[sharding.tables]\nplan = "p.json"\n'
    )
    with pytest.raises(ConfigError, match=r"run.toml:6: .*'plan' belongs under \[sharding\]"):
        read_config(file)


def test_tasks_are_read_in_order(tmp_path):
    text = SMALLEST + '[tasks.click]\nlabel = "c"\n[tasks.stay]\nloss = "mse"\nweight = 0.5\n'
    tasks = read(text, tmp_path).tasks
    assert list(tasks) == ["click", "stay"]
    assert tasks["click"] == TaskConfig(label="c", loss="bce", weight=1.0, mask=None)
    assert tasks["stay"] == TaskConfig(loss="mse", weight=0.5)
    assert list(read(SMALLEST, tmp_path).tasks) == ["score"]


@cases(
    "text, message",
    {
        "empty": ("[tasks]\n", r":7: key 'tasks': expected sections \[tasks.NAME\]"),
        "key": ("[tasks.a]\nlable = 1\n", r":8: key 'tasks.a.lable': .*did you mean 'label'"),
        "loss": ("[tasks.a]\nloss = 'l1'\n", r":8: key 'tasks.a.loss': expected 'bce' or 'mse'"),
        "weight": ("[tasks.a]\nweight = 0.0\n", r":8: key 'tasks.a.weight': .*greater than 0"),
    },
)
def test_wrong_tasks_are_refused(text, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        read(SMALLEST + text, tmp_path)
