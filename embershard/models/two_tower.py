"""Two towers: a vector of the user, a vector of the item, and their dot product.

::

    user inputs --- user tower --> user [R, d] --+
                                                 +-- dot product + bias --> logits [B, 1]
    item inputs --- item tower --> item [B, d] --+

With the loss ``in_batch`` vectors have length 1, and logits are their dot product divided by a
temperature. Training then compares each user with the items of the whole batch.

Served, both vectors are outputs of their own. Vectors of all items go into an index. A request
without candidates returns the vector of its user, to find the nearest items.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor, KeyedTensor
from embershard.models.base import LogitModel, Loss, outputs_of
from embershard.models.base_config import Layers, NamedConfig, table_rows
from embershard.modules import (
    MLP,
    EmbeddingBagConfig,
    to_examples,
)
from embershard.modules.fused_embeddings import BagModule
from embershard.modules.in_batch import BUCKETS_MAX, InBatchSoftmax
from embershard.modules.tables import check_one_dim, embedding_names
from embershard.package.schema import Schema, Scope

TowerLoss: TypeAlias = Literal["bce", "in_batch"]
"""``bce`` is the task's loss, row by row. For ``in_batch`` see `InBatchSoftmax`."""


class Tower(nn.Module):
    """Some dense columns and some pooled features to one vector.

    Args:
        columns: columns of the dense features.
        keys: keys of the pooled features.
        dim: width of each pooled feature.
        layer_sizes: width of each layer. The last is the vector's, and linear.
        device: device of the layers; torch's default if None.

    Raises:
        InputError: neither columns nor keys, or no layers.
    """

    def __init__(
        self,
        columns: Sequence[int],
        keys: Sequence[str],
        dim: int,
        layer_sizes: Sequence[int],
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if not columns and not keys:
            raise InputError("tower: expected at least one dense or sparse input, got none")
        self.columns, self.keys = list(columns), list(keys)
        self.mlp = MLP(
            len(columns) + dim * len(keys), layer_sizes, device=device, activate_last=False
        )

    def forward(self, dense: Tensor, pooled: KeyedTensor) -> Tensor:
        """float32 ``(rows, layer_sizes[-1])``."""
        parts = [dense[:, self.columns]] if self.columns else []
        parts += [pooled[key] for key in self.keys]
        vector: Tensor = self.mlp(torch.cat(parts, dim=1))
        return vector


class TwoTower(LogitModel):
    """The model. Its served outputs are the task's [B], ``user`` [R, d] and ``item`` [B, d].

    Args:
        embedding_bag_collection: all of its tables of one width.
        user_columns: dense features of the user, by position.
        user_features: outputs of the collection for the user.
        item_columns: dense features of the item, by position.
        item_features: outputs of the collection for the item.
        tower_layer_sizes: width of each layer of either tower; the last is d.
        dense_device: device of the towers; torch's default if None.
        tasks: see `LogitModel`; one task, with the loss ``bce`` if ``loss`` is ``in_batch``.
        loss: how the model trains.
        temperature, item, frequency_buckets: settings of ``in_batch``: the divisor of logits, the
            sparse feature of the item's id, one id an example, and the number of its counters.

    Raises:
        InputError: a tower without inputs, an output that the collection lacks, or arguments that
            do not fit the loss.
    """

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        user_columns: Sequence[int],
        user_features: Sequence[str],
        item_columns: Sequence[int],
        item_features: Sequence[str],
        tower_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
        loss: TowerLoss = "bce",
        temperature: float = 1.0,
        item: str = "",
        frequency_buckets: int = 1,
    ) -> None:
        super().__init__(tasks)
        if len(self.tasks) > 1:
            raise InputError(f"two_tower: expected one task, got {list(self.tasks)}; try dlrm")
        if clash := {"user", "item"}.intersection(self.tasks):
            raise InputError(
                f"two_tower: expected another name for the task, got {clash.pop()!r}, "
                "which is the output of a tower"
            )
        for tower, scope, inputs in (
            ("user", "request", [*user_columns, *user_features]),
            ("item", "example", [*item_columns, *item_features]),
        ):
            if not inputs:
                raise InputError(
                    f"two_tower: {tower} tower: expected at least one input with scope {scope!r}, "
                    "got none; inputs have the scope 'example' unless they declare another"
                )
        names = embedding_bag_collection.embedding_names()
        for name in (*user_features, *item_features):
            if name not in names:
                raise InputError(f"tower: expected features of {names}, got {name!r}")
        check_one_dim(embedding_bag_collection.embedding_bag_configs())
        dim = embedding_bag_collection.embedding_bag_configs()[0].embedding_dim
        sizes = tower_layer_sizes
        self.embedding_bag_collection = embedding_bag_collection
        self.user_tower = Tower(user_columns, user_features, dim, sizes, device=dense_device)
        self.item_tower = Tower(item_columns, item_features, dim, sizes, device=dense_device)
        self.item, self.in_batch = item, None
        if loss == "bce":
            self.bias = nn.Parameter(torch.zeros(1, device=dense_device))
            return
        if "mse" in self.tasks.values() or temperature <= 0 or frequency_buckets < 1:
            raise InputError(
                "two_tower: loss in_batch: expected a task with the loss bce, and a temperature "
                f"and frequency_buckets above 0; got {self.tasks}, {temperature} and "
                f"{frequency_buckets}"
            )
        self.in_batch = InBatchSoftmax(frequency_buckets, temperature, device=dense_device)

    def vectors(
        self, dense_features: Tensor, sparse_features: KeyedJaggedTensor
    ) -> tuple[Tensor, Tensor]:
        """User ``(R, d)``, and item ``(B, d)``, float32."""
        pooled = self.embedding_bag_collection(sparse_features)
        user = self.user_tower(dense_features, pooled)
        item = self.item_tower(dense_features, pooled)
        return (user, item) if self.in_batch is None else (normalize(user), normalize(item))

    def logits(self, user: Tensor, item: Tensor) -> Tensor:
        """Logits of vectors ``(R, d)`` and ``(B, d)``, float32 ``(B, 1)``."""
        products = (to_examples(user) * item).sum(dim=1, keepdim=True)
        if self.in_batch is None:
            return products + self.bias
        return products / self.in_batch.temperature

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Logits of rows of B examples, float32 ``(B, 1)``. In training with the loss ``in_batch``:
        the log probability of each example's own item among the items of the batch."""
        user, item = self.vectors(dense_features, sparse_features)
        if self.training and self.in_batch is not None:
            rows = sparse_features[self.item].to_padded_dense(1, -1).squeeze(1)
            own: Tensor = self.in_batch(to_examples(user), item, rows)
            return own.unsqueeze(1)
        return self.logits(user, item)

    def served(self, schema: Schema) -> nn.Module:
        """A module that returns the task's value and both vectors."""
        return ServedTwoTower(self)


