"""Exports that are refused or fail leave no files."""

import errno
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist

from embershard.errors import ExportError, InputError
from embershard.export import export_model, exporter, tables
from embershard.package.manifest import Limits
from embershard.sharding import DistributedModelParallel, ShardingPlan
from tests.cases import cases, refused
from tests.export.expanding import Forward
from tests.export.models import REQUEST, SCHEMA, collection, dlrm
from tests.export.requests import sample_request
from tests.serving.models import SCHEMA as EVERY_KIND
from tests.serving.models import ranker


@cases(
    ("options", "error", "parts"),
    {
        "no-number": ({"out": "latest"}, ExportError, ["a version number", "/latest"]),
        "version-0": ({"out": "0"}, ExportError, ["a version number", "/0"]),
        "leading-zero": ({"out": "01"}, ExportError, ["a version number", "/01"]),
        "too-large": ({"out": str(2**63)}, ExportError, ["a version number"]),
        "model-name": ({"model": ".hidden"}, ExportError, ["not first a dot"]),
        "no-devices": ({"devices": "0xcpu"}, InputError, ["KIND or NxKIND"]),
        "gpu": ({"devices": "2xcuda"}, ExportError, ["got '2xcuda'", "2xcuda`"]),
        "pattern": ({"weights": {"user": "int8"}}, ExportError, ["tables [", "got 'user'"]),
        "type": ({"weights": "int3"}, ExportError, ["int8, int4, fp16, fp32, got 'int3'"]),
        "left-out": ({"weights": {"users": "int8"}}, ExportError, ["table 'items'"]),
        "no-table": ({"weights": {"*": "int8", "itms": "int4"}}, ExportError, ["got 'itms'"]),
        "pattern-type": ({"weights": {"*": "int2"}}, ExportError, ["got 'int2'"]),
        "pattern-behind-another": (
            {"weights": {"*": "int4", "items": "int8"}},
            ExportError,
            ["pattern 'items':", "which '*' matches"],
        ),
    },
)
def test_wrong_arguments_are_refused_and_nothing_is_left(options, error, parts, tmp_path):
    out = tmp_path / options.pop("model", "dlrm") / options.pop("out", "1")
    with refused(error, *parts):
        export_model(dlrm(), SCHEMA, out, **options)
    assert list(tmp_path.iterdir()) == []


@cases(
    ("module", "schema", "received"),
    {
        "class": (Forward, SCHEMA, "module: expected a Module, got the class Forward"),
        "no-module": (3, SCHEMA, "module: expected a Module, got 3"),
        "no-schema": (Forward(None), None, "schema: expected a Schema, got None"),
    },
)
def test_arguments_that_are_no_module_or_schema_are_refused(module, schema, received, tmp_path):
    with refused(ExportError, received):
        export_model(module, schema, tmp_path / "ranker" / "1")
    assert list(tmp_path.iterdir()) == []


def second(**fields):
    return {"samples": [sample_request(), sample_request(**fields)]}


def full(count, value, dtype=np.float32):
    return np.full(count, value, dtype)


