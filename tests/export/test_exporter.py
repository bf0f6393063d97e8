"""Contents of exported packages, whose sample outputs follow from their own bytes."""

import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from embershard.export import ExportProgress, export_model
from embershard.export.tables import SLICE_BYTES
from embershard.models import LogitModel
from embershard.modules import EmbeddingBagConfig
from embershard.package import Package, SampleRequest, Schema, SparseInput, verify_package
from embershard.package.manifest import Limits
from tests.cases import cases
from tests.export.expanding import Forward
from tests.export.models import REQUEST, SCHEMA, collection, dlrm
from tests.export.requests import sample_request
from tests.serving.asking import Asked
from tests.serving.models import SCHEMA as EVERY_KIND
from tests.serving.models import ranker
from tests.serving.oracle import Oracle


def request_of(sample: SampleRequest, manifest: dict) -> Asked:
    """The inputs of a sample, by the names of the manifest."""
    lengths, values, weights = iter(sample.lengths), iter(sample.values), iter(sample.weights)
    shared, own = iter(sample.request_dense), iter(sample.example_dense.T)
    request = Asked(num_examples=sample.num_examples)
    for item in manifest["inputs"]:
        name, is_shared = item["name"], item["scope"] == "request"
        if item["kind"] == "dense":
            request.dense[name] = [next(shared)] if is_shared else list(next(own))
            continue
        bags = [next(lengths) for _ in range(1 if is_shared else sample.num_examples)]
        request.sparse[name] = [[int(next(values)) for _ in range(bag)] for bag in bags]
        if item["weighted"]:
            request.weights[name] = [[next(weights) for _ in range(bag)] for bag in bags]
    assert [list(rest) for rest in (lengths, values, weights, shared, own)] == [[]] * 5
    return request


def assert_samples_follow_from_the_bytes(package, count):
    verify_package(package)
    manifest = json.loads((package / "manifest.json").read_text())
    oracle = Oracle(package)
    samples = Package.open(package).samples()
    assert len(samples) == count
    for sample in samples:
        expected = oracle.answer(request_of(sample, manifest))
        assert sample.outputs.keys() == expected.keys()
        for name, output in expected.items():
            assert_allclose(sample.outputs[name], output, rtol=0, atol=1e-6)


@pytest.mark.parametrize("weights", ["int8", "int4", "fp16", {"items": "int4", "*": "int8"}])
def test_random_samples_of_every_input_follow_from_the_bytes(weights, tmp_path):
    out = export_model(ranker(), EVERY_KIND, tmp_path / "ranker/1", weights=weights)
    assert_samples_follow_from_the_bytes(out, count=3)


def test_given_samples_follow_from_the_bytes(tmp_path):
    requests = [sample_request(), sample_request(request_dense=np.array([2, 3], np.float32))]
    out = export_model(ranker(), EVERY_KIND, tmp_path / "ranker/1", samples=requests)
    assert_samples_follow_from_the_bytes(out, count=2)
    first, second = Package.open(out).samples()
    assert_array_equal(first.values, sample_request().values)
    assert_array_equal(second.request_dense, [2, 3])


def test_a_logit_model_scores_the_sigmoid_of_its_logits(tmp_path):
    class Zero(LogitModel):
        def __init__(self):
            super().__init__()
            self.embeddings = collection()

        def forward(self, dense, sparse):
            return self.embeddings(sparse)["user"][:, :1] * 0 + dense[:, 1:2]

    out = export_model(Zero(), SCHEMA, tmp_path / "zero/1", samples=[REQUEST])

    (sample,) = Package.open(out).samples()
    # The sigmoids of 1 and 0.25.
    assert_allclose(sample.outputs["score"], [0.7310586, 0.5621765], atol=1e-6)


def test_rows_are_the_bytes_of_the_weights(tmp_path):
    module = dlrm()
    weight = module.sparse_arch.embedding_bag_collection.embedding_bags["users"].weight
    with torch.no_grad():
        weight[0] = torch.tensor([-1.0, 0.0, 0.5, 1.55])  # The scale is 2.55 / 255 = 0.01.
        weight[1] = 0.25
    out = export_model(module, SCHEMA, tmp_path / "dlrm/1")

    rows = Package.open(out).read_rows("users", np.array([0, 1]))

    scale, bias = rows[0, :4].copy().view(np.float16)
    assert (scale, bias) == (np.float16(0.01), np.float16(-1))
    assert rows[0, 4:].tolist() == [0, 100, 150, 255]
    assert rows[1, 2:4].copy().view(np.float16) == 0.25
    assert rows[1, 4:].tolist() == [0, 0, 0, 0]


