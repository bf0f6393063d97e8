"""Checkpoints load as they were saved or not at all, and damaged ones are refused."""

import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from embershard.data import sample_requests, to_rows
from embershard.errors import DataError
from embershard.models import build_model
from embershard.package import Schema, SparseInput, Vocabulary
from embershard.sharding import block_files, save_state
from embershard.training import (
    MappedTables,
    latest_checkpoint,
    load_checkpoint,
    load_state,
    score,
)
from embershard.training.checkpoint import Contents, write_checkpoint, write_state
from embershard.training.initial_model import model_arguments
from tests.cases import cases, refused
from tests.training.runs import config, dataset

DATA = dataset(examples=200)


def model(*, fused):
    run = config("unused")
    arguments = model_arguments(run.model, run.training, DATA)
    return {"name": "dlrm", "arguments": arguments if fused else arguments | {"fused": None}}


def save(path, module, description, *, schema=DATA.schema):
    contents = Contents(
        model=description,
        schema=schema,
        samples=sample_requests(DATA.valid, 2),
        metrics={"valid_auc": 0.75},
    )
    write_checkpoint(path, module, contents)


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    description = model(fused=True)
    module = build_model(description["name"], description["arguments"])
    save(tmp_path / "7", module, description)
    return tmp_path / "7", module


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
def test_a_checkpoint_scores_bit_for_bit_as_what_was_saved(fused, tmp_path):
    torch.manual_seed(0)
    description = model(fused=fused)
    module = build_model(description["name"], description["arguments"])
    rows = to_rows(DATA.test)
    save(tmp_path / "7", module, description)

    loaded = load_checkpoint(tmp_path / "7")

    assert type(loaded.module.sparse_arch) is type(module.sparse_arch)
    assert torch.equal(score(loaded.module, rows), score(module, rows))
    assert loaded.schema == DATA.schema
    assert loaded.metrics == {"valid_auc": 0.75}


def test_tables_in_mapped_files_score_bit_for_bit_alike(saved, tmp_path):
    path, module = saved
    folder = tmp_path / "tables"
    folder.mkdir()
    mapped = MappedTables(folder)
    loaded = load_checkpoint(path, mapped=mapped)
    rows = to_rows(DATA.test)
    assert torch.equal(score(loaded.module, rows), score(module, rows))
    mapped.release()
    assert torch.equal(score(loaded.module, rows), score(module, rows))
    collection = loaded.module.sparse_arch.embedding_bag_collection
    sizes = [4 * t.num_embeddings * t.embedding_dim for t in collection.embedding_bag_configs()]
    assert [(folder / f"table.{at}").stat().st_size for at in range(len(sizes))] == sizes


def test_weights_of_fused_tables_load_into_plain_ones(saved):
    path, module = saved
    description = model(fused=False)
    plain = build_model(description["name"], description["arguments"])
    load_state(plain, path)
    rows = to_rows(DATA.test)
    torch.testing.assert_close(score(plain, rows), score(module, rows))


def test_other_users_may_read_a_checkpoint(saved):
    path, _ = saved
    assert path.stat().st_mode & 0o777 == 0o755


def test_samples_come_back_as_they_were(saved):
    expected = sample_requests(DATA.valid, 2)
    for loaded, sample in zip(load_checkpoint(saved[0]).samples, expected, strict=True):
        for field in ("request_dense", "example_dense", "lengths", "values", "weights"):
            np.testing.assert_array_equal(getattr(loaded, field), getattr(sample, field))


def test_a_checkpoint_replaces_the_one_in_its_place(saved, tmp_path):
    path, module = saved
    with torch.no_grad():
        module.over_arch.model[1].bias.fill_(7)
    save(path, module, model(fused=True))
    assert load_checkpoint(path).module.over_arch.model[1].bias.item() == 7
    assert [child.name for child in tmp_path.iterdir()] == ["7"]


def test_a_save_that_fails_leaves_what_was_there(saved, tmp_path):
    path, module = saved
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(TypeError, match="JSON"):
        save(path, module, {"name": "dlrm", "arguments": {"of": object()}})
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    assert [child.name for child in tmp_path.iterdir()] == ["7"]


@pytest.mark.parametrize("place", ["file", "link"])
def test_a_place_that_is_no_folder_is_refused(saved, tmp_path, place):
    path, module = saved
    (tmp_path / "file").write_text("notes")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(DataError) as raised:
        save(tmp_path / place, module, model(fused=True))
    expected = "expected a folder or nothing, got a file or link"
    assert str(raised.value) == f"{tmp_path / place}: {expected}"
    assert {path.name for path in tmp_path.iterdir()} == {"7", "file", "link"}


def test_the_highest_step_of_a_folder_is_taken(tmp_path):
    for name in ("9", "10", "later", ".11.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "checkpoint.json").write_text("{}")
    (tmp_path / "12").mkdir()  # It has no checkpoint.json.
    assert latest_checkpoint(tmp_path) == tmp_path / "10"
    assert latest_checkpoint(tmp_path / "9") == tmp_path / "9"


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "nothing"), ("empty", "checkpoint.json"), ("state", "--model")],
)
def test_a_folder_without_a_checkpoint_is_refused(name, message, tmp_path):
    (tmp_path / "empty").mkdir()
    save_state(torch.nn.Linear(1, 1), tmp_path / "state")
    with refused(DataError, tmp_path / name, message):
        load_checkpoint(tmp_path / name)


def test_paths_may_be_text(saved, tmp_path):
    path, module = saved
    loaded = load_checkpoint(str(path))
    assert torch.equal(loaded.module.over_arch.model[1].bias, module.over_arch.model[1].bias)
    save(tmp_path / "8", module, model(fused=True))
    assert latest_checkpoint(str(tmp_path)) == tmp_path / "8"


