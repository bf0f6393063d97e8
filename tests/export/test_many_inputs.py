"""The cost of an export grows with the number of sparse inputs, not with its square."""

import sys
from pathlib import Path

import torch
from torch import nn

import embershard
from embershard.export import export_model
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    to_examples,
)
from embershard.package import Schema, SparseInput, Vocabulary

OURS = str(Path(embershard.__file__).parent)


class Wide(nn.Module):
    """Reads the pooled vectors of half of its inputs, and the lists of the other half."""

    def __init__(self, count):
        super().__init__()
        tables = [
            {"name": f"t{i}", "num_embeddings": 3, "embedding_dim": 4, "feature_names": [f"f{i}"]}
            for i in range(count)
        ]
        self.bags = EmbeddingBagCollection([EmbeddingBagConfig(**table) for table in tables[::2]])
        self.lists = EmbeddingCollection([EmbeddingConfig(**table) for table in tables[1::2]])

    def forward(self, dense, sparse):
        pooled, lists = self.bags(sparse), self.lists(sparse)
        users = [pooled[name] for name in self.bags.embedding_names()]
        items = [lists[name].to_padded_dense(2).sum(1) for name in self.lists.embedding_names()]
        return to_examples(sum(users).sum(1)) + sum(items).sum(1)


def lines_run(count, folder):
    """Number of lines of embershard that an export of ``count`` inputs runs, with repetitions."""
    inputs = [
        SparseInput(f"f{i}", ("request", "example")[i % 2], Vocabulary([3 * i, 3 * i + 1, -1 - i]))
        for i in range(count)
    ]
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        lines += event == "line"
        return trace if frame.f_code.co_filename.startswith(OURS) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        export_model(Wide(count), Schema(dense=[], sparse=inputs), folder / f"m/{count}")
    finally:
        sys.settrace(before)
    return lines


def test_twice_the_inputs_cost_twice_the_work(tmp_path):
    torch.manual_seed(0)
    lines_run(2, tmp_path)  # Runs the code that runs once in a process.
    small, middle, large = (lines_run(count, tmp_path) for count in (10, 20, 40))
    assert (large - middle) / (middle - small) < 2.1