class ServedTwoTower(nn.Module):
    """Two towers as a server runs them. The trained ``model`` is shared, not copied."""

    def __init__(self, model: TwoTower) -> None:
        super().__init__()
        self.model = model

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> dict[str, Tensor]:
        """Score examples: the task's output ``(B,)``, ``user`` ``(R, d)``, ``item`` ``(B, d)``.
        With the loss ``in_batch`` the task's output is the logit."""
        user, item = self.model.vectors(dense, sparse)
        logits, tasks = self.model.logits(user, item), self.model.tasks
        if self.model.in_batch is not None:
            return {**dict.fromkeys(tasks, logits.squeeze(1)), "user": user, "item": item}
        scores = outputs_of(logits, tasks)
        named = scores if isinstance(scores, dict) else {"score": scores}
        return {**named, "user": user, "item": item}


class TwoTowerConfig(NamedConfig):
    """Settings of two towers; the section ``[model]`` of a run's file.

    Inputs of the request scope are the user's, those of the example scope the item's.
    """

    model = TwoTower

    name: Literal["two_tower"] = "two_tower"
    """Name of the model."""

    tower_layers: Layers = (64, 32)
    """Layers of each tower. The last is linear, and as wide as the vectors."""

    loss: TowerLoss = "bce"
    """``bce``: the task's loss, row by row. ``in_batch``: a softmax over the items of the batch for
    each row with label 1, corrected by the items' frequencies."""

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    """With ``in_batch``: divides the cosine of the two vectors."""

    item: str = "item"
    """With ``in_batch``: the sparse input of the item's id, one id an example."""

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        """The schema's scopes tell the towers' inputs."""
        scopes = {item.name: item.scope for item in schema.sparse}
        features = [feature for table in tables for feature in table.feature_names]
        keys = embedding_names(tables)

        def columns(scope: Scope) -> list[int]:
            return [place for place, item in enumerate(schema.dense) if item.scope == scope]

        def outputs(scope: Scope) -> list[str]:
            pairs = zip(features, keys, strict=True)
            return [key for feature, key in pairs if scopes[feature] == scope]

        of_loss = dict[str, Any]()
        if self.loss == "in_batch":
            of_loss = {
                "loss": self.loss,
                "temperature": self.temperature,
                "item": self.item,
                "frequency_buckets": min(table_rows(self.name, tables, self.item), BUCKETS_MAX),
            }
        return {
            **of_loss,
            "user_columns": columns("request"),
            "user_features": outputs("request"),
            "item_columns": columns("example"),
            "item_features": outputs("example"),
            "tower_layer_sizes": list(self.tower_layers),
        }
