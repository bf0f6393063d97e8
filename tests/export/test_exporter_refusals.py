"""Exports that are refused, or fail on the way, leave nothing behind."""

import errno
import os
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist

from embershard.errors import ExportError, InputError
from embershard.export import export_model, exporter, tables
from embershard.package.manifest import Limits
from embershard.sharding import DistributedModelParallel, ShardingPlan
from tests.cases import cases
from tests.export.expanding import Forward
from tests.export.models import REQUEST, SCHEMA, collection, dlrm
from tests.export.requests import given
from tests.serving.models import SCHEMA as EVERY_KIND
from tests.serving.models import ranker


@cases(
    ("options", "error", "message"),
    {
        "no-number": ({"out": "latest"}, ExportError, "a version number from 1, got .*/latest"),
        "version-0": ({"out": "0"}, ExportError, "a version number from 1, got .*/0"),
        "leading-zero": ({"out": "01"}, ExportError, "a version number from 1, got .*/01"),
        "too-large": ({"out": str(2**63)}, ExportError, "a version number from 1"),
        "model-name": ({"model": ".hidden"}, ExportError, "not first a dot"),
        "no-devices": ({"devices": "0xcpu"}, InputError, "expected KIND or NxKIND"),
        "gpu": (
            {"devices": "2xcuda"},
            ExportError,
            "processors, which .* got '2xcuda'; .*2xcuda`",
        ),
        "pattern": (
            {"weights": {"user": "int8"}},
            ExportError,
            r"match one of the tables \[.*\], got 'user'",
        ),
        "type": ({"weights": "int3"}, ExportError, "int8, int4, fp16, fp32, got 'int3'"),
        "left-out": ({"weights": {"users": "int8"}}, ExportError, "table 'items'"),
        "no-table": ({"weights": {"*": "int8", "itms": "int4"}}, ExportError, "got 'itms'"),
        "pattern-type": ({"weights": {"*": "int2"}}, ExportError, "got 'int2'"),
        "pattern-behind-another": (
            {"weights": {"*": "int4", "items": "int8"}},
            ExportError,
            r"pattern 'items': expected a table that no earlier pattern matches, got only tables "
            r"such as 'items', which '\*' matches",
        ),
    },
)
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_left(
    options, error, message, tmp_path
):
    out = tmp_path / options.pop("model", "dlrm") / options.pop("out", "1")
    with pytest.raises(error, match=message):
        export_model(dlrm(), SCHEMA, out, **options)
    assert list(tmp_path.iterdir()) == []


@cases(
    ("module", "schema", "message"),
    {
        "class": (Forward, SCHEMA, "module: expected a Module, got the class Forward"),
        "no-module": (3, SCHEMA, "module: expected a Module, got 3"),
        "no-schema": (Forward(None), None, "schema: expected a Schema, got None"),
    },
)
def test_what_is_no_module_or_schema_is_refused(module, schema, message, tmp_path):
    with pytest.raises(ExportError, match=message):
        export_model(module, schema, tmp_path / "ranker" / "1")
    assert list(tmp_path.iterdir()) == []


@cases(
    ("fields", "message"),
    {
        "request-dense": (
            {"request_dense": np.zeros(3, np.float32)},
            "samples: 1: request_dense: expected 2 values, got 3",
        ),
        "nan": (
            {"example_dense": np.full((3, 2), np.nan, np.float32)},
            "1: example_dense: expected finite values, got nan",
        ),
        "no-examples": (
            {"num_examples": 0, "example_dense": np.zeros((0, 2), np.float32)},
            "samples: 1: num_examples: expected at least 1, got 0; add an example",
        ),
        "lengths": ({"lengths": np.ones(9, np.int32)}, "1: lengths: expected 13 lengths, got 9"),
        "negative": ({"lengths": np.full(13, -1, np.int32)}, "no negative length, got -1"),
        "values": ({"values": np.zeros(4, np.int64)}, "values: expected 31 ids, the sum of"),
        "weights": ({"weights": np.zeros(2, np.float32)}, "weights: expected 10 weights, got 2"),
        "infinite": ({"weights": np.full(10, np.inf, np.float32)}, "weights: expected finite"),
        "id": (
            {"values": np.full(31, 6, np.int64)},
            "samples: 1: feature 'category': id 6 at example 0,",
        ),
    },
)
def test_samples_that_the_model_would_refuse_are_refused(fields, message, tmp_path):
    with pytest.raises(InputError, match=message):
        export_model(
            ranker(), EVERY_KIND, tmp_path / "ranker/1", samples=[given(), given(**fields)]
        )
    assert list(tmp_path.iterdir()) == []


