"""``FusedEmbeddingBagCollection``: pooled lookups that train their tables in backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embershard.jagged import KeyedJaggedTensor, KeyedTensor
from embershard.kernels import FusedOptimizer
from embershard.modules.bags import read_all_bags
from embershard.modules.configs import EmbeddingBagConfig
from embershard.modules.fused_storage import (
    check_stays,
    copy_optimizer_state,
    fused_tables,
    momentum_of,
    reduced,
)
from embershard.modules.tables import check_tables, embedding_names
from embershard.modules.variable_batch import expand_pooled, pad_variable_batch


class FusedEmbeddingBagCollection(nn.Module):
    """As ``EmbeddingBagCollection``, with the optimizer inside the backward pass.

    Outputs, initial weights and state dict keys are the same. Every ``backward()`` through the
    output updates the rows that were looked up, so the tables' weights need no gradient
    (``requires_grad`` is False) and no optimizer of the caller's touches them. The optimizer's
    state is apart from the state dict: ``optimizer_state()``.

    Tables whose dim is a multiple of 4 lie in one buffer of their data_type and are FBGEMM's; torch
    looks up and trains the others, which is slower. All stay where they were built: moving or
    casting the module is refused.

    Args:
        tables: the tables, all of one data_type.
        optimizer: "rowwise_adagrad", "adagrad" or "sgd"; the steps are in ``FusedOptimizer``.
        learning_rate: step size.
        eps: keeps the first step of a row finite; not used by "sgd".
        is_weighted: each row is multiplied by its weight. All tables must then pool by SUM.
        device: cpu or cuda. None: cpu.

    Raises:
        InputError: an optimizer, setting, table or device that cannot be used.
    """

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
        self._build(tables, fused, is_weighted, torch.device(device or "cpu"))
        self.reset_parameters()

    def _build(
        self,
        tables: Sequence[EmbeddingBagConfig],
        optimizer: FusedOptimizer,
        is_weighted: bool,
        device: torch.device,
    ) -> None:
        super().__init__()
        check_tables(tables, is_weighted=is_weighted)
        self._configs = tuple(tables)
        self._is_weighted = is_weighted
        self._device = device
        self._names = embedding_names(tables)
        self._dims = [table.embedding_dim for table in tables for _ in table.feature_names]
        self._tables, self.embedding_bags = fused_tables(
            tables, optimizer=optimizer, device=device, pooled=True
        )

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Look up and pool; see ``EmbeddingBagCollection.forward``.

        Returns:
            Per table in order, per its features in order: float32 ``(B, embedding_dim)``.
        """
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

    def reset_parameters(self) -> None:
        """Fill every table anew, in order, with torch's default generator. Leaves the
        optimizer's state."""
        for table in self._configs:
            table.initialize(self.embedding_bags[table.name].weight)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Use another step size from the next backward on."""
        self._tables.set_learning_rate(learning_rate)

    def optimizer_state(self) -> dict[str, Tensor]:
        """What the optimizer remembers, to be saved beside the state dict.

        Returns:
            ``embedding_bags.<table>.momentum`` -> float32 ``(num_embeddings,)``, the mean
            squared gradients summed over all steps; views, so the next backward changes them.
            Empty for "sgd".
        """
        return momentum_of("embedding_bags", self._configs, self._tables)

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Copy back what ``optimizer_state()`` gave.

        Raises:
            InputError: other keys or shapes. Nothing has changed then.
        """
        copy_optimizer_state(self.optimizer_state(), state)

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """The tables, in order."""
        return list(self._configs)

    def embedding_names(self) -> list[str]:
        """The outputs' keys: the feature, or ``feature@table`` where several tables share it."""
        return list(self._names)

    def is_weighted(self) -> bool:
        """Whether rows are multiplied by the features' weights."""
        return self._is_weighted

    @property
    def optimizer(self) -> FusedOptimizer:
        """The optimizer in backward, with the learning rate as it is now."""
        return self._tables.optimizer

    @property
    def device(self) -> torch.device:
        """Where the tables lie."""
        return self._tables.weights[0].device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # nn.Module's .to(), .cuda(), .half() and the like come here.
        check_stays(self._configs, self._tables, fn)
        parent: Any = super()
        return parent._apply(fn, recurse)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self, self._configs, self._tables.optimizer, self._is_weighted, self._device)
