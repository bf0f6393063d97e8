"""Models by name, built from arguments that JSON can hold, as a checkpoint keeps them."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from pydantic import ValidationError, create_model
from torch import nn

from embershard.errors import InputError
from embershard.models.arguments import (
    ModelArguments,
    SequenceTableArguments,
    build_bags,
    build_sequences,
)
from embershard.models.base_config import NamedConfig
from embershard.models.deepfm import DeepFMConfig
from embershard.models.din import DINConfig
from embershard.models.dlrm import DLRMConfig
from embershard.models.dlrm_dcn import DLRMDCNConfig
from embershard.models.dmt import DMTConfig
from embershard.models.masknet import MaskNetConfig
from embershard.models.own_class import ClassConfig, OwnArguments, build_own
from embershard.models.ple import PLEConfig
from embershard.models.sasrec import SASRecConfig
from embershard.models.two_tower import TwoTowerConfig
from embershard.package.schema import Schema
from embershard.sections import problem_of

ModelConfig: TypeAlias = NamedConfig | ClassConfig
"""The settings of a model: its ``arguments()`` are those of ``build_model``."""

MODEL_CONFIGS: Mapping[str, type[NamedConfig]] = MappingProxyType(
    {
        config.model_fields["name"].default: config
        for config in (
            DLRMConfig,
            DLRMDCNConfig,
            DeepFMConfig,
            MaskNetConfig,
            PLEConfig,
            DINConfig,
            SASRecConfig,
            TwoTowerConfig,
            DMTConfig,
        )
    }
)
"""The settings of each built-in model, by its name."""


def config_class(section: object) -> type[ModelConfig]:
    """The class that reads a section ``[model]``. DLRM's refuses an unknown name."""
    if not isinstance(section, Mapping):
        return DLRMConfig
    if "class" in section:
        return ClassConfig
    return MODEL_CONFIGS.get(str(section.get("name")), DLRMConfig)


def parse_config(section: object) -> ModelConfig:
    """The settings of a section ``[model]``, as its ``name`` or ``class`` chooses. Raises
    pydantic's ValidationError, with the key at fault."""
    if isinstance(section, ModelConfig):
        return section
    return config_class(section).model_validate(section)


def build_model(
    name: str,
    arguments: Mapping[str, Any],
    *,
    schema: Schema | None = None,
    device: torch.device | str | None = None,
) -> nn.Module:
    """Build a new model, its weights drawn with torch's default generator.

    Args:
        name: one of ``model_names()``, or ``package.module:Class``.
        arguments: as JSON's types, as the model's config returns them: ``tables`` (``name``,
            ``num_embeddings``, ``embedding_dim``, ``feature_names`` and ``pooling``, "sum" or
            "mean"), ``sequence_tables`` for a constructor that takes an ``embedding_collection``
            (the same without ``pooling``), ``fused`` (null for plain tables, or ``optimizer``,
            ``learning_rate`` and ``eps`` of tables that train in backward), ``tasks`` (the loss of
            each task by name; without it one task ``score``), and the other arguments of the
            model's constructor. A class of your own has those in a dict ``arguments``.
        schema: schema of the inputs; only for a class of your own.
        device: device of the model. If None, torch's default for plain tables, cpu for fused ones.

    Raises:
        InputError: an unknown name or argument, a missing one, or one that does not fit.
    """
    is_own = ":" in name
    if name not in MODEL_CONFIGS and not is_own:
        raise InputError(f"model: expected one of {', '.join(MODEL_CONFIGS)}; got {name!r}")
    parser = OwnArguments if is_own else _argument_parser(MODEL_CONFIGS[name].model)
    try:
        parsed: Any = parser.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"model {name!r}: argument {where!r}: {problem_of(first)}") from None
    bags = build_bags(parsed.tables, parsed.fused, device)
    if is_own:
        return build_own(name, parsed, bags, schema, device)
    collections: list[nn.Module] = [bags]
    if hasattr(parsed, "sequence_tables"):
        collections.append(build_sequences(parsed.sequence_tables, parsed.fused, device))
    model = MODEL_CONFIGS[name].model
    return model(*collections, **parsed.constructor_arguments(), dense_device=device)


def model_names() -> list[str]:
    """The name of every model that ``build_model`` knows."""
    return list(MODEL_CONFIGS)


_COLLECTIONS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "embedding_bag_collection": {},
        "embedding_collection": {"sequence_tables": (list[SequenceTableArguments], ...)},
    }
)
"""Collections that constructors take, and the fields that a checkpoint has for them, besides
``tables``."""


def _argument_parser(model: Callable[..., nn.Module]) -> type[ModelArguments]:
    fields = dict[str, Any]()
    for name, parameter in inspect.signature(model).parameters.items():
        if name not in ("dense_device", "tasks"):
            default = ... if parameter.default is parameter.empty else parameter.default
            fields |= _COLLECTIONS.get(name, {name: (parameter.annotation, default)})
    return create_model("Arguments", __base__=ModelArguments, **fields)
