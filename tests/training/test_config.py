"""A run's TOML file is read strictly, and refused with line and key."""

from pathlib import Path

from embershard.data import DataConfig, ParquetConfig, TaskConfig
from embershard.errors import ConfigError
from embershard.training import read_config
from tests.cases import cases, refused

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
    ("old", "new", "line", "key"),
    {
        "data": ("files =", "file =", 4, "data.file"),
        "split": ("by =", "bye =", 6, "data.split.bye"),
        "dense": ("null =", "nulls =", 9, "data.dense.price.nulls"),
        "sparse": ('column = "item_id"', 'colum = "item_id"', 12, "data.sparse.item.colum"),
        "type": ("max_ids = 50", 'max_ids = "50"', 17, "data.sparse.history.max_ids"),
        "transform": ('"log1p"', '"log"', 10, "data.dense.price.transforms"),
        "clip": ("[0, 5.0]", "[5.0, 0]", 10, "data.dense.price.transforms"),
        "two-standardize": ('"log1p"', '"standardize"', 10, "data.dense.price.transforms"),
        "no-column": ('column = "timestamp"', "", 5, "data.split.column"),
        "files-and-column": ('"time"', '"files"', 7, "data.split.column"),
        "shares": (
            'column = "timestamp"',
            "column = 'time'\nvalid = 0.5\ntest = 0.5",
            9,
            "data.split.test",
        ),
        "share-beside-the-default": (
            'column = "timestamp"',
            "column = 'time'\nvalid = 0.95",
            8,
            "data.split.valid",
        ),
        "files-of-a-split-by-time": (
            'column = "timestamp"',
            "column = 'time'\ntest_files = ['a']",
            8,
            "data.split.test_files",
        ),
        "no-buckets": (
            'column = "item_id"\nmin_count = 2',
            'ids = "hash"',
            11,
            "data.sparse.item.buckets",
        ),
        "rows": ('column = "item_id"', "rows = 5", 12, "data.sparse.item.rows"),
        "min-count": (
            'column = "item_id"',
            'ids = "hash"\nbuckets = 4',
            14,
            "data.sparse.item.min_count",
        ),
        "unknown": (
            'column = "item_id"\nmin_count = 2',
            'ids = "hash"\nbuckets = 4\nunknown = "zero"',
            14,
            "data.sparse.item.unknown",
        ),
        "vocabulary-of-no-table": (
            'table = "item"\nmin_count = 2',
            'vocabulary = "films"',
            2,
            "data.sparse",
        ),
        "vocabulary": (
            'table = "item"\nmin_count = 2',
            'vocabulary = "item"',
            2,
            "data.sparse",
        ),
        "vocabulary-in-a-circle": (
            'min_count = 2\n[data.sparse.history]\ntable = "item"',
            'min_count = 2\nvocabulary = "history"\n[data.sparse.history]\nvocabulary = "item"',
            2,
            "data.sparse",
        ),
        "shared-table": ('table = "item"\nmin_count = 2', 'table = "item"', 2, "data.sparse"),
        "no-split": ('[data.split]\nby = "time"\ncolumn = "timestamp"', "", 2, "data.split"),
        "no-files": ('["clicks/*.parquet"]', "[]", 4, "data.files"),
    },
)
def test_a_wrong_key_of_parquet_files_has_its_line(tmp_path, old, new, line, key):
    assert old in PARQUET
    with refused(ConfigError, f"run.toml:{line}: key '{key}'"):
        read(PARQUET.replace(old, new), tmp_path)


