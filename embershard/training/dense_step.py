"""``dense_step_seconds``: what a rank's step takes besides its collections, on the model."""

import copy
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from embershard.data.row_batches import RowExamples, batches
from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from embershard.modules import EmbeddingBagConfig
from embershard.modules.tables import embedding_names
from embershard.sharding.sharders import Sharder, shardable
from embershard.sharding.types import tables_of
from embershard.training.config import RunConfig
from embershard.training.parts import dense_optimizer

FIRST_STEPS, STEPS = 2, 5
"""The first ones, which allocate, are not counted."""


class _ZeroVectors(nn.Module):
    """As a collection, without its tables: zero vectors that take a gradient."""

    def __init__(self, collection: nn.Module) -> None:
        super().__init__()
        self._configs = tables_of(collection)
        self._is_pooled = all(isinstance(each, EmbeddingBagConfig) for each in self._configs)

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor | dict[str, JaggedTensor]:
        names = embedding_names(self._configs)
        lookups = [(table, name) for table in self._configs for name in table.feature_names]
        if self._is_pooled:
            dims = [table.embedding_dim for table, _ in lookups]
            vectors = torch.zeros(features.stride(), sum(dims), requires_grad=True)
            return KeyedTensor(names, dims, vectors)
        lists = [(features[name], table.embedding_dim) for table, name in lookups]
        found = [
            JaggedTensor(
                torch.zeros(len(each.values()), dim, requires_grad=True), lengths=each.lengths()
            )
            for each, dim in lists
        ]
        return dict(zip(names, found, strict=True))


def dense_step_seconds(
    config: RunConfig,
    model: nn.Module,
    sharders: Sequence[Sharder],
    train: RowExamples,
    world_size: int,
) -> float:
    """CPU seconds of a rank's step without lookups, updates and messages: its batch, the dense part
    forward and backward, and its optimizer. The median of a few steps of a copy of the model.

    Args:
        config: of the run.
        model: whose collections may be on device meta; left as it is.
        sharders: of its collections.
        train: the training split.
        world_size: ranks.
    """
    twin = copy.deepcopy(model)
    for path, module, _ in list(shardable(twin, sharders)):
        twin.set_submodule(path, _ZeroVectors(module))
    settings, seconds = config.training, list[float]()
    optimizer = dense_optimizer(twin, settings)
    found = batches(
        train,
        batch_size=settings.batch_size,
        shuffle_seed=settings.seed,
        id_dropout=settings.id_dropout,
        world_size=world_size,
    )
    with torch.random.fork_rng(devices=[]):
        started = time.process_time()
        for _, batch in zip(range(FIRST_STEPS + STEPS), found, strict=False):
            logits = twin(batch.dense, batch.sparse).squeeze(1)
            loss: Tensor = nn.functional.binary_cross_entropy_with_logits(logits, batch.labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            now = time.process_time()
            seconds.append(now - started)
            started = now
    return float(np.median(seconds[FIRST_STEPS:] or seconds)) if seconds else 0.0
