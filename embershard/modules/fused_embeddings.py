"""``FusedEmbeddingBagCollection`` and ``FusedEmbeddingCollection``: lookups that train their tables
in backward."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch.nn.functional import pad

from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from embershard.kernels import FusedOptimizer, device_of
from embershard.modules.bags import read_all_bags, read_lists
from embershard.modules.configs import EmbeddingBagConfig, EmbeddingConfig
from embershard.modules.embeddings import (
    EmbeddingBagCollection,
    EmbeddingCollection,
    vectors_of_lists,
)
from embershard.modules.fused_storage import FusedCollection
from embershard.modules.tables import TableDict, check_one_dim, check_tables
from embershard.modules.variable_batch import expand_pooled, pad_variable_batch


class FusedEmbeddingBagCollection(FusedCollection):
    """An ``EmbeddingBagCollection`` with the optimizer inside the backward pass.

    Outputs, initial weights and state dict keys are the same. Every ``backward()`` through the
    output updates the rows that were looked up, so the tables' weights need no gradient
    (``requires_grad`` is False) and no optimizer of the caller's touches them. The optimizer's
    state is not in the state dict, but in ``optimizer_state()``.

    Tables whose dim is a multiple of 4 share one buffer. FBGEMM looks them up. It also trains them
    on CUDA; on CPU an operator of embershard does. Torch does both for other tables, more slowly.
    Tables stay on their device: moving or casting the module is refused.

    ::

        fused = es.FusedEmbeddingBagCollection(tables, learning_rate=0.1)
        before = fused.state_dict()["embedding_bags.items.weight"].clone()
        fused(sparse).values().sum().backward()
        after = fused.state_dict()["embedding_bags.items.weight"]
        assert (before != after).any(dim=1).tolist() == [True, True, False, True]

    Args:
        tables: the tables, all of one data_type.
        optimizer: "rowwise_adagrad", "adagrad" or "sgd"; the steps are in ``FusedOptimizer``.
        learning_rate: step size.
        eps: keeps the first step of a row finite; not used by "sgd".
        is_weighted: True if each row is multiplied by its weight. A mean is the sum of these
            products divided by the number of ids, not by the sum of weights.
        device: cpu or cuda; cpu if None.

    Raises:
        InputError: an optimizer, setting, table or device that cannot be used.
    """

    PREFIX = "embedding_bags"
    _configs: tuple[EmbeddingBagConfig, ...]
    embedding_bags: TableDict

    def __init__(
        self,
        tables: Sequence[EmbeddingBagConfig],
        *,
        optimizer: str = "rowwise_adagrad",
        learning_rate: float = 0.01,
        eps: float = 1e-8,
        is_weighted: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        fused = FusedOptimizer(name=optimizer, learning_rate=learning_rate, eps=eps)
        self._build(tables, fused, device_of(device or "cpu"), is_weighted)
        self.reset_parameters()

    def _build(
        self,
        tables: Sequence[EmbeddingBagConfig],
        optimizer: FusedOptimizer,
        device: torch.device,
        is_weighted: bool,
    ) -> None:
        super().__init__()
        check_tables(tables)
        self._is_weighted = is_weighted
        self._dims = [table.embedding_dim for table in tables for _ in table.feature_names]
        self._lay_out(tables, optimizer, device, pooled=True)

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Look up and pool, to float32; see ``EmbeddingBagCollection.forward``."""
        padded = pad_variable_batch(features)
        bags = read_all_bags(
            padded, self._configs, is_weighted=self._is_weighted, dtype=torch.float32
        )
        offsets = bags.lengths.new_zeros(len(bags.lengths) + 1)
        torch.cumsum(bags.lengths, 0, out=offsets[1:])
        pooled = self._tables.lookup(bags.rows, offsets, bags.weights)
        owners = [feature for table in self._configs for feature in table.feature_names]
        vectors = expand_pooled(pooled, features, owners, self._dims)
        return KeyedTensor(self._names, self._dims, vectors)

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        return list(self._configs)

    def is_weighted(self) -> bool:
        return self._is_weighted

    def _settings(self) -> tuple[object, ...]:
        return (self._is_weighted,)


class FusedEmbeddingCollection(FusedCollection):
    """An ``EmbeddingCollection`` with the optimizer inside the backward pass.

    Outputs, initial weights and state dict keys are the same. ``FusedEmbeddingBagCollection`` tells
    the differences. The kernel is FBGEMM's without pooling, or torch's if the dim is no multiple
    of 4.

    Args:
        tables: the tables, all of one data_type and one embedding_dim.
        optimizer, learning_rate, eps, device: see ``FusedEmbeddingBagCollection``.

    Raises:
        InputError: an optimizer, setting, table or device that cannot be used.
    """

    PREFIX = "embeddings"
    embeddings: TableDict

    def __init__(
        self,
        tables: Sequence[EmbeddingConfig],
        *,
        optimizer: str = "rowwise_adagrad",
        learning_rate: float = 0.01,
        eps: float = 1e-8,
        device: torch.device | str | None = None,
    ) -> None:
        fused = FusedOptimizer(name=optimizer, learning_rate=learning_rate, eps=eps)
        self._build(tables, fused, device_of(device or "cpu"))
        self.reset_parameters()

    def _build(
        self, tables: Sequence[EmbeddingConfig], optimizer: FusedOptimizer, device: torch.device
    ) -> None:
        super().__init__()
        check_tables(tables)
        check_one_dim(tables)
        self._lay_out(tables, optimizer, device, pooled=False)

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """Look up, to float32; see ``EmbeddingCollection.forward``."""
        lists = [
            read_lists(features, feature, table)
            for table in self._configs
            for feature in table.feature_names
        ]
        # The kernel needs equally many lists for each lookup; a variable batch has not.
        lengths = [jagged.lengths() for jagged in lists]
        most = max(map(len, lengths))
        ends = torch.cat([pad(own, (0, most - len(own))) for own in lengths]).cumsum(0)
        vectors = self._tables.gather(
            torch.cat([jagged.values() for jagged in lists]).clamp(min=0),
            torch.cat([ends.new_zeros(1), ends]),
        )
        parts = torch.split(vectors, [jagged.values().numel() for jagged in lists])
        return {
            name: vectors_of_lists(part, jagged)
            for name, part, jagged in zip(self._names, parts, lists, strict=True)
        }

    def embedding_configs(self) -> list[EmbeddingConfig]:
        return list(self._configs)

    def embedding_dim(self) -> int:
        return self._configs[0].embedding_dim


BagModule: TypeAlias = EmbeddingBagCollection | FusedEmbeddingBagCollection
SequenceModule: TypeAlias = EmbeddingCollection | FusedEmbeddingCollection
