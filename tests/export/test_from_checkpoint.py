"""Export of checkpoints and state dicts, whose weights must fit the model of the factory."""

import errno
import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict_saver import save as save_dcp

from embershard.errors import DataError, ExportError, InputError
from embershard.export import export_checkpoint, export_model
from embershard.models import build_model
from embershard.package import Package, verify_package
from embershard.sharding import save_state
from embershard.training.checkpoint import Contents, write_checkpoint
from tests.cases import cases, refused
from tests.export.models import REQUEST, SCHEMA, Holder, Ranker

FACTORY = "tests.export.models:make_ranker"

DLRM_ARGUMENTS = {
    "tables": [
        {
            "name": "items",
            "num_embeddings": 9,
            "embedding_dim": 4,
            "feature_names": ["item", "history"],
            "pooling": "mean",
        },
        {"name": "users", "num_embeddings": 5, "embedding_dim": 4, "feature_names": ["user"]},
    ],
    "dense_in_features": 3,
    "dense_arch_layer_sizes": [6, 4],
    "over_arch_layer_sizes": [5, 3, 1],
    "fused": {"optimizer": "sgd", "learning_rate": 0.1},
}


def trained_ranker():
    torch.manual_seed(7)
    return Ranker()


def save(kind, module, folder):
    """Saves the module's weights in a form that can be exported."""
    if kind == "checkpoint":
        path = folder / "12"
        model = {"name": "dlrm", "arguments": DLRM_ARGUMENTS}
        contents = Contents(model=model, schema=SCHEMA, samples=[REQUEST], metrics={})
        write_checkpoint(path, module, contents)
        return folder
    path = folder / f"weights.{kind}"
    if kind == "safetensors":
        save_file(module.state_dict(), path)
    elif kind == "state":
        save_state(module, path)
    else:
        torch.save(module.state_dict(), path)
    return path


@pytest.mark.parametrize("factory", [FACTORY, f"{FACTORY}_on_meta"], ids=["cpu", "meta"])
@pytest.mark.parametrize("kind", ["checkpoint", "state", "safetensors", "pt"])
def test_a_factory_and_its_weights_give_the_modules_package(kind, factory, tmp_path):
    module = trained_ranker()
    export_model(module, SCHEMA, tmp_path / "expected/1")

    out = export_checkpoint(
        save(kind, module, tmp_path), tmp_path / "ranker/1", model=factory, weights="int8"
    )

    verify_package(out)
    assert files_of(out) == files_of(tmp_path / "expected/1")


def test_a_checkpoint_of_ours_needs_no_factory_and_has_samples(tmp_path):
    torch.manual_seed(3)
    module = build_model("dlrm", DLRM_ARGUMENTS)
    path = save("checkpoint", module, tmp_path)

    out = export_checkpoint(path, tmp_path / "dlrm/2", weights="fp16", devices="2xcpu")

    package = Package.open(out)
    assert [list(sample.values) for sample in package.samples()] == [list(REQUEST.values)]
    assert package.plan().devices == ("cpu:0", "cpu:1")
    weight = module.state_dict()["sparse_arch.embedding_bag_collection.embedding_bags.users.weight"]
    assert (
        package.read_rows("users", np.array([3])) == weight[3:4].half().view(torch.uint8).numpy()
    ).all()


def files_of(package):
    """Digests of the files that depend on the weights."""
    files = Package.open(package).manifest.files
    return {name: file.sha256 for name, file in files.items() if name.startswith("tables/")}


@cases(
    ("model", "parts"),
    {
        "no-colon": ("tests.export.models", ["package.module:factory"]),
        "no-name": ("tests.export.models:", ["package.module:factory"]),
        "a-file": ("tests/export/models.py:make", ["package.module"]),
        "no-module": ("nowhere.models:make", ["no module named 'nowhere'"]),
        "none": ("tests.export.models:absent", ["'absent' in", "models.py, got nothing"]),
        "no-function": ("tests.export.models:NOT_CALLABLE", ["got int"]),
        "one": ("tests.export.models:make_nothing", ["(torch.nn.Module, Schema), got Ranker"]),
        "meta": ("tests.export.models:make_all_on_meta", ["tower.weight:", "device meta"]),
        "raises": ("tests.export.models:make_trouble", ["RuntimeError: the disk is full"]),
        "exits": ("tests.export.models:make_exit", ["the factory raised SystemExit: 7"]),
        "import-exits": ("import_exits:make", ["importing import_exits raised SystemExit: "]),
        "import-fails": ("import_fails:make", ["importing import_fails raised ZeroDivisionError"]),
    },
)
def test_a_factory_that_cannot_be_used_is_refused(model, parts, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "import_exits.py").write_text("import sys; sys.exit()")
    (tmp_path / "import_fails.py").write_text("1 / 0")
    path = save("pt", trained_ranker(), tmp_path)
    with refused(ExportError, *parts):
        export_checkpoint(path, tmp_path / "ranker/1", model=model)
    assert not (tmp_path / "ranker").exists()


@pytest.mark.parametrize("kind", ["checkpoint", "safetensors", "pt"])
@cases(
    ("change", "received"),
    {
        "too-many": (
            lambda ranker: ranker.register_parameter("extra", torch.nn.Parameter(torch.ones(1))),
            "Ranker, got unknown 'extra'",
        ),
        "too-few": (
            lambda ranker: delattr(ranker, "over"),
            "Ranker, got no 'over.bias', 'over.weight'",
        ),
        "shape": (
            lambda ranker: setattr(ranker, "over", torch.nn.Linear(8, 1)),
            "over.weight: expected shape (1, 9), got (1, 8)",
        ),
    },
)
def test_weights_of_another_module_are_refused(kind, change, received, tmp_path):
    module = trained_ranker()
    change(module)
    path = save(kind, module, tmp_path)
    with refused(DataError, received):
        export_checkpoint(path, tmp_path / "ranker/1", model=FACTORY)


