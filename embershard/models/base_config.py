"""The base of model configurations: a section ``[model]`` of a run's file."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from torch import nn

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer
from embershard.models.arguments import table_arguments
from embershard.models.base import ONE_SCORE, Loss
from embershard.modules import EmbeddingBagConfig
from embershard.package.row_format import DIM_MAX
from embershard.package.schema import Schema
from embershard.sections import Section, as_tuple

LAYER_MAX = 65536
"""Largest width of a layer."""

EmbeddingDim = Annotated[int, Field(ge=1, le=DIM_MAX)]


def _has_a_layer(layers: tuple[int, ...]) -> tuple[int, ...]:
    if not layers:
        raise ValueError("expected at least one layer")
    return layers


Layers = Annotated[
    tuple[Annotated[int, Field(ge=1, le=LAYER_MAX)], ...],
    BeforeValidator(as_tuple),
    AfterValidator(_has_a_layer),
]
"""The width of each layer, at least one."""


def _ends_in_a_logit(layers: tuple[int, ...]) -> tuple[int, ...]:
    if layers[-1] != 1:
        raise ValueError("expected a last layer 1 wide")
    return layers


LogitLayers = Annotated[Layers, AfterValidator(_ends_in_a_logit)]
"""The width of each layer; the last is 1, the width of each task's logit."""


class BaseConfig(Section, ABC):
    """Settings of any model. Defaults are checked too, since they must fit the other settings."""

    model_config = ConfigDict(validate_default=True)

    def arguments(
        self,
        tables: Sequence[EmbeddingBagConfig],
        *,
        schema: Schema,
        fused: FusedOptimizer | None,
        tasks: Mapping[str, Loss] = ONE_SCORE,
    ) -> dict[str, Any]:
        """The arguments for ``build_model``, as JSON's types. ``tables`` are pooled and
        ``embedding_dim`` wide; they are plain tables if ``fused`` is None. ``tasks`` has the loss
        of each task, by the name of its output. Raises InputError for tables or inputs that the
        model cannot have."""
        arguments = {
            **table_arguments(tables, fused),
            **self._constructor_arguments(tables, schema),
        }
        if tasks != ONE_SCORE:
            arguments["tasks"] = dict(tasks)
        if "over_arch_layer_sizes" in arguments:
            arguments["over_arch_layer_sizes"][-1] = len(tasks)
        return arguments

    @abstractmethod
    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        """The arguments of the constructor except tables and their optimizer."""


class NamedConfig(BaseConfig):
    """Settings of a model that the registry names."""

    model: ClassVar[Callable[..., nn.Module]]
    """The class that the arguments build."""

    name: str
    """Name of the model."""

    embedding_dim: EmbeddingDim = 16
    """Columns of every table."""


def table_rows(model: str, tables: Sequence[EmbeddingBagConfig], feature: str) -> int:
    """Number of rows of the table of a sparse input."""
    for table in tables:
        if feature in table.feature_names:
            return table.num_embeddings
    known = [name for table in tables for name in table.feature_names]
    raise InputError(f"model {model}: expected one of the sparse inputs {known}, got {feature!r}")
