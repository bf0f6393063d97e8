"""Explanations with two tables of one input, plans for other machines, and wrong counts."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from embershard.errors import InternalError, PackageError, PlanError
from embershard.explain import explain_request, explain_sample, explanation, explanation_json
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig, PoolingType
from embershard.package import Identity, Schema, SparseInput
from tests.cases import refused
from tests.serving.models import seal

ROWS = 20


class TwoTables(nn.Module):
    """One input with two tables: a sum in int4 and a mean in fp16."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bags = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name=name,
                    num_embeddings=ROWS,
                    embedding_dim=dim,
                    feature_names=["item"],
                    pooling=pooling,
                )
                for name, dim, pooling in (
                    ("deep", 8, PoolingType.SUM),
                    ("wide", 4, PoolingType.MEAN),
                )
            ]
        )

    def forward(self, dense, sparse):
        pooled = self.bags(sparse)
        return pooled.values().sum(dim=1)


@pytest.fixture(scope="module")
def two_tables(tmp_path_factory):
    schema = Schema(sparse=[SparseInput("item", ids=Identity(ROWS, unknown="zero"))])
    out = tmp_path_factory.mktemp("two") / "two" / "1"
    weights = {"deep": "int4", "wide": "fp16"}
    return export_model(TwoTables(), schema, out, weights=weights, devices="1xcpu")


def stored(package, table):
    return load_file(package / f"tables/{table}/00000.safetensors")["rows"]


def test_an_input_of_two_tables_has_vectors_of_both(two_tables):
    explanation = explanation_json(explain_request(two_tables, sparse={"item": [[3, 7, 99]]}))
    (item,) = explanation["sparse"]
    assert [lookup["table"] for lookup in item["lookups"]] == ["deep", "wide"]
    assert [lookup["weights"] for lookup in item["lookups"]] == ["int4", "fp16"]
    deep = stored(two_tables, "deep")
    header = deep[:, :4].copy().view("<f2").astype(np.float64)
    codes = np.stack([deep[:, 4:] % 16, deep[:, 4:] // 16], axis=2).reshape(ROWS, 8)
    deep = codes * header[:, :1] + header[:, 1:]
    wide = stored(two_tables, "wide").view("<f2").astype(np.float64)
    (only,) = item["lists"]
    for row, row_id in zip((3, 7), only["ids"], strict=False):
        norms = [np.linalg.norm(deep[row]), np.linalg.norm(wide[row])]
        assert row_id["norms"] == pytest.approx(norms, rel=1e-5)
    assert only["ids"][2]["norms"] == [0.0, 0.0]
    summed, mean = deep[3] + deep[7], (wide[3] + wide[7]) / 3  # The mean counts the zero vector.
    norms = [np.linalg.norm(summed), np.linalg.norm(mean)]
    assert only["pooled_norms"] == pytest.approx(norms, rel=1e-5)
    (name,) = explanation["outputs"]
    assert item["left_out"]["change"][name] == pytest.approx([-summed.sum() - mean.sum()], rel=1e-5)


def for_gpus(package, *plans):
    """Changes plans of the package to devices that the server here does not serve."""
    for plan in plans:
        file = package / "plans" / f"{plan}.json"
        file.write_text(file.read_text().replace("cpu:", "cuda:"))
    return seal(package, json.loads((package / "manifest.json").read_text()))


@pytest.fixture
def copied(package, tmp_path):
    out = tmp_path / "ranker" / "1"
    shutil.copytree(package, out)
    return out


def test_another_plan_scores_if_the_default_cannot_be_served(copied, package):
    actual = explain_sample(for_gpus(copied, "default"), 1).scores
    expected = explain_sample(package, 1).scores
    assert actual.keys() == expected.keys()
    for name in expected:
        assert actual[name] == pytest.approx(expected[name], abs=2e-6)


def test_a_package_with_no_plan_for_this_machine_is_refused(copied):
    with refused(PlanError, "device cuda:0: "):
        explain_sample(for_gpus(copied, "default", "2xcpu"))


def test_a_damaged_package_is_refused(copied):
    file = copied / "programs" / "dense.pt"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    with refused(PackageError, "programs/dense.pt: sha256"):
        explain_sample(copied)


def test_counting_unknown_ids_otherwise_than_the_server_is_a_bug(package, monkeypatch):
    def miscounted(predictor, request):
        answer, result = explanation_of(predictor, request)
        return answer._replace(unknown_ids={**answer.unknown_ids, "item": 77}), result

    explanation_of = explanation.leave_out
    monkeypatch.setattr(explanation, "leave_out", miscounted)
    with refused(InternalError, "unknown ids", "'item': 77"):
        explain_sample(package, 2)
