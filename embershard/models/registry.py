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
from embershard.models.configs import (
    ClassConfig,
    DeepFMConfig,
    DINConfig,
    DLRMConfig,
    DLRMDCNConfig,
    DMTConfig,
    MaskNetConfig,
    PLEConfig,
    SASRecConfig,
    TwoTowerConfig,
)
from embershard.models.deepfm import DeepFMRanker
from embershard.models.din import DIN
from embershard.models.dlrm import DLRM, DLRM_DCN
from embershard.models.dmt import DMT
from embershard.models.masknet import MaskNet
from embershard.models.own_class import OwnArguments, build_own
from embershard.models.ple import PLE
from embershard.models.sasrec import SASRec
from embershard.models.two_tower import TwoTower
from embershard.package.schema import Schema

ModelConfig: TypeAlias = (
    DLRMConfig
    | DLRMDCNConfig
    | DeepFMConfig
    | MaskNetConfig
    | PLEConfig
    | DINConfig
    | SASRecConfig
    | TwoTowerConfig
    | DMTConfig
    | ClassConfig
)
"""What a person chooses of a model: its ``arguments()`` are those of ``build_model``."""

MODEL_CONFIGS: Mapping[str, type[ModelConfig]] = MappingProxyType(
    {
        "dlrm": DLRMConfig,
        "dlrm_dcn": DLRMDCNConfig,
        "deepfm": DeepFMConfig,
        "masknet": MaskNetConfig,
        "ple": PLEConfig,
        "din": DINConfig,
        "sasrec": SASRecConfig,
        "two_tower": TwoTowerConfig,
        "dmt": DMTConfig,
    }
)
"""By name."""


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
        arguments: what its constructor needs, as JSON's types, as the model's config returns them:
            ``tables`` (each ``name``, ``num_embeddings``, ``embedding_dim``, ``feature_names``,
            and ``pooling`` "sum" or "mean"), ``fused`` (null for plain tables, or ``optimizer``,
            ``learning_rate`` and ``eps`` of tables that train in backward), ``tasks`` (the loss of
            each task by name; without it one task ``score``), and of each model:

            ============= ==============================================================
            ``dlrm``      ``dense_in_features``, ``dense_arch_layer_sizes``,
                          ``over_arch_layer_sizes``
            ``dlrm_dcn``  those of ``dlrm``, ``dcn_num_layers``, ``dcn_low_rank_dim``
            ``deepfm``    ``first_order_features``, ``dense_in_features``,
                          ``over_arch_layer_sizes``
            ``masknet``   ``dense_in_features``, ``block_sizes``, ``reduction_factor``,
                          ``parallel``, ``over_arch_layer_sizes``
            ``ple``       ``dense_in_features``, ``levels``, ``task_experts``,
                          ``shared_experts``, ``expert_layer_sizes``,
                          ``tower_layer_sizes``
            ``din``       ``sequence_tables`` (as ``tables``, without ``pooling``),
                          ``history``, ``target``, ``dense_in_features``,
                          ``attention_layer_sizes``, ``over_arch_layer_sizes``
            ``sasrec``    ``sequence_tables``, ``history``, ``target``, ``history_max``,
                          ``blocks``, ``dense_in_features``, ``over_arch_layer_sizes``
            ``two_tower`` ``user_columns``, ``user_features``, ``item_columns``,
                          ``item_features``, ``tower_layer_sizes``; and if ``loss`` is
                          "in_batch", ``temperature``, ``item``, ``frequency_buckets``
            ``dmt``       those of ``dlrm``, ``towers``, ``tower_vectors``
            your class    ``arguments``: a dict
            ============= ==============================================================

        schema: of the inputs; only for a class of your own.
        device: where the model lies. None: torch's default for plain tables, cpu for fused.

    Raises:
        InputError: an unknown name or argument, a missing one, or one that does not fit.
    """
    is_own = ":" in name
    if name not in _MODELS and not is_own:
        raise InputError(f"model: expected one of {', '.join(_MODELS)}; got {name!r}")
    kind = OwnArguments if is_own else _arguments_of(_MODELS[name])
    try:
        given: Any = kind.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"model {name!r}: argument {where!r}: {first['msg']}; got {first['input']!r}"
        ) from None
    bags = build_bags(given.tables, given.fused, device)
    if is_own:
        return build_own(name, given, bags, schema, device)
    collections: list[nn.Module] = [bags]
    if hasattr(given, "sequence_tables"):
        collections.append(build_sequences(given.sequence_tables, given.fused, device))
    return _MODELS[name](*collections, **given.of_constructor(), dense_device=device)


def model_names() -> list[str]:
    """Every name that ``build_model`` knows."""
    return list(_MODELS)


_MODELS: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    {
        "dlrm": DLRM,
        "dlrm_dcn": DLRM_DCN,
        "deepfm": DeepFMRanker,
        "masknet": MaskNet,
        "ple": PLE,
        "din": DIN,
        "sasrec": SASRec,
        "two_tower": TwoTower,
        "dmt": DMT,
    }
)

_COLLECTIONS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "embedding_bag_collection": {},
        "embedding_collection": {"sequence_tables": (list[SequenceTableArguments], ...)},
    }
)
"""Arguments of constructors that are built, and what a checkpoint says in their place, beside
``tables``."""


def _arguments_of(model: Callable[..., nn.Module]) -> type[ModelArguments]:
    fields = dict[str, Any]()
    for name, taken in inspect.signature(model).parameters.items():
        if name not in ("dense_device", "tasks"):
            default = ... if taken.default is taken.empty else taken.default
            fields |= _COLLECTIONS.get(name, {name: (taken.annotation, default)})
    return create_model("Arguments", __base__=ModelArguments, **fields)
