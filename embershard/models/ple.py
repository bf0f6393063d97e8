"""PLE: experts of each task and shared ones, mixed by a gate for each task, level after level.

Source: Tang et al., "Progressive Layered Extraction (PLE): A Novel Multi-Task Learning (MTL) Model
for Personalized Recommendations", RecSys 2020. One level with shared experts only is MMoE (Ma et
al., "Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts", KDD
2018).

::

    features [B, W], for every task and for the shared experts
      level:  task t:  softmax(gate[t] x[t])  *  (experts of t over x[t], shared over x[shared])
              shared:  softmax(gate x[shared])  *  (experts of all tasks, shared)
      ... the next level reads these; the last level has no shared output
    tower[t] over the output of task t --> logits [B, T]
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models.base import LogitModel, Loss
from embershard.models.base_config import Layers, LogitLayers, NamedConfig
from embershard.modules import (
    MLP,
    EmbeddingBagConfig,
)
from embershard.modules.fused_embeddings import BagModule
from embershard.modules.tables import pooled_width
from embershard.package.schema import Schema


class Experts(nn.ModuleList):
    """Some experts with one input: MLPs of which every layer ends in a ReLU."""

    def __init__(
        self,
        experts: int,
        in_features: int,
        layer_sizes: Sequence[int],
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            MLP(in_features, layer_sizes, device=device, activate_last=True) for _ in range(experts)
        )

    def forward(self, input: Tensor) -> list[Tensor]:
        """``(B, in_features)`` to ``(B, layer_sizes[-1])`` from each expert."""
        return [expert(input) for expert in self]


class ExtractionLevel(nn.Module):
    """One level.

    Args:
        in_features: width of each input.
        tasks: T.
        task_experts: experts of each task.
        shared_experts: experts that every task uses.
        expert_layer_sizes: width of each layer of an expert.
        shared_output: true if the level has a gate and an output over all experts.
        device: device of the layers; torch's default if None.
    """

    def __init__(
        self,
        in_features: int,
        tasks: int,
        task_experts: int,
        shared_experts: int,
        expert_layer_sizes: Sequence[int],
        *,
        shared_output: bool,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()

        def gate(experts: int) -> nn.Linear:
            return nn.Linear(in_features, experts, bias=False, device=device)

        self.experts = nn.ModuleList(
            Experts(experts, in_features, expert_layer_sizes, device=device)
            for experts in (*[task_experts] * tasks, shared_experts)
        )
        self.gates = nn.ModuleList(gate(task_experts + shared_experts) for _ in range(tasks))
        if shared_output:
            self.gates.append(gate(tasks * task_experts + shared_experts))

    def forward(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """T + 1 tensors ``(B, in_features)``, the shared one last, to T or T + 1 outputs."""
        *own, shared = (experts(x) for experts, x in zip(self.experts, inputs, strict=True))
        of_gates = [[*outputs, *shared] for outputs in own]
        of_gates.append([*(output for outputs in own for output in outputs), *shared])
        return [
            _mixed(torch.softmax(gate(x), dim=1), outputs)
            for gate, x, outputs in zip(self.gates, inputs, of_gates, strict=False)
        ]


def _mixed(weights: Tensor, outputs: Sequence[Tensor]) -> Tensor:
    """``(B, E)`` and E tensors ``(B, width)`` to their weighted sum."""
    return torch.bmm(weights.unsqueeze(1), torch.stack(list(outputs), dim=1)).squeeze(1)


class PLE(LogitModel):
    """A ranker with experts of each task and shared ones.

    Args:
        embedding_bag_collection: pooled features.
        dense_in_features: number of dense features.
        levels: levels of experts, at least 1.
        task_experts: experts of each task and level.
        shared_experts: experts of each level that every task uses.
        expert_layer_sizes: width of each layer of an expert.
        tower_layer_sizes: width of each layer of a task's tower; the last must be 1.
        dense_device: device of the dense layers; torch's default if None.
        tasks: see `LogitModel`.

    Raises:
        InputError: sizes that do not fit together.
    """

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        dense_in_features: int,
        levels: int,
        task_experts: int,
        shared_experts: int,
        expert_layer_sizes: Sequence[int],
        tower_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(tasks)
        if min(levels, task_experts + shared_experts) < 1 or min(task_experts, shared_experts) < 0:
            raise InputError(
                "PLE: expected at least one level and one expert for each task, "
                f"got levels {levels}, task_experts {task_experts}, shared_experts {shared_experts}"
            )
        if not tower_layer_sizes or tower_layer_sizes[-1] != 1:
            raise InputError(
                "tower_layer_sizes: expected the last to be 1, one logit for each tower; "
                f"got {list(tower_layer_sizes)}"
            )
        self.embedding_bag_collection = embedding_bag_collection
        pooled = pooled_width(embedding_bag_collection.embedding_bag_configs())
        self.levels = nn.ModuleList(
            ExtractionLevel(
                dense_in_features + pooled if level == 0 else expert_layer_sizes[-1],
                len(self.tasks),
                task_experts,
                shared_experts,
                expert_layer_sizes,
                shared_output=level < levels - 1,
                device=dense_device,
            )
            for level in range(levels)
        )
        self.towers = nn.ModuleList(
            MLP(expert_layer_sizes[-1], tower_layer_sizes, device=dense_device) for _ in self.tasks
        )

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Logits ``(B, T)``; see `LogitModel`."""
        pooled = self.embedding_bag_collection(sparse_features).values()
        features = torch.cat([dense_features, pooled], dim=1)
        outputs = [features] * (len(self.tasks) + 1)
        for level in self.levels:
            outputs = level(outputs)
        logits = [tower(output) for tower, output in zip(self.towers, outputs, strict=True)]
        return torch.cat(logits, dim=1)


class PLEConfig(NamedConfig):
    """Settings of a PLE; the section ``[model]`` of a run's file.

    MMoE is ``levels = 1`` with ``task_experts = 0``.
    """

    model = PLE

    name: Literal["ple"] = "ple"
    """Name of the model."""

    levels: Annotated[int, Field(ge=1)] = 2
    """Levels of experts."""

    task_experts: Annotated[int, Field(ge=0)] = 2
    """Experts of each task and level. 0, with ``levels = 1``: the model is MMoE."""

    shared_experts: Annotated[int, Field(ge=0)] = 2
    """Experts of each level that all tasks use."""

    expert_layers: Layers = (64,)
    """Layers of each expert."""

    tower_layers: LogitLayers = (32, 1)
    """Layers of each task's tower. The last is 1, the width of a logit."""

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        return {
            "dense_in_features": len(schema.dense),
            "levels": self.levels,
            "task_experts": self.task_experts,
            "shared_experts": self.shared_experts,
            "expert_layer_sizes": list(self.expert_layers),
            "tower_layer_sizes": list(self.tower_layers),
        }
