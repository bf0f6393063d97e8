"""Disaggregated multi-tower: each tower compresses its own features, then towers interact.

Source: Luo et al., "Disaggregated Multi-Tower: Topology-aware Modeling Technique for Efficient
Large-Scale Recommendation", arXiv 2403.00877.

::

    dense          [B, n] --- dense_arch ---------> [B, D] -----+
                                                                |
    features of tower 1 --- products, linear layer --> [B, k, D] +-- products --> over_arch
    features of tower 2 --- products, linear layer --> [B, k, D] +      --> logits [B, T]

If a plan puts the tables of each tower on one host, only the k vectors of each tower cross
hosts, as in the paper; see `embershard.sharding.tower_dist`. Under other plans the vectors of all
features are exchanged, as for other models.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor, KeyedTensor
from embershard.models.base import LogitModel, Loss, check_logits
from embershard.models.base_config import LAYER_MAX
from embershard.models.dlrm import DLRMBaseConfig
from embershard.models.dlrm_parts import DenseArch, InteractionArch, OverArch, check_dense_width
from embershard.modules import (
    EmbeddingBagConfig,
)
from embershard.modules.fused_embeddings import BagModule
from embershard.modules.tables import check_one_dim, embedding_names
from embershard.modules.towers import Towers
from embershard.package.schema import Schema
from embershard.sections import as_tuple


class TowerModule(nn.Module):
    """The vectors of one tower and their dot products, in a linear layer to k vectors.

    Args:
        keys: of the pooled features, at least one.
        dim: D, width of each.
        vectors: k.
        device: device of the layer; torch's default if None.
    """

    def __init__(
        self, keys: Sequence[str], dim: int, vectors: int, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        self.keys, self.dim, self.vectors = list(keys), dim, vectors
        others = len(keys) - 1
        self.interaction = InteractionArch(others, device=device) if others else None
        products = others * (others + 1) // 2
        self.linear = nn.Linear(dim * len(keys) + products, dim * vectors, device=device)

    def forward(self, pooled: KeyedTensor) -> Tensor:
        """float32 ``(rows, k, D)``."""
        own = torch.cat([pooled[key] for key in self.keys], dim=1)
        if self.interaction is not None:
            first, others = own[:, : self.dim], own[:, self.dim :]
            stacked = others.reshape(-1, len(self.keys) - 1, self.dim)
            own = torch.cat([self.interaction(first, stacked), others], dim=1)
        output: Tensor = self.linear(own)
        return output.reshape(-1, self.vectors, self.dim)


class DMT(LogitModel):
    """A ranker whose towers compress their features before they interact.

    Args:
        embedding_bag_collection: all of its tables of one width, D.
        towers: for each tower its outputs of the collection; every output in exactly one.
        tower_vectors: k, at least 1.
        dense_in_features: number of dense features.
        dense_arch_layer_sizes: width of each layer; the last must be D.
        over_arch_layer_sizes: width of each layer, at least two; the last must be T, the number of
            tasks.
        dense_device: device of the dense layers; torch's default if None.
        tasks: see `LogitModel`.

    Raises:
        InputError: towers or sizes that do not fit.
    """

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        towers: Sequence[Sequence[str]],
        tower_vectors: int,
        dense_in_features: int,
        dense_arch_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(tasks)
        names = embedding_bag_collection.embedding_names()
        if sorted(key for tower in towers for key in tower) != sorted(names) or not all(towers):
            raise InputError(
                f"towers: expected each of the features {names} in exactly one tower, and no empty "
                f"tower; got {[list(tower) for tower in towers]}"
            )
        if tower_vectors < 1:
            raise InputError(f"tower_vectors: expected at least 1, got {tower_vectors}")
        tables = embedding_bag_collection.embedding_bag_configs()
        check_one_dim(tables)
        dim = tables[0].embedding_dim
        check_dense_width(dense_arch_layer_sizes, dim)
        check_logits(over_arch_layer_sizes, self.tasks)
        device, vectors = dense_device, len(towers) * tower_vectors
        self.embedding_bag_collection = embedding_bag_collection
        modules = (TowerModule(keys, dim, tower_vectors, device=device) for keys in towers)
        self.towers = Towers(modules, tower_vectors, dim)
        self.dense_arch = DenseArch(dense_in_features, dense_arch_layer_sizes, device=device)
        self.inter_arch = InteractionArch(vectors, device=device)
        self.over_arch = OverArch(
            dim + vectors + vectors * (vectors - 1) // 2, over_arch_layer_sizes, device=device
        )

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Logits ``(B, T)``; see `LogitModel`."""
        compressed = self.towers(self.embedding_bag_collection(sparse_features))
        dense = self.dense_arch(dense_features)
        logits: Tensor = self.over_arch(self.inter_arch(dense, compressed))
        return logits


def _as_tuples(value: object) -> object:
    """Tuples for a list of lists of TOML or JSON."""
    return tuple(as_tuple(tower) for tower in value) if isinstance(value, list) else value


class DMTConfig(DLRMBaseConfig):
    """Settings of a disaggregated multi-tower; the section ``[model]`` of a run's file."""

    model = DMT

    name: Literal["dmt"] = "dmt"
    """Name of the model."""

    towers: Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_as_tuples)] = ()
    """For each tower the names of its sparse inputs; each input is in exactly one tower."""

    tower_count: Annotated[int, Field(ge=1)] = 2
    """Without ``towers``: the number of towers that share the inputs evenly, in their order."""

    tower_vectors: Annotated[int, Field(ge=1, le=LAYER_MAX)] = 2
    """Vectors that each tower's inputs are compressed to."""

    def tower_inputs(self, features: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """The sparse inputs of each tower, from those of all tables."""
        names, count = list(dict.fromkeys(features)), self.tower_count
        return self.towers or tuple(
            tuple(names[len(names) * tower // count : len(names) * (tower + 1) // count])
            for tower in range(count)
        )

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        features = [feature for table in tables for feature in table.feature_names]
        keys = dict[str, list[str]]()
        for feature, key in zip(features, embedding_names(tables), strict=True):
            keys.setdefault(feature, []).append(key)
        if unknown := {name for tower in self.towers for name in tower}.difference(keys):
            raise InputError(
                f"model dmt: towers: expected sparse inputs of {list(keys)}, got {sorted(unknown)}"
            )
        towers = self.tower_inputs(features)
        return {
            **super()._constructor_arguments(tables, schema),
            "towers": [[key for name in tower for key in keys[name]] for tower in towers],
            "tower_vectors": self.tower_vectors,
        }