@cases(
    ("arguments", "parts"),
    {
        "request-dense": (second(request_dense=full(3, 0)), ["1: request_dense:", "2", "got 3"]),
        "nan": (second(example_dense=full((3, 2), np.nan)), ["1: example_dense:", "got nan"]),
        "no-examples": (
            second(num_examples=0, example_dense=full((0, 2), 0)),
            ["1: num_examples:", "got 0; add an example"],
        ),
        "lengths": (second(lengths=full(9, 1, np.int32)), ["1: lengths:", "13", "got 9"]),
        "negative": (second(lengths=full(13, -1, np.int32)), ["1: lengths:", "got -1"]),
        "values": (second(values=full(4, 0, np.int64)), ["1: values:", "31"]),
        "weights": (second(weights=full(2, 0)), ["1: weights:", "10 weights, got 2"]),
        "infinite": (second(weights=full(10, np.inf)), ["1: weights:", "inf"]),
        "id": (second(values=full(31, 6, np.int64)), ["1: feature 'category': id 6 at example 0"]),
        "mapping": ({"samples": [{}]}, ["samples: 0:", "got dict"]),
        "no-list": ({"samples": sample_request()}, ["got SampleRequest"]),
        "text": ({"samples": "x"}, ["samples: 0:", "got str"]),
        "type-of-weights": ({"weights": torch.int8}, ["'int8'", "got torch.int8"]),
        "limits": ({"limits": 5}, ["limits:", "got 5"]),
        "seed": ({"seed": "a"}, ["seed:", "got 'a'"]),
        "examples-over-the-limit": (
            {"samples": [sample_request()], "limits": Limits(max_examples=2, max_ids=99)},
            ["at most 2 examples, got 3"],
        ),
        "ids-over-the-limit": (
            {"samples": [sample_request()], "limits": Limits(max_examples=9, max_ids=20)},
            ["at most 20 ids, got 31"],
        ),
    },
)
def test_samples_and_options_that_no_server_takes_are_refused(arguments, parts, tmp_path):
    with refused(InputError, *parts):
        export_model(ranker(), EVERY_KIND, tmp_path / "r/1", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_sample_whose_output_is_not_finite_is_refused(tmp_path):
    module = Forward(
        lambda m, d, s: m.embeddings(s)["user"].sum(1) + torch.log(d[:, 2]), embeddings=collection()
    )
    with refused(ExportError, "output 'score':", "got nan"):
        # REQUEST has likes of -1, whose logarithm is NaN.
        export_model(module, SCHEMA, tmp_path / "m/1", samples=[REQUEST])


@cases(
    ("change", "parts"),
    {
        "nan": (lambda w: w[2].fill_(float("nan")), ["row 2, column 0:", "got nan"]),
        "large": (lambda w: w[4, 3].fill_(1e6), ["row 4, column 3:", "got 1000000"]),
    },
)
@pytest.mark.parametrize("slice_bytes", [tables.SLICE_BYTES, 1], ids=["one-slice", "row-by-row"])
def test_unstorable_weights_are_refused_and_nothing_is_left(
    change, parts, slice_bytes, tmp_path, monkeypatch
):
    monkeypatch.setattr(tables, "SLICE_BYTES", slice_bytes)
    module = dlrm()
    with torch.no_grad():
        change(module.sparse_arch.embedding_bag_collection.embedding_bags["users"].weight)
    # `others` has only ids whose rows can be stored. REQUEST has user 4.
    others = replace(REQUEST, values=np.zeros_like(REQUEST.values))
    for sample in (others, REQUEST):
        with refused(ExportError, "table 'users': weights:", *parts):
            export_model(module, SCHEMA, tmp_path / "dlrm/1", samples=[sample])
    assert list(tmp_path.rglob("*")) == [tmp_path / "dlrm"]


def test_a_version_that_is_there_is_refused_and_kept(tmp_path):
    out = export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")
    before = (out / "manifest.json").read_bytes()
    with refused(InputError, "versions are immutable"):
        export_model(dlrm(), SCHEMA, out)
    assert (out / "manifest.json").read_bytes() == before
    assert [path.name for path in out.parent.iterdir()] == ["1"]


def test_a_failure_while_writing_leaves_nothing(tmp_path):
    def fail(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1", progress=fail)
    assert list((tmp_path / "dlrm").iterdir()) == []


def test_a_full_disk_is_refused_and_nothing_is_left(tmp_path, file_limit):
    # The disk is full at the header of a table, at its rows, or at the dense program.
    for size in (0, 4096, 6000):
        with refused(InputError, f"{tmp_path}/dlrm/1: no room"), file_limit(size):
            export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")
        assert list((tmp_path / "dlrm").iterdir()) == []


def test_a_disk_that_is_full_when_files_are_synced_is_refused(tmp_path, monkeypatch):
    export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")
    # Besides what the package holds, its own folder and the model's are synced.
    syncs = sum(1 for _ in (tmp_path / "dlrm/1").rglob("*")) + 2
    for failing in (1, syncs - 1, syncs):
        countdown = iter(range(failing, 0, -1))

        def fsync(_, countdown=countdown):
            if next(countdown) == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fsync)
        with refused(InputError, "dlrm/2: no room: No space left on device"):
            export_model(dlrm(), SCHEMA, tmp_path / "dlrm/2")
        assert [path.name for path in (tmp_path / "dlrm").iterdir()] == ["1"]


def test_a_full_disk_before_the_first_file_is_refused(tmp_path, monkeypatch):
    def mkdir(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", mkdir)
    with refused(InputError, "dlrm/1: no room: No space left on device"):
        export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")


def test_an_installation_without_fbgemm_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(exporter, "FBGEMM_DISTRIBUTIONS", ("no-such-fbgemm",))
    with refused(ExportError, "no-such-fbgemm", "got none"):
        export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")


def test_a_sharded_model_is_refused_with_the_way_to_export_it(tmp_path):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        parallel = DistributedModelParallel(torch.nn.Linear(1, 1), plan=ShardingPlan())
        with refused(ExportError, "module:", "got DistributedModelParallel", "save_state"):
            export_model(parallel, EVERY_KIND, tmp_path / "1")
    finally:
        dist.destroy_process_group()
