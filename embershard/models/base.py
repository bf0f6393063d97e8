"""The base of models: logits for training, named outputs for export."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.package.schema import Schema

Loss: TypeAlias = Literal["bce", "mse"]
"""``bce`` trains the logit of a probability, ``mse`` the value itself."""

ONE_SCORE: Mapping[str, Loss] = MappingProxyType({"score": "bce"})
"""The tasks of a model that is built without tasks."""


class LogitModel(nn.Module):
    """Base of models whose forward returns logits ``(B, T)``, one column for each task.

    Training computes the loss from the logits; export publishes the module that ``served`` returns.
    A subclass implements ``forward``, under any argument names. It takes dense features, float32
    ``(B, dense features)``, and a `KeyedJaggedTensor` with the rows of B examples.

    Args:
        tasks: the loss of each task, by the name of its output; one task ``score`` if None.
    """

    def __init__(self, tasks: Mapping[str, Loss] | None = None) -> None:
        super().__init__()
        self.tasks = dict(ONE_SCORE if tasks is None else tasks)

    def served(self, schema: Schema) -> nn.Module:
        """The module to export in place of this model: its logits as outputs of the tasks. A
        subclass with other outputs returns a module of its own, which shares the weights."""
        return Score(self)


class Score(nn.Module):
    """The values that a model's logits ``(B, T)`` stand for."""

    def __init__(self, model: LogitModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor | dict[str, Tensor]:
        """Score rows of B examples, with dense features float32 ``(B, dense features)``. Returns
        float32 ``(B,)`` for each task, see ``outputs_of``."""
        return outputs_of(self.model(dense, sparse), self.model.tasks)


def outputs_of(logits: Tensor, tasks: Mapping[str, Loss]) -> Tensor | dict[str, Tensor]:
    """The served values of logits ``(B, T)``, float32 ``(B,)`` each, by task: the sigmoid of the
    logit, in 0..1, for the loss ``bce``; the logit itself for ``mse``. A model that was built
    without tasks has one tensor, without a name."""
    if tasks == ONE_SCORE:
        return torch.sigmoid(logits).squeeze(1)
    return {
        name: torch.sigmoid(logits[:, column]) if loss == "bce" else logits[:, column]
        for column, (name, loss) in enumerate(tasks.items())
    }


def check_logits(layer_sizes: Sequence[int], tasks: Mapping[str, Loss]) -> None:
    """Refuse last layers that do not end in one logit for each task."""
    if not layer_sizes or layer_sizes[-1] != len(tasks):
        raise InputError(
            f"over_arch_layer_sizes: expected the last to be {len(tasks)}, one logit for each of "
            f"the tasks {list(tasks)}; got {list(layer_sizes)}"
        )