@cases(("weights", "levels"), {"int8": ("int8", 255), "int4": ("int4", 15)})
def test_errors_in_the_manifest_are_those_of_the_stored_rows(weights, levels, tmp_path):
    module = dlrm()
    out = export_model(module, SCHEMA, tmp_path / "dlrm/1", weights=weights)

    state = module.sparse_arch.embedding_bag_collection.state_dict()
    report = json.loads((out / "report/report.json").read_text())
    tables = json.loads((out / "manifest.json").read_text())["tables"]
    for table, reported in zip(tables, report["tables"], strict=True):
        weight = state[f"embedding_bags.{table['name']}.weight"].numpy().astype(np.float64)
        stored = Oracle(out)._tables[table["name"]].astype(np.float64)
        assert_allclose(table["mse"], np.square(weight - stored).mean(), rtol=1e-4)
        assert_allclose(table["max_error"], np.abs(weight - stored).max(), rtol=1e-4)
        span = (weight.max(1) - weight.min(1)).max()
        assert 0 < table["max_error"] < span / levels
        assert reported["mse"] == table["mse"]
        assert reported["bytes_fp32"] == 4 * weight.size
    assert report["bytes"] == sum(table["rows"] * table["row_bytes"] for table in tables)


def test_a_plan_puts_large_tables_first_on_the_emptiest_device(tmp_path):
    tables = [
        EmbeddingBagConfig(
            name=name, num_embeddings=rows, embedding_dim=4, feature_names=[f"of_{name}"]
        )
        for name, rows in (("a", 10), ("b", 40), ("c", 25), ("d", 20))
    ]
    schema = Schema(sparse=[SparseInput(f"of_{name}") for name in "abcd"])
    module = Forward(
        lambda m, d, s: m.embeddings(s).values().sum(1), embeddings=collection(tables=tables)
    )

    out = export_model(module, schema, tmp_path / "m/1", devices="2xcpu")

    # By size: b (40) goes to 0, c (25) to 1, d (20) to 1, which holds less, and a (10) to 0.
    plan = Package.open(out).plan()
    assert plan.devices == ("cpu:0", "cpu:1")
    assert {s.table: s.devices for s in plan.shards} == {"a": (0,), "b": (0,), "c": (1,), "d": (1,)}


def test_progress_counts_the_rows_of_all_tables(tmp_path):
    calls: list[ExportProgress] = []
    rows = SLICE_BYTES // (4 * 64) + 1  # One slice and one row.
    tables = [
        EmbeddingBagConfig(name="big", num_embeddings=rows, embedding_dim=64, feature_names=["x"]),
        EmbeddingBagConfig(name="tiny", num_embeddings=3, embedding_dim=4, feature_names=["y"]),
    ]
    module = Forward(
        lambda m, d, s: m.embeddings(s).values().sum(1), embeddings=collection(tables=tables)
    )
    schema = Schema(sparse=[SparseInput("x"), SparseInput("y")])

    export_model(module, schema, tmp_path / "m/1", progress=calls.append)

    assert [(call.table, call.rows_done) for call in calls] == [
        ("big", rows - 1),
        ("big", rows),
        ("tiny", rows + 3),
    ]
    assert {call.rows_total for call in calls} == {rows + 3}


@pytest.mark.parametrize(
    "limits", [Limits(max_examples=2, max_ids=1), Limits(max_examples=1, max_ids=40)]
)
def test_random_samples_keep_the_limits(limits, tmp_path):
    out = export_model(ranker(), EVERY_KIND, tmp_path / "ranker/1", limits=limits)
    verify_package(out)
    for sample in Package.open(out).samples():
        assert sample.num_examples <= limits.max_examples
        assert len(sample.values) <= limits.max_ids
    assert Package.open(out).manifest.limits == limits


def test_the_manifest_says_what_the_schema_says(tmp_path):
    out = export_model(ranker(), EVERY_KIND, tmp_path / "ranker/12")
    package = Package.open(out)
    assert package.schema() == EVERY_KIND
    assert (package.manifest.model, package.manifest.version) == ("ranker", 12)
    assert [(o.name, o.scope, o.shape) for o in package.manifest.outputs] == [
        ("score", "example", ()),
        ("parts", "example", (2,)),
        ("user_vector", "request", (6,)),
    ]


def test_the_same_seed_gives_the_same_samples(tmp_path):
    def values(name, seed):
        out = export_model(ranker(), EVERY_KIND, tmp_path / name / "1", seed=seed)
        return [sample.values.tolist() for sample in Package.open(out).samples()]

    assert values("a", 1) == values("b", 1) != values("c", 2)


def test_the_first_pattern_that_fits_decides(tmp_path):
    weights = {"item*": "fp16", "*": "int4"}
    out = export_model(dlrm(), SCHEMA, tmp_path / "dlrm/1", weights=weights)
    kinds = {table.name: table.weights for table in Package.open(out).manifest.tables}
    assert kinds == {"items": "fp16", "users": "int4"}