def edit(change):
    """Damages a checkpoint by a change of the dict in its checkpoint.json."""

    def damage(path):
        file = path / "checkpoint.json"
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))

    return damage


def truncate(name):
    def damage(path):
        (file,) = path.glob(name)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return damage


def flip_bit_of_weights(path):
    (file,) = path.glob("state/*.distcp")
    (weight, *_) = load_checkpoint(path).module.state_dict().values()
    data = bytearray(file.read_bytes())
    data[data.index(weight.numpy().tobytes()[:64])] ^= 1
    file.write_bytes(data)


def set_rows(document):
    document["model"]["arguments"]["tables"][0]["num_embeddings"] = 5


@cases(
    ("damage", "parts"),
    {
        "json": (truncate("checkpoint.json"), ["checkpoint.json: json"]),
        "key": (edit(lambda d: d.pop("metrics")), ["checkpoint.json: metrics"]),
        "new": (edit(lambda d: d.update(extra=1)), ["checkpoint.json: extra"]),
        "version": (
            edit(lambda d: d.update(format_version=9)),
            ["checkpoint.json: format_version", "got 9"],
        ),
        "model": (
            edit(lambda d: d["model"].update(name="dlrn")),
            ["checkpoint.json: model", "'dlrn'"],
        ),
        "arguments": (
            edit(lambda d: d["model"].update(arguments=[])),
            ["checkpoint.json: model.arguments"],
        ),
        "no-tables": (
            edit(lambda d: d["model"]["arguments"].pop("tables")),
            ["checkpoint.json: model 'dlrm'", "'tables'"],
        ),
        "arguments-null": (
            edit(lambda d: d["model"].update(arguments=None)),
            ["checkpoint.json: model.arguments", "None"],
        ),
        "layer-too-large": (
            edit(lambda d: d["model"]["arguments"]["dense_arch_layer_sizes"].insert(0, 1 << 62)),
            ["checkpoint.json: ", "verflow"],
        ),
        "rows": (edit(set_rows), ["state: ", "weight", "(5, 4)", "(60, 4)"]),
        "schema": (edit(lambda d: d["schema"].pop("dense")), ["checkpoint.json: schema: dense"]),
        "samples": (truncate("samples.safetensors"), ["samples.safetensors: "]),
        "no-samples": (
            lambda p: (p / "samples.safetensors").unlink(),
            ["samples.safetensors: ", "found none"],
        ),
        "metadata": (truncate("state/.metadata"), ["state/.metadata: "]),
        "no-state": (lambda p: (p / "state/.metadata").unlink(), ["state: ", "found none"]),
        "weights": (truncate("state/*.distcp"), ["state: ", "__0_0.distcp"]),
        "weights-bit-flipped": (flip_bit_of_weights, ["state: ", "__0_0.distcp", "checksum"]),
        "weights-empty": (
            lambda p: next(p.glob("state/*.distcp")).write_bytes(b""),
            ["state: ", "__0_0.distcp"],
        ),
        "no-weights": (
            lambda p: next(p.glob("state/*.distcp")).unlink(),
            ["state: ", "__0_0.distcp", "found none"],
        ),
        "no-folder": (lambda p: shutil.rmtree(p / "state"), ["state: ", "found none"]),
    },
)
def test_a_damaged_checkpoint_is_refused_with_its_file(damage, parts, saved):
    path, _ = saved
    damage(path)
    with refused(DataError, *parts):
        load_checkpoint(path)


def test_a_checkpoint_takes_its_name_once_all_of_it_is_on_disk(saved, monkeypatch):
    path, module = saved
    on_disk, renamed = [], []
    fsync, rename = os.fsync, os.rename

    def recorded_fsync(file):
        number = file if isinstance(file, int) else file.fileno()
        on_disk.append(Path(os.readlink(f"/proc/self/fd/{number}")))
        fsync(file)

    def recorded_rename(old, new):
        if new == path:
            written = {old, *old.rglob("*")}
            assert written <= set(on_disk)
            renamed.append(len(on_disk))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "rename", recorded_rename)
    save(path, module, model(fused=True))
    assert len(renamed) == 1
    assert path.parent in on_disk[renamed[0] :]


def test_a_schema_with_vocabularies_comes_back(saved, tmp_path):
    _, module = saved
    schema = Schema(sparse=[SparseInput("x", ids=Vocabulary(["a", "b"], unknown="oov"))])
    save(tmp_path / "8", module, model(fused=True), schema=schema)
    assert load_checkpoint(tmp_path / "8").schema == schema

    shutil.rmtree(tmp_path / "8" / "ids")
    with refused(DataError, "/8/ids/", "found none"):
        load_checkpoint(tmp_path / "8")


@cases(("size", "where"), {"samples": (2000, "/7"), "weights": (6000, r"/\.7\..*/state")})
def test_a_full_disk_is_an_os_error_that_names_the_folder(size, where, saved, tmp_path, file_limit):
    path, module = saved
    with pytest.raises(OSError, match=rf"File too large: '.*{where}'"), file_limit(size):
        save(path, module, model(fused=True))
    assert [child.name for child in tmp_path.iterdir()] == ["7"]


def test_other_warnings_are_still_seen(saved, monkeypatch):
    """Only torch's remarks about saving without a process group are ignored."""

    def warn(*arguments, **options):
        warnings.warn("something else", UserWarning, stacklevel=1)
        warnings.warn("torch.distributed is disabled, assuming", UserWarning, stacklevel=1)

    monkeypatch.setattr(block_files.state_dict_saver, "save", warn)
    with pytest.warns(UserWarning, match="something else") as caught:
        write_state(saved[1], saved[0])
    assert len(caught) == 1
