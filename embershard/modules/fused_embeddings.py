"""``FusedEmbeddingCollection``: unpooled lookups that train their tables in backward."""

from collections.abc import Sequence

import torch

from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from embershard.kernels import FusedOptimizer, device_of
from embershard.modules.bags import read_lists
from embershard.modules.configs import EmbeddingConfig
from embershard.modules.embeddings import vectors_of_lists
from embershard.modules.fused_storage import FusedCollection
from embershard.modules.tables import TableDict, check_one_dim, check_tables


class FusedEmbeddingCollection(FusedCollection):
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

    def embedding_configs(self) -> list[EmbeddingConfig]:
        """The tables, in order."""
        return list(self._configs)
