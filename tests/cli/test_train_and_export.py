"""`embershard train` and `embershard export`, from a file to a package that can be served."""

import os
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from embershard._proto import predictor_pb2 as pb
from embershard.cli import main
from embershard.package import Package
from embershard.serving import LocalPredictor
from embershard.training import load_checkpoint
from tests.cases import cases
from tests.serving.models import make_ranker

CONFIG = """
[data]
name = "synthetic"
examples = 3000

[model]
embedding_dim = 8
dense_layers = [8, 8]
over_layers = [8, 1]

[training]
epochs = 1
evaluate_every_steps = 3
batch_size = 500
threads = 1

[checkpoint]
folder = "{folder}"
"""

FACTORY = "tests.serving.models:make_ranker"


@pytest.fixture
def config(tmp_path):
    """Writes a configuration."""

    def written(text=CONFIG):
        path = tmp_path / "run.toml"
        path.write_text(text.replace("{folder}", str(tmp_path / "checkpoints")))
        return path

    return written


def test_a_run_becomes_a_package(config, tmp_path, capsys):
    assert main(["train", str(config())]) == 0
    out = capsys.readouterr().out
    assert "validation  auc 0." in out
    assert "test        auc 0." in out
    checkpoint = out.splitlines()[-1].split()[-1]

    package = tmp_path / "repository" / "clicks" / "3"
    weights = "--weights=*=int4"
    assert main(["export", checkpoint, "--out", str(package), weights, "--devices=2xcpu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("clicks 3   format 0   ")
    assert out.splitlines()[-1] == f"wrote {package} from {checkpoint}"
    manifest = Package.open(package).manifest
    assert {table.weights for table in manifest.tables} == {"int4"}
    assert Package.open(package).plan().devices == ("cpu:0", "cpu:1")
    described = pb.GetModelResponse.FromString(LocalPredictor(package, threads=1).get_model())
    assert (described.model, described.version) == ("clicks", 3)


def test_training_sets_options_of_malloc(config, monkeypatch):
    environments = []
    monkeypatch.setattr("embershard.malloc_options.set_malloc_options", environments.append)
    assert main(["train", str(config())]) == 0
    assert environments == [os.environ]


@pytest.mark.parametrize("dim", [1, 6])
def test_tables_of_any_dim_become_a_package_with_fp32_tables(dim, config, tmp_path):
    text = CONFIG.replace("embedding_dim = 8", f"embedding_dim = {dim}")
    assert main(["train", str(config(text.replace("[8, 8]", f"[8, {dim}]")))]) == 0
    (checkpoint,) = (tmp_path / "checkpoints").iterdir()

    package = tmp_path / "clicks" / "1"
    assert main(["export", str(checkpoint), "--out", str(package), "--weights=fp32"]) == 0

    opened = Package.open(package)
    for table in opened.manifest.tables:
        assert (table.weights, table.dim, table.row_bytes) == ("fp32", dim, 16 if dim == 1 else 32)
        name = f"sparse_arch.embedding_bag_collection.embedding_bags.{table.name}.weight"
        weight = load_checkpoint(checkpoint).module.state_dict()[name]
        rows = opened.read_rows(table.name, np.arange(table.rows))
        np.testing.assert_array_equal(table.row_format.dequantize_rows(rows), weight.numpy())
    LocalPredictor(package, threads=1)  # Answers the package's samples, or raises.


def test_of_a_folder_of_checkpoints_the_one_exported_is_named(config, tmp_path, capsys):
    assert main(["train", str(config())]) == 0
    (checkpoint,) = (tmp_path / "checkpoints").iterdir()
    out = tmp_path / "clicks" / "1"
    assert main(["export", str(tmp_path / "checkpoints"), "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"wrote {out} from {checkpoint}"


def test_a_second_run_into_a_folder_needs_overwrite(config, tmp_path, capsys):
    file = str(config())
    assert main(["train", file]) == 0
    (kept,) = (tmp_path / "checkpoints").iterdir()
    before = (kept / "checkpoint.json").read_bytes()
    capsys.readouterr()

    assert main(["train", file]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    words = f"run.toml:18: key 'checkpoint.folder': {tmp_path}/checkpoints holds checkpoints of "
    assert words + f"an earlier run ({kept.name})" in told.err
    assert (kept / "checkpoint.json").read_bytes() == before

    assert main(["train", file, "--overwrite"]) == 0


def test_a_checkpoint_folder_that_cannot_be_is_named(config, tmp_path, capsys):
    (tmp_path / "checkpoints").write_text("a file")
    assert main(["train", str(config(CONFIG.replace("{folder}", "{folder}/run")))]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("embershard train: ConfigError: ")
    assert told.endswith(
        f"expected a folder that can be made, got {tmp_path}/checkpoints/run: Not a directory"
    )


@cases(
    ("full_disk", "words"),
    {
        "no-folder": (False, "FileExistsError: [Errno 17] File exists: '{out}'"),
        "full-disk": (True, "InputError: {out}/1: no room: File too large; make room"),
    },
)
def test_a_package_that_cannot_be_written_is_named(tmp_path, capsys, file_limit, full_disk, words):
    module, _ = make_ranker()
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    out = tmp_path / "ranker"
    if not full_disk:
        out.write_text("a file")
    arguments = [str(tmp_path / "weights.pt"), "--out", str(out / "1"), "--model", FACTORY]
    with file_limit(5000) if full_disk else nullcontext():
        assert main(["export", *arguments]) == 1
    assert capsys.readouterr().err.startswith(f"embershard export: {words.format(out=out)}")


def test_a_model_of_ones_own(tmp_path, capsys):
    module, _ = make_ranker()
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    package = tmp_path / "ranker" / "1"
    arguments = [str(tmp_path / "weights.pt"), "--out", str(package), "--model", FACTORY]
    assert main(["export", *arguments]) == 0
    weight = module.plain.state_dict()["embedding_bags.items.weight"].numpy()
    opened = Package.open(package)
    table = next(table for table in opened.manifest.tables if table.name == "items")
    rows = opened.read_rows("items", np.arange(table.rows))
    assert np.abs(table.row_format.dequantize_rows(rows) - weight).max() < 0.02


def test_export_of_a_built_in_model_leaves_sys_path_alone(config, tmp_path, capsys):
    assert main(["train", str(config())]) == 0
    before = list(sys.path)
    arguments = [str(tmp_path / "checkpoints"), "--out", str(tmp_path / "clicks" / "1")]
    assert main(["export", *arguments]) == 0
    assert sys.path == before


@cases(
    ("change", "words"),
    {
        "key": (("epochs = 1", "epoch = 1"), "run.toml:12: key 'training.epoch': exp"),
        "value": (("epochs = 1", "epochs = 0"), "run.toml:12: key 'training.epochs'"),
        "syntax": (("examples = 3000", "examples = ]"), "run.toml:4: expected TOML, got: "),
        "data": (('"synthetic"', '"netflix"'), "run.toml:3: key 'data.name': expected one of "),
    },
)
def test_a_configuration_that_cannot_be_run(config, capsys, change, words):
    assert main(["train", str(config(CONFIG.replace(*change)))]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err


def test_a_configuration_that_is_not_there(tmp_path, capsys):
    missing = tmp_path / "none.toml"
    assert main(["train", str(missing)]) == 1
    assert f"ConfigError: {missing}: expected a TOML file" in capsys.readouterr().err


def test_a_plan_report_needs_a_plan_by_the_planner_and_a_folder(config, tmp_path, capsys):
    for option in ("--plan-report", str(tmp_path / "plan.html")), ("--explain", "users"):
        assert main(["train", str(config()), *option]) == 1
        words = f"""key 'sharding.plan': expected "auto" with {option[0]}, got None"""
        assert words in capsys.readouterr().err
    assert main(["train", str(config()), "--plan-report", str(tmp_path / "no" / "plan.html")]) == 1
    assert "--plan-report: expected a file in an existing folder, got " in capsys.readouterr().err


def test_a_process_alone_has_no_plan_to_show(config, tmp_path, capsys):
    text = CONFIG + '\n[sharding]\nplan = "auto"\n'
    for option in ("--plan-report", str(tmp_path / "plan.html")), ("--explain", "users"):
        assert main(["train", str(config(text)), *option]) == 1
        words = (
            f"InputError: {option[0]}: expected ranks of torchrun (--nproc-per-node 1 is enough), "
        )
        assert words in capsys.readouterr().err


def test_a_folder_for_data_that_is_made(config, tmp_path, capsys):
    assert main(["train", str(config()), "--data", str(tmp_path)]) == 1
    assert "data set 'synthetic': expected no folder, got " in capsys.readouterr().err


def test_a_folder_for_data_that_is_not_there(config, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = CONFIG.replace('"synthetic"\nexamples = 3000', '"movielens"\npath = "ml-100k"')
    assert main(["train", str(config(text))]) == 1
    where = "run.toml:4: key 'data.path'"
    words = f"{where}: expected a file or folder, found none at {tmp_path}/ml-100k\n"
    assert capsys.readouterr().err.endswith(words)


def test_data_of_ones_own_that_cannot_be_read(config, tmp_path, capsys):
    text = CONFIG.replace('"synthetic"\nexamples = 3000', '"movielens"')
    assert main(["train", str(config(text)), "--data", str(tmp_path)]) == 1
    assert "DataError: " in capsys.readouterr().err


@cases(
    ("arguments", "words"),
    {
        "weights": (["--weights", "int3"], "int3"),
        "devices": (
            ["--devices", "2xtpu"],
            "devices: expected KIND or NxKIND of cpu, cuda",
        ),
        "factory": (["--model", "tests"], "expected package.module:factory"),
    },
)
def test_an_export_that_cannot_be_made(tmp_path, capsys, arguments, words):
    torch.save(make_ranker()[0].state_dict(), tmp_path / "weights.pt")
    out = tmp_path / "ranker" / "1"
    value = [str(tmp_path / "weights.pt"), "--out", str(out), "--model", FACTORY, *arguments]
    assert main(["export", *value]) == 1
    told = capsys.readouterr()
    assert (told.out, out.exists()) == ("", False)
    assert words in told.err
    assert told.err.count("\n") == 1  # No progress bar precedes it.


def test_a_checkpoint_that_is_not_there(tmp_path, capsys):
    out = tmp_path / "ranker" / "1"
    assert main(["export", str(tmp_path / "none"), "--out", str(out)]) == 1
    assert (
        f"DataError: {tmp_path}/none: expected a checkpoint, but nothing" in capsys.readouterr().err
    )


def test_a_version_that_is_there_already(tmp_path, capsys, repository):
    torch.save(make_ranker()[0].state_dict(), tmp_path / "weights.pt")
    out = str(repository / "ranker" / "1")
    assert main(["export", str(tmp_path / "weights.pt"), "--out", out, "--model", FACTORY]) == 1
    assert "versions are immutable" in capsys.readouterr().err
