"""Served published recommenders have the scores of their modules in plain PyTorch."""

import numpy as np
import pytest
import torch

from embershard._proto import predictor_pb2 as pb
from embershard.export import export_model
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import EmbeddingBagCollection, EmbeddingCollection
from embershard.package import Package
from tests.export.published_models import MODELS, schema_of
from tests.serving.asking import outputs_of, packed_sample
from tests.serving.messages import MessagePredictor


def with_stored_rows(model, package):
    """Replaces the rows of a model's tables by those of its package."""
    for module in model.modules():
        if isinstance(module, EmbeddingBagCollection | EmbeddingCollection):
            for name, weight in module.state_dict().items():
                table = package.manifest.table(name.split(".")[-2])
                rows = package.read_rows(table.name, np.arange(table.rows))
                weight.copy_(torch.from_numpy(table.row_format.dequantize_rows(rows)))
    return model


def as_batch(sample, schema):
    """A sample as inputs of forward. Every example has a copy of the request's values."""
    columns, parts = (
        [],
        {"request": iter(sample.request_dense), "example": iter(sample.example_dense.T)},
    )
    for item in schema.dense:
        columns.append(np.broadcast_to(next(parts[item.scope]), sample.num_examples))
    values, lengths = [], []
    for item, lists in zip(schema.sparse, sample.lists(schema.sparse), strict=True):
        repeats = sample.num_examples if item.scope == "request" else 1
        values.append(np.tile(lists.values, repeats))
        lengths.append(np.tile(lists.lengths, repeats))
    sparse = KeyedJaggedTensor(
        keys=schema.sparse_names(),
        values=torch.from_numpy(np.concatenate(values)),
        lengths=torch.from_numpy(np.concatenate(lengths).astype(np.int64)),
    )
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float32)), sparse


@pytest.mark.parametrize("cls", MODELS, ids=lambda cls: cls.__name__)
def test_published_model_serves_the_scores_of_its_module(cls, tmp_path):
    torch.manual_seed(0)
    model, schema = cls(), schema_of(cls)
    folder = export_model(model, schema, tmp_path / "model" / "1")

    package = Package.open(folder)
    local = MessagePredictor(folder, threads=1, slots=1)
    fingerprint = pb.GetModelResponse.FromString(local.get_model()).schema
    samples = package.samples()
    messages = [packed_sample(sample, fingerprint).SerializeToString() for sample in samples]
    with torch.no_grad():
        with_stored_rows(model, package).eval()
        for sample, answer in zip(samples, local.answers(messages), strict=True):
            expected = model(*as_batch(sample, schema))
            expected = expected if isinstance(expected, dict) else {"score": expected}
            outputs = outputs_of(answer)
            assert outputs.keys() == expected.keys()
            for name, output in expected.items():
                # An output in request scope has one row.
                served = np.broadcast_to(outputs[name], tuple(output.shape))
                np.testing.assert_allclose(served, output, rtol=1e-4, atol=1e-5)