@pytest.mark.parametrize("kind", ["state", "safetensors", "pt"])
@pytest.mark.parametrize("name", ["model", "net"])
def test_weights_of_a_module_that_holds_the_model_are_read(kind, name, tmp_path):
    ranker = trained_ranker()
    export_model(ranker, SCHEMA, tmp_path / "expected/1")
    holder = torch.nn.ModuleDict({name: ranker})
    out = export_checkpoint(
        save(kind, holder, tmp_path), tmp_path / "ranker/1", model=FACTORY, weights="int8"
    )
    assert files_of(out) == files_of(tmp_path / "expected/1")


@pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")
@pytest.mark.parametrize("name", ["model", "state_dict"])
@pytest.mark.parametrize("kind", ["state", "pt"])
def test_a_state_dict_beside_other_entries_is_read(kind, name, tmp_path):
    ranker = trained_ranker()
    export_model(ranker, SCHEMA, tmp_path / "expected/1")
    adam = {"exp_avg": torch.ones(2), "lr": 0.1}
    saved = {name: ranker.state_dict(), "optim": {"over.weight": adam}, "epoch": 3}
    path = tmp_path / f"weights.{kind}"
    if kind == "pt":
        torch.save(saved, path)
    else:
        save_dcp(saved, checkpoint_id=path, no_dist=True)
    out = export_checkpoint(path, tmp_path / "ranker/1", model=FACTORY, weights="int8")
    assert files_of(out) == files_of(tmp_path / "expected/1")


@pytest.mark.filterwarnings("ignore:Validating sparse tensor:UserWarning")
@cases(
    ("tensor", "received"),
    {
        "complex": (torch.zeros(1, 9, dtype=torch.complex64), "got torch.complex64, torch.strided"),
        "whole-numbers": (torch.zeros(1, 9, dtype=torch.int64), "got torch.int64"),
        "sparse": (torch.zeros(1, 9).to_sparse(), "got torch.float32, torch.sparse_coo on cpu"),
        "meta": (torch.zeros(1, 9, device="meta"), "torch.strided on meta"),
    },
)
def test_weights_that_cannot_be_copied_as_they_are_are_refused(tensor, received, tmp_path):
    state = trained_ranker().state_dict() | {"over.weight": tensor}
    torch.save(state, tmp_path / "w.pt")
    with refused(DataError, "w.pt: over.weight: expected a dense tensor", received):
        export_checkpoint(tmp_path / "w.pt", tmp_path / "ranker/1", model=FACTORY)


@cases(
    ("file", "write", "received"),
    {
        "unknown": ("weights.npz", lambda f: f.write_bytes(b"x"), "got suffix '.npz'"),
        "damaged": ("w.pt", lambda f: f.write_bytes(b"x"), "expected a state dict"),
        "header": ("w.safetensors", lambda f: f.write_bytes(b"x"), "a state dict"),
        "a-number": ("w.pt", lambda f: torch.save(7, f), "'state_dict', got int"),
        "nested": (
            "w.pt",
            lambda f: torch.save({"net": {"w": torch.ones(1)}}, f),
            "'state_dict', got a dict of {'net': 'dict'}",
        ),
        "empty": ("w.pt", lambda f: f.write_bytes(b""), "got an empty file"),
        "a-module": ("w.pt", lambda f: torch.save(Ranker(), f), "save model.state_dict()"),
    },
)
def test_a_file_that_is_no_state_dict_is_refused(file, write, received, tmp_path):
    write(tmp_path / file)
    with refused(DataError, received):
        export_checkpoint(tmp_path / file, tmp_path / "ranker/1", model=FACTORY)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with refused(DataError, "expected a checkpoint"):
        export_checkpoint(tmp_path, tmp_path / "ranker/1")


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_state_dict_of_a_compiled_module_is_read(tmp_path):
    module = trained_ranker()
    module.tower = torch.compile(module.tower)
    torch.save(torch.compile(module).state_dict(), tmp_path / "weights.pt")
    out = export_checkpoint(tmp_path / "weights.pt", tmp_path / "m" / "1", model=FACTORY)
    expected = export_model(trained_ranker(), SCHEMA, tmp_path / "expected" / "1")
    pairs = zip(Package.open(out).samples(), Package.open(expected).samples(), strict=True)
    for sample, expected_sample in pairs:
        np.testing.assert_array_equal(sample.outputs["score"], expected_sample.outputs["score"])


def test_a_compiled_module_with_weights_named_model_is_read(tmp_path):
    torch.save(torch.compile(Holder(trained_ranker())).state_dict(), tmp_path / "weights.pt")
    out = export_checkpoint(tmp_path / "weights.pt", tmp_path / "m" / "1", model=f"{FACTORY}_held")
    export_model(Holder(trained_ranker()), SCHEMA, tmp_path / "expected" / "1")
    assert files_of(out) == files_of(tmp_path / "expected" / "1")


def test_a_full_disk_while_a_checkpoint_is_read_is_refused(tmp_path, monkeypatch):
    def posix_fallocate(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
    path = save("pt", trained_ranker(), tmp_path)
    out = tmp_path / "repository" / "ranker" / "1"
    with refused(InputError, "ranker/1: no room: No space left on device"):
        export_checkpoint(path, out, model=f"{FACTORY}_on_meta")
    assert list(tmp_path.iterdir()) == [path]


def test_a_state_dict_in_the_old_format_of_torch_is_read(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save(trained_ranker().state_dict(), path, _use_new_zipfile_serialization=False)
    verify_package(export_checkpoint(path, tmp_path / "ranker/1", model=FACTORY))
