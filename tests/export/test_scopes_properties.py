"""Programs of random rankers, marked at random places, have the outputs of their modules."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from embershard.export.program_builder import build_program
from embershard.modules import EmbeddingBagConfig, to_examples
from embershard.package import DenseInput, Schema, SparseInput
from tests.export.expanding import Case
from tests.export.models import collection

SCOPES = st.sampled_from(["request", "example"])
NAMES = ("a", "b", "c")


@st.composite
def schemas(draw):
    """Schemas with three dense and three sparse inputs, of any scopes and in any order."""
    return Schema(
        dense=[DenseInput(f"d{i}", scope=draw(SCOPES)) for i in range(3)],
        sparse=[SparseInput(name, scope=draw(SCOPES)) for name in draw(st.permutations(NAMES))],
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["dense", "column", "pooled", "all", "mark", "linear", "add", "cat", "reshape", "stack"]
        ),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    min_size=3,
    max_size=14,
)


class RandomRanker(nn.Module):
    """Each step makes a value from earlier ones, and the last three values are the outputs.

    A value is ``(tensor (B, width), width, scopes)``. The scopes of the inputs that it depends on
    tell if it may be marked.
    """

    def __init__(self, steps, schema):
        super().__init__()
        self.steps = steps
        self.dense_scopes = [item.scope for item in schema.dense]
        self.scopes = {item.name: item.scope for item in schema.sparse}
        tables = [
            EmbeddingBagConfig(
                name=f"t{i}", num_embeddings=5, embedding_dim=4 * (1 + i % 2), feature_names=names
            )
            for i, names in enumerate((["a", "c"], ["b"]))
        ]
        self.embeddings = collection(tables=tables)
        torch.manual_seed(len(steps))
        self.matrix = nn.Parameter(torch.randn(64, 8) / 3)

    def forward(self, dense, sparse):
        pooled = self.embeddings(sparse)
        values = [
            self._pooled(dense, pooled, None, None, 1),
            self._dense(dense, pooled, None, None, 0),
        ]
        for name, first, second in self.steps:
            x, y = values[first % len(values)], values[second % len(values)]
            values.append(getattr(self, f"_{name}")(dense, pooled, x, y, second))
        return {f"out{i}": value for i, (value, _, _) in enumerate(values[-3:])}

    def _dense(self, dense, pooled, x, y, pick):
        start, stop = sorted((pick % 3, 1 + pick // 3 % 3))
        if start >= stop:
            return dense, 3, {*self.dense_scopes}
        return dense[:, start:stop], stop - start, {*self.dense_scopes[start:stop]}

    def _column(self, dense, pooled, x, y, pick):
        return dense[:, pick % 3].unsqueeze(1), 1, {self.dense_scopes[pick % 3]}

    def _pooled(self, dense, pooled, x, y, pick):
        name = "b" if pick % 3 == 1 else "ac"[pick % 2]
        return pooled[name], 8 if name == "b" else 4, {self.scopes[name]}

    def _all(self, dense, pooled, x, y, pick):
        return pooled.values(), 16, {*self.scopes.values()}

    def _mark(self, dense, pooled, x, y, pick):
        without_requests = "request" not in {*self.dense_scopes, *self.scopes.values()}
        if x[2] == {"request"} or without_requests:
            return to_examples(x[0]), x[1], {"example"}
        return x

    def _linear(self, dense, pooled, x, y, pick):
        return torch.tanh(x[0] @ self.matrix[: x[1]]), 8, x[2]

    def _add(self, dense, pooled, x, y, pick):
        width = min(x[1], y[1])
        return x[0][:, :width] + y[0][:, :width], width, x[2] | y[2]

    def _cat(self, dense, pooled, x, y, pick):
        if x[1] + y[1] > 64:
            return self._add(dense, pooled, x, y, pick)
        return torch.cat([x[0], y[0]], dim=1), x[1] + y[1], x[2] | y[2]

    def _reshape(self, dense, pooled, x, y, pick):
        cube = x[0].reshape(x[0].shape[0], x[0].shape[1], 1)
        return torch.cat([cube, cube], dim=2).sum(2), x[1], x[2]

    def _stack(self, dense, pooled, x, y, pick):
        width = min(x[1], y[1])
        return torch.stack([x[0][:, :width], y[0][:, :width]], dim=1).amax(1), width, x[2] | y[2]


@settings(max_examples=60, deadline=None)
@given(schema=schemas(), steps=STEPS)
def test_a_random_ranker_is_exported_as_it_computes(schema, steps):
    module = RandomRanker(steps, schema)

    program = build_program(module, schema, seed=0)

    case = Case(module, schema)
    with torch.no_grad():
        expected = module(*case.module_inputs())
        outputs = program.script(*case.program_inputs())
    assert list(outputs) == list(expected)
    for spec in program.outputs:
        output = outputs[spec.name]
        assert len(output) == (case.requests if spec.scope == "request" else case.examples)
        expanded = output[case.request_of_example] if spec.scope == "request" else output
        assert_close(expanded, expected[spec.name], rtol=1e-5, atol=1e-5)
