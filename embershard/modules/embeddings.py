"""``EmbeddingBagCollection`` and ``EmbeddingCollection``: lookups in plain torch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from embershard.modules.bags import read_bags, read_lists
from embershard.modules.configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from embershard.modules.tables import (
    Collection,
    Table,
    TableDict,
    check_one_dim,
    check_tables,
    embedding_names,
    new_weight,
)
from embershard.modules.variable_batch import expand_pooled, pad_variable_batch


class EmbeddingBagCollection(Collection):
    """Embedding tables, and a pooled vector of each of their features.

    The state dict's keys are ``embedding_bags.<table>.weight``.

    ::

        import torch

        tables = [
            es.EmbeddingBagConfig(
                name="users", num_embeddings=1000, embedding_dim=8, feature_names=["user"]
            ),
            es.EmbeddingBagConfig(
                name="items", num_embeddings=4, embedding_dim=8, feature_names=["item"]
            ),
        ]
        sparse = es.KeyedJaggedTensor(
            ["user", "item"],
            values=torch.tensor([17, 4, 0, 1, 3]),
            lengths=torch.tensor([1, 1, 2, 1]),  # Users [17] and [4]; items [0, 1] and [3].
        )
        pooled = es.EmbeddingBagCollection(tables)(sparse)
        assert pooled["item"].shape == (2, 8)

    Args:
        tables: the tables; a feature may be looked up in several.
        is_weighted: True if each row is multiplied by its weight. A mean is the sum of these
            products divided by the number of ids, not by the sum of weights.
        device: device of the tables; torch's default if None.

    Raises:
        InputError: no tables, or two of one name.
    """

    PREFIX = "embedding_bags"
    _configs: tuple[EmbeddingBagConfig, ...]

    def __init__(
        self,
        tables: Sequence[EmbeddingBagConfig],
        is_weighted: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_tables(tables)
        self._configs = tuple(tables)
        self._is_weighted = is_weighted
        self._names = embedding_names(tables)
        self._dims = [table.embedding_dim for table in tables for _ in table.feature_names]
        self.embedding_bags = TableDict(
            {table.name: Table(new_weight(table, device)) for table in tables}
        )
        self.reset_parameters()

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Look up and pool.

        Args:
            features: rows of B examples, integers; -1 stands for a zero vector, which counts in
                a mean's divisor. Features that no table names are ignored. Weights are read
                only by a weighted collection. In a variable batch (``stride_per_key_per_rank``)
                B is the number of columns of its inverse indices.

        Returns:
            ``(B, embedding_dim)`` for each feature of each table, in order. The dtype is the
            tables', float32 for FP16. Keys are ``embedding_names()``.

        Raises:
            InputError: a feature or its weights missing; on CPU also a negative length or a row
                outside its table. On CUDA those end in a device-side assertion.
        """
        padded = pad_variable_batch(features)
        pooled = [
            self._pool(padded, feature, table)
            for table in self._configs
            for feature in table.feature_names
        ]
        owners = [feature for table in self._configs for feature in table.feature_names]
        vectors = expand_pooled(torch.cat(pooled, dim=1), features, owners, self._dims)
        return KeyedTensor(self._names, self._dims, vectors)

    def _pool(self, features: KeyedJaggedTensor, feature: str, table: EmbeddingBagConfig) -> Tensor:
        weight: Tensor = self.embedding_bags[table.name].weight
        is_half = table.data_type is DataType.FP16
        dtype = torch.float32 if is_half else weight.dtype
        bags = read_bags(features, feature, table, is_weighted=self._is_weighted, dtype=dtype)
        rows = bags.rows
        if is_half:  # Sums are float32.
            weight = nn.functional.embedding(rows, weight).float()
            rows = torch.arange(len(rows), device=rows.device)
        return nn.functional.embedding_bag(
            rows,
            weight,
            bags.lengths.cumsum(0) - bags.lengths,  # The first place of each bag.
            mode="sum",
            per_sample_weights=bags.weights,
        )

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        return list(self._configs)

    def is_weighted(self) -> bool:
        return self._is_weighted


class EmbeddingCollection(Collection):
    """Embedding tables, and a sequence for each of their features: the vector of every id.

    The state dict's keys are ``embeddings.<table>.weight``.

    ::

        table = es.EmbeddingConfig(
            name="items", num_embeddings=4, embedding_dim=8, feature_names=["item"]
        )
        vectors = es.EmbeddingCollection([table])(sparse)["item"]
        assert vectors.values().shape == (3, 8)
        assert vectors.to_padded_dense(2).shape == (2, 2, 8)

    Args:
        tables: the tables, all of one embedding_dim; a feature may be looked up in several.
        device: device of the tables; torch's default if None.

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
                table names, and all weights, are ignored.

        Returns:
            For each feature of each table, in order, the feature's lists with a vector in place of
            each row: values ``(total, embedding_dim)`` of the tables' dtype, float32 for FP16, and
            int64 lengths ``(B,)``. Keys are ``embedding_names()``.

        Raises:
            InputError: a feature missing; on CPU also a negative length or a row outside its
                table. On CUDA those end in a device-side assertion.
        """
        sequences = [
            self._look_up(features, feature, table)
            for table in self._configs
            for feature in table.feature_names
        ]
        return dict(zip(self._names, sequences, strict=True))

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
        return list(self._configs)

    def embedding_dim(self) -> int:
        return self._configs[0].embedding_dim


def vectors_of_lists(vectors: Tensor, lists: JaggedTensor) -> JaggedTensor:
    """Lists of vectors ``(total, dim)`` in place of rows; zeros without a gradient for row -1."""
    known = (lists.values() >= 0).unsqueeze(1)
    return JaggedTensor(vectors.where(known, vectors.new_zeros(())), lengths=lists.lengths())
