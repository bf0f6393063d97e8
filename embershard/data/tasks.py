"""Tasks of a model: each has a label and a logit."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from embershard.models.base import Loss
from embershard.sections import Section


class TaskConfig(Section):
    """One task; the section ``[tasks.NAME]`` of a run's file. NAME is the package's output."""

    label: Annotated[str, Field(min_length=1)] | None = None
    """Column of the labels. Built-in data sets have one label, and take no column."""

    loss: Loss = "bce"
    """``bce``: binary cross entropy of labels 0 and 1. ``mse``: squared error of any number."""

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Factor of this task in the sum of the losses."""

    mask: Annotated[str, Field(min_length=1)] | None = None
    """Column of bool: the label of a row with false does not count."""


DEFAULT_TASKS: Mapping[str, TaskConfig] = MappingProxyType({"score": TaskConfig()})
"""Tasks of a run without sections ``[tasks.NAME]``."""
