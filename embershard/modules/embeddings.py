"""``EmbeddingCollection``: unpooled lookups in plain torch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from embershard.modules.bags import read_lists
from embershard.modules.configs import DataType, EmbeddingConfig
from embershard.modules.tables import (
    Collection,
    Table,
    TableDict,
    check_one_dim,
    check_tables,
    embedding_names,
    new_weight,
)


class EmbeddingCollection(Collection):
    """Embedding tables, and for each of their features the vector of every id: a sequence.

    The state dict's keys are ``embeddings.<table>.weight``.

    Args:
        tables: the tables, all of one embedding_dim; a feature may be looked up in several.
        device: where the tables lie. None: torch's default.

    Raises:
        InputError: no tables, two of one name, or several widths.
    """

    PREFIX = "embeddings"

    def __init__(
        self,
        tables: Sequence[EmbeddingConfig],
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_tables(tables)
        check_one_dim(tables)
        self._configs = tuple(tables)
        self._names = embedding_names(tables)
        self.embeddings = TableDict(
            {table.name: Table(new_weight(table, device)) for table in tables}
        )
        self.reset_parameters()

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """Look up.

        Args:
            features: rows of B examples, integers; -1 stands for a zero vector. Features that no
                table names, and all weights, are left alone.

        Returns:
            Per table in order, per its features in order: the feature's lists with a vector in
            place of each row, values ``(total, embedding_dim)`` of the tables' dtype (float32
            of FP16) and int64 lengths ``(B,)``. Keys are ``embedding_names()``.

        Raises:
            InputError: a feature missing; on CPU also a negative length or a row outside its
                table. On CUDA those end in a device-side assertion.
        """
        found = [
            self._look_up(features, feature, table)
            for table in self._configs
            for feature in table.feature_names
        ]
        return dict(zip(self._names, found, strict=True))

    def _look_up(
        self, features: KeyedJaggedTensor, feature: str, table: EmbeddingConfig
    ) -> JaggedTensor:
        lists = read_lists(features, feature, table)
        weight = self.embeddings[table.name].weight
        vectors = nn.functional.embedding(lists.values().clamp(min=0), weight)
        if table.data_type is DataType.FP16:
            vectors = vectors.float()
        return vectors_of_lists(vectors, lists)

    def embedding_configs(self) -> list[EmbeddingConfig]:
        """The tables, in order."""
        return list(self._configs)


def vectors_of_lists(vectors: Tensor, lists: JaggedTensor) -> JaggedTensor:
    """Lists of vectors ``(total, dim)`` in place of rows; where the row is -1, zeros and no
    gradient."""
    known = (lists.values() >= 0).unsqueeze(1)
    return JaggedTensor(vectors.where(known, vectors.new_zeros(())), lengths=lists.lengths())
