"""``FusedEmbeddingCollection``: unpooled lookups that train their tables in backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from embershard.kernels import FusedOptimizer
from embershard.modules.bags import read_lists
from embershard.modules.configs import EmbeddingConfig
from embershard.modules.embeddings import vectors_of_lists
from embershard.modules.fused_storage import (
    check_stays,
    copy_optimizer_state,
    fused_tables,
    momentum_of,
    reduced,
)
from embershard.modules.tables import check_one_dim, check_tables, embedding_names


class FusedEmbeddingCollection(nn.Module):
    """As ``EmbeddingCollection``, with the optimizer inside the backward pass.

    Outputs, initial weights and state dict keys are the same; what is different is told by
    ``FusedEmbeddingBagCollection``, of which this is the unpooled kind. The kernel is FBGEMM's
    without pooling, on CPU as on CUDA, or torch where the dim is no multiple of 4.

    Args:
        tables: the tables; all of one embedding_dim and data_type.
        optimizer: "rowwise_adagrad", "adagrad" or "sgd"; the steps are in ``FusedOptimizer``.
        learning_rate: step size.
        eps: keeps the first step of a row finite; not used by "sgd".
        device: cpu or cuda. None: cpu.

    Raises:
        InputError: an optimizer, setting, table or device that cannot be used.
    """

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
        self._build(tables, fused, torch.device(device or "cpu"))
        self.reset_parameters()

    def _build(
        self, tables: Sequence[EmbeddingConfig], optimizer: FusedOptimizer, device: torch.device
    ) -> None:
        super().__init__()
        check_tables(tables)
        check_one_dim(tables)
        self._configs = tuple(tables)
        self._device = device
        self._names = embedding_names(tables)
        self._tables, self.embeddings = fused_tables(
            tables, optimizer=optimizer, device=device, pooled=False
        )

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """Look up; see ``EmbeddingCollection.forward``.

        Returns:
            Per table in order, per its features in order: values float32
            ``(total, embedding_dim)``, int64 lengths ``(B,)``.
        """
        lists = [
            read_lists(features, feature, table)
            for table in self._configs
            for feature in table.feature_names
        ]
        ends = torch.cat([each.lengths() for each in lists]).cumsum(0)
        vectors = self._tables.gather(
            torch.cat([each.values() for each in lists]).clamp(min=0),
            torch.cat([ends.new_zeros(1), ends]),
        )
        parts = torch.split(vectors, [each.values().numel() for each in lists])
        return {
            name: vectors_of_lists(part, each)
            for name, part, each in zip(self._names, parts, lists, strict=True)
        }

    def reset_parameters(self) -> None:
        """Fill every table anew, in order, with torch's default generator. Leaves the
        optimizer's state."""
        for table in self._configs:
            table.initialize(self.embeddings[table.name].weight)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Use another step size from the next backward on."""
        self._tables.set_learning_rate(learning_rate)

    def optimizer_state(self) -> dict[str, Tensor]:
        """What the optimizer remembers, to be saved beside the state dict.

        Returns:
            ``embeddings.<table>.momentum`` -> float32 ``(num_embeddings,)``, the mean squared
            gradients summed over all steps; views, so the next backward changes them. Empty for
            "sgd".
        """
        return momentum_of("embeddings", self._configs, self._tables)

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Copy back what ``optimizer_state()`` gave.

        Raises:
            InputError: other keys or shapes. Nothing has changed then.
        """
        copy_optimizer_state(self.optimizer_state(), state)

    def embedding_configs(self) -> list[EmbeddingConfig]:
        """The tables, in order."""
        return list(self._configs)

    def embedding_names(self) -> list[str]:
        """The outputs' keys: the feature, or ``feature@table`` where several tables share it."""
        return list(self._names)

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
        return reduced(self, self._configs, self._tables.optimizer, self._device)