@cases(
    ("arguments", "message"),
    {
        "mapping": ({"samples": [{}]}, "samples: 0: expected a SampleRequest, .*, got dict"),
        "no-list": ({"samples": given()}, "a list of SampleRequests, got SampleRequest"),
        "text": ({"samples": "x"}, "samples: 0: expected a SampleRequest, .*, got str"),
        "weights": ({"weights": torch.int8}, "expected a type such as 'int8', .*, got torch.int8"),
        "limits": ({"limits": 5}, "limits: expected a Limits, got 5"),
        "seed": ({"seed": "a"}, "seed: expected an integer from 0, got 'a'"),
    },
)
def test_arguments_of_another_type_are_refused(arguments, message, tmp_path):
    with pytest.raises(InputError, match=message):
        export_model(ranker(), EVERY_KIND, tmp_path / "r/1", **arguments)
    assert list(tmp_path.iterdir()) == []


@cases(
    ("limits", "message"),
    {
        "examples": (Limits(max_examples=2, max_ids=99), "at most 2 examples, got 3"),
        "ids": (Limits(max_examples=9, max_ids=20), "at most 20 ids, got 31"),
    },
)
def test_samples_over_the_limits_are_refused(limits, message, tmp_path):
    with pytest.raises(ExportError, match=message):
        export_model(ranker(), EVERY_KIND, tmp_path / "r/1", samples=[given()], limits=limits)


def test_a_sample_whose_output_is_not_finite_is_refused(tmp_path):
    module = Forward(
        lambda m, d, s: m.embeddings(s)["user"].sum(1) + torch.log(d[:, 2]),
        embeddings=collection(),
    )
    with pytest.raises(ExportError, match=r"output 'score': expected finite values .* got nan"):
        export_model(module, SCHEMA, tmp_path / "m/1", samples=[REQUEST])  # It has likes of -1.


@cases(
    ("change", "message"),
    {
        "nan": (lambda w: w[2].fill_(float("nan")), "row 2, column 0: .* got nan"),
        "large": (lambda w: w[4, 3].fill_(1e6), "row 4, column 3: .* got 1000000"),
    },
)
@pytest.mark.parametrize("slice_bytes", [tables.SLICE_BYTES, 1], ids=["one-slice", "row-by-row"])
def test_weights_that_cannot_be_stored_are_refused_and_nothing_is_left(
    change, message, slice_bytes, tmp_path, monkeypatch
):
    monkeypatch.setattr(tables, "SLICE_BYTES", slice_bytes)
    module = dlrm()
    with torch.no_grad():
        change(module.sparse_arch.embedding_bag_collection.embedding_bags["users"].weight)
    # Of another user and other items, whose rows can be stored.
    others = replace(REQUEST, values=np.zeros_like(REQUEST.values))
    for sample in (others, REQUEST):  # Of user 4.
        with pytest.raises(ExportError, match=f"table 'users': weights: {message}"):
            export_model(module, SCHEMA, tmp_path / "dlrm/1", samples=[sample])
    assert list(tmp_path.rglob("*")) == [tmp_path / "dlrm"]


def test_a_version_that_is_there_is_refused_and_kept(tmp_path):
    out = export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(InputError, match="versions are immutable"):
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
    expected = f"{tmp_path}/dlrm/1: no room: File too large; make room and run it again"
    for size in (0, 4096, 6000):  # The header of a table, its rows, the dense program.
        with pytest.raises(InputError, match=re.escape(expected)), file_limit(size):
            export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")
        assert list((tmp_path / "dlrm").iterdir()) == []


def test_a_disk_that_is_full_when_files_are_synced_is_refused(tmp_path, monkeypatch):
    export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")
    syncs = sum(1 for _ in (tmp_path / "dlrm/1").rglob("*")) + 2  # Files, folders, the model's own.
    for failing in (1, syncs - 1, syncs):
        left = iter(range(failing, 0, -1))

        def fsync(_, left=left):
            if next(left) == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(InputError, match="dlrm/2: no room: No space left on device; make room"):
            export_model(dlrm(), SCHEMA, tmp_path / "dlrm/2")
        assert [path.name for path in (tmp_path / "dlrm").iterdir()] == ["1"]


def test_a_full_disk_before_the_first_file_is_refused(tmp_path, monkeypatch):
    def mkdir(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(InputError, match="dlrm/1: no room: No space left on device"):
        export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")


def test_an_installation_without_fbgemm_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(exporter, "FBGEMM_DISTRIBUTIONS", ("no-such-fbgemm",))
    with pytest.raises(ExportError, match="one of no-such-fbgemm to be installed, got none"):
        export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1")


def test_a_sharded_model_is_refused_with_the_way_to_export_it(tmp_path):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        parallel = DistributedModelParallel(torch.nn.Linear(1, 1), plan=ShardingPlan())
        with pytest.raises(ExportError) as raised:
            export_model(parallel, EVERY_KIND, tmp_path / "1")
    finally:
        dist.destroy_process_group()
    assert str(raised.value) == (
        "module: expected a module whose weights are all in this process, got "
        "DistributedModelParallel; write its weights with save_state, then call "
        "export_checkpoint(folder, out, model=...)"
    )
