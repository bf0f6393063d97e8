"""Inputs of a module and of its dense program, computed by hand, for comparisons of both."""

import numpy as np
import torch
from torch import nn

from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingCollection,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
)

REQUEST_OF_EXAMPLE = torch.tensor([0, 0, 0, 1, 2, 2, 3, 4, 4, 4, 4])
"""Request of each example. R = 5 and B = 11 are sizes that the exporter's check does not use."""


class Forward(nn.Module):
    """A module whose forward is a function of (self, dense, sparse)."""

    def __init__(self, function, **submodules):
        super().__init__()
        self.function = function
        for name, submodule in submodules.items():
            setattr(self, name, submodule)

    def forward(self, dense, sparse):
        return self.function(self, dense, sparse)


class Case:
    """One batch of R requests and B examples, as inputs of a module and of its program.

    Args:
        module: holds the embedding collections.
        schema: the module's inputs. Tables must hold at least 5 rows.
        seed: for all random values.
    """

    def __init__(self, module, schema, *, seed=0, request_of_example=REQUEST_OF_EXAMPLE):
        self._random = np.random.default_rng(seed)
        self._schema = schema
        self.request_of_example = request_of_example
        self.requests = int(request_of_example[-1]) + 1
        self.examples = len(request_of_example)
        collections = [
            item
            for item in module.modules()
            if isinstance(item, EmbeddingBagCollection | FusedEmbeddingBagCollection)
        ]
        self._tables = [
            (config, collection.state_dict()[f"embedding_bags.{config.name}.weight"].numpy())
            for collection in collections
            for config in collection.embedding_bag_configs()
        ]
        self._sequence_tables = [
            (config, item.state_dict()[f"embeddings.{config.name}.weight"].numpy())
            for item in module.modules()
            if isinstance(item, EmbeddingCollection | FusedEmbeddingCollection)
            for config in item.embedding_configs()
        ]
        self._dense = {
            item.name: self._random.standard_normal(self._count(item)).astype(np.float32)
            for item in schema.dense
        }
        self._bags = {
            item.name: [self._random.integers(0, 5, n) for n in self._lengths(item)]
            for item in schema.sparse
        }
        self._factors = {
            name: [self._random.random(len(bag), np.float32) for bag in bags]
            for name, bags in self._bags.items()
        }

    def _count(self, item):
        return self.requests if item.scope == "request" else self.examples

    def _lengths(self, item):
        return self._random.integers(0, 4, self._count(item))

    def _spread(self, item, values):
        """The values of an input, one for each example."""
        if item.scope == "example":
            return list(values)
        return [values[request] for request in self.request_of_example.tolist()]

    def module_inputs(self):
        """``(dense, sparse)`` of B examples. Each example has a copy of its request's values."""
        columns = [self._spread(item, self._dense[item.name]) for item in self._schema.dense]
        dense = np.array(columns, np.float32).reshape(len(columns), self.examples).T
        bags, factors = [], []
        for item in self._schema.sparse:
            bags += self._spread(item, self._bags[item.name])
            factors += self._spread(item, self._factors[item.name])
        weighted = any(item.weighted for item in self._schema.sparse)
        sparse = KeyedJaggedTensor(
            keys=self._schema.sparse_names(),
            values=torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *bags])),
            lengths=torch.tensor([len(bag) for bag in bags], dtype=torch.int64),
            weights=torch.from_numpy(np.concatenate(factors)) if weighted else None,
        )
        return torch.from_numpy(np.ascontiguousarray(dense)), sparse

    def program_inputs(self):
        """``(request_inputs, example_inputs, request_of_example)``, as a server passes them."""
        return (
            [
                self._dense_matrix("request"),
                self._pooled_matrix("request"),
                *self._sequences("request"),
            ],
            [
                self._dense_matrix("example"),
                self._pooled_matrix("example"),
                *self._sequences("example"),
            ],
            self.request_of_example,
        )

    def _sequences(self, scope):
        """Values and offsets of each input and table, in the order of inputs, then of tables."""
        results = []
        for item in self._schema.sparse:
            for config, weight in self._sequence_tables:
                if item.scope == scope and item.name in config.feature_names:
                    bags = self._bags[item.name]
                    rows = np.concatenate([np.zeros(0, np.int64), *bags])
                    ends = np.cumsum([0, *map(len, bags)])
                    results += [torch.from_numpy(weight[rows]), torch.from_numpy(ends)]
        return results

    def _dense_matrix(self, scope):
        columns = [self._dense[item.name] for item in self._schema.dense if item.scope == scope]
        rows = self.requests if scope == "request" else self.examples
        return torch.from_numpy(np.array(columns, np.float32).reshape(len(columns), rows).T.copy())

    def _pooled_matrix(self, scope):
        """Pooled vectors of each input and table, in the order of inputs, then of tables."""
        rows = self.requests if scope == "request" else self.examples
        parts = [np.zeros((rows, 0), np.float32)]
        for item in self._schema.sparse:
            for config, weight in self._tables:
                if item.scope == scope and item.name in config.feature_names:
                    parts.append(self._pool(item, config, weight))
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def _pool(self, item, config, weight):
        pooled = np.zeros((len(self._bags[item.name]), weight.shape[1]), np.float32)
        for place, bag in enumerate(self._bags[item.name]):
            for row, factor in zip(bag, self._factors[item.name][place], strict=True):
                pooled[place] += weight[row] * (factor if item.weighted else 1)
            if config.pooling.name == "MEAN" and len(bag):
                pooled[place] /= len(bag)
        return pooled