@cases(
    ("text", "line", "key", "message"),
    {
        "unknown-key": (
            "[training]\nbatchsize = 3\n",
            8,
            "training.batchsize",
            "did you mean 'batch_size'",
        ),
        "negative-warmup": ("[training]\nwarmup_steps = -1\n", 8, "training.warmup_steps", "-1"),
        "warmup-from-0": ("[training]\n\nwarmup_start = 0.0\n", 9, "training.warmup_start", "0.0"),
        "warmup-from-above": (
            "[training]\nwarmup_start = 1.5\n",
            8,
            "training.warmup_start",
            "1.5",
        ),
        "no-boolean": ("[training]\ncount_accesses = 1\n", 8, "training.count_accesses", "got 1"),
        "unknown-section": ("[trainig]\nseed = 3\n", 7, "trainig", "did you mean 'training'"),
        "wrong-type": (
            '[training]\n\n# why\nbatch_size = "many"\n',
            10,
            "training.batch_size",
            "'many'",
        ),
        "true-is-no-number": ("[training]\nepochs = true\n", 8, "training.epochs", "True"),
        "too-small": ("[training]\nbatch_size = 0\n", 8, "training.batch_size", "got 0"),
        "too-large": (
            "[training]\nbatch_size = 100000000000000000000\n",
            8,
            "training.batch_size",
            "2147483648",
        ),
        "too-many-threads": ("[training]\nthreads = 100000\n", 8, "training.threads", "1024"),
        "not-a-number": (
            "[training]\ndense_learning_rate = nan\n",
            8,
            "training.dense_learning_rate",
            "nan",
        ),
        "unknown-optimizer": (
            '[training]\ndense_optimizer = "adamw"\n',
            8,
            "training.dense_optimizer",
            "'adamw'",
        ),
        "nested-table": (
            "[training.id_dropout]\nitem = 0.5\nuser = 1.5\n",
            9,
            "training.id_dropout.user",
            "1.5",
        ),
        "inline-table": (
            '[training]\nid_dropout = { user = "often" }\n',
            8,
            "training.id_dropout.user",
            "'often'",
        ),
        "dotted-key": (
            "[training]\nid_dropout.user = -1\n",
            8,
            "training.id_dropout.user",
            "-1",
        ),
        "inside-a-list": (
            "[model]\ndense_layers = [32, 0, 16]\n",
            8,
            "model.dense_layers.1",
            "got 0",
        ),
        "unknown-model": ("[model]\nname = 'dlmr'\n", 8, "model.name", "'dlmr'"),
        "key-of-another-model": (
            "[model]\nname = 'din'\ndense_layers = [8]\n",
            9,
            "model.dense_layers",
            "history",
        ),
        "no-attention": (
            "[model]\nname = 'din'\nattention_layers = []\n",
            9,
            "model.attention_layers",
            "[]",
        ),
        "layer-without-width": (
            "[model]\nname = 'two_tower'\ntower_layers = [4, 0]\n",
            9,
            "model.tower_layers.1",
            "got 0",
        ),
        "dim-over-65536": ("[model]\nembedding_dim = 65537\n", 8, "model.embedding_dim", "65537"),
        "dense-layers-end-elsewhere": (
            "[model]\ndense_layers = [32, 8]\n",
            8,
            "model.dense_layers",
            "[32, 8]",
        ),
        "default-layers-do-not-fit": (
            "[model]\nembedding_dim = 8\n",
            7,
            "model.dense_layers",
            "[32, 16]",
        ),
        "no-layers": ("[model]\ndense_layers = []\n", 8, "model.dense_layers", "[]"),
        "one-over-layer": ("[model]\nover_layers = [1]\n", 8, "model.over_layers", "[1]"),
        "two-scores": ("[model]\nover_layers = [8, 2]\n", 8, "model.over_layers", "[8, 2]"),
        "plan-among-tables": (
            "[sharding.tables]\nplan = 'p.json'\n",
            8,
            "sharding.tables.plan",
            "[sharding]",
        ),
        "no-tasks": ("[tasks]\n", 7, "tasks", "[tasks.NAME]"),
        "task-key": ("[tasks.a]\nlable = 1\n", 8, "tasks.a.lable", "did you mean 'label'"),
        "task-loss": ("[tasks.a]\nloss = 'l1'\n", 8, "tasks.a.loss", "'l1'"),
        "task-weight": ("[tasks.a]\nweight = 0.0\n", 8, "tasks.a.weight", "0.0"),
    },
)
def test_a_key_that_cannot_be_used_is_refused_with_its_line(text, line, key, message, tmp_path):
    with refused(ConfigError, f"run.toml:{line}: key '{key}'", message):
        read(SMALLEST + text, tmp_path)


@cases(
    ("text", "parts"),
    {
        "unknown-data-set": ('[data]\nname = "netflix"\n', (":2: key 'data.name'", "'netflix'")),
        "key-of-another-data-set": (
            '[data]\nname = "movielens"\nexamples = 9\n',
            (":3: key 'data.examples'", "movielens", "got 9"),
        ),
        "folder-of-another-data-set": (
            '[data]\nname = "synthetic"\n\npath = "x"\n',
            (":4: key 'data.path'", "synthetic"),
        ),
        "unknown-key-of-the-data": (
            '[data]\nname = "synthetic"\nrows = 9\n',
            (":3: key 'data.rows'", "examples"),
        ),
        "missing-section": ('[data]\nname = "synthetic"\n', (":1: key 'checkpoint'", "none")),
        "missing-key": (
            '[checkpoint]\nfolder = "x"\n[data]\nexamples = 3\n',
            (":3: key 'data.name'", "none"),
        ),
        "no-value": ("[data]\nname = \n", (":2: ", "TOML")),
        "no-end": ("[data]\nname = 'x", (":2: ", "TOML")),
        "twice": ("[data]\nname = 'x'\nname = 'y'\n", (":3: ", "TOML")),
        "nested": ("a = " + "[" * 20_000, ("TOML", "nested")),
        "digits": ("a = " + "9" * 5000, ("TOML", "digits")),
        "misspelled-parquet": (
            '[data]\nname = "parket"\nfiles = ["a.parquet"]\n',
            (":2: key 'data.name'", "'parket'"),
        ),
    },
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(text, parts, tmp_path):
    with refused(ConfigError, "run.toml", *parts):
        read(text, tmp_path)


@cases(
    ("make", "message"),
    {
        "a-folder": (lambda file: file.mkdir(), "directory"),
        "other-encoding": (lambda file: file.write_bytes(b"\xff\xfe"), "utf-8"),
    },
)
def test_what_is_no_text_file_is_refused(make, message, tmp_path):
    make(tmp_path / "run.toml")
    with refused(ConfigError, "run.toml", message):
        read_config(tmp_path / "run.toml")


def test_tasks_are_read_in_order(tmp_path):
    text = SMALLEST + '[tasks.click]\nlabel = "c"\n[tasks.stay]\nloss = "mse"\nweight = 0.5\n'
    tasks = read(text, tmp_path).tasks
    assert list(tasks) == ["click", "stay"]
    assert tasks["click"] == TaskConfig(label="c", loss="bce", weight=1.0, mask=None)
    assert tasks["stay"] == TaskConfig(loss="mse", weight=0.5)
    assert list(read(SMALLEST, tmp_path).tasks) == ["score"]
