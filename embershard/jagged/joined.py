"""Whole ``KeyedJaggedTensor`` objects made of others. Imported by the module of the class, last."""

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged.jagged_tensor import JaggedTensor
from embershard.jagged.keyed_jagged_tensor import KeyedJaggedTensor

# These functions read objects that are proxies in a torch.fx trace: wrapped, each is one node.


@torch.fx.wrap
def empty_keyed(
    is_weighted: bool,
    device: torch.device | None,
    values_dtype: torch.dtype | None,
    weights_dtype: torch.dtype | None,
    lengths_dtype: torch.dtype,
) -> KeyedJaggedTensor:
    weights: Tensor | None = None
    if is_weighted:
        weights = torch.empty(0, dtype=weights_dtype, device=device)
    keys: list[str] = []
    return KeyedJaggedTensor(
        keys,
        torch.empty(0, dtype=values_dtype, device=device),
        weights,
        torch.empty(0, dtype=lengths_dtype, device=device),
    )


@torch.fx.wrap
def empty_like_keyed(kjt: KeyedJaggedTensor) -> KeyedJaggedTensor:
    weights = kjt.weights_or_none()
    if weights is not None:
        weights = weights[:0]
    keys: list[str] = []
    return KeyedJaggedTensor(
        keys,
        kjt.values()[:0],
        weights,
        kjt.lengths()[:0],
        None,
        kjt.stride(),
    )


@torch.fx.wrap
def concat_keyed(kjts: list[KeyedJaggedTensor]) -> KeyedJaggedTensor:
    if len(kjts) == 0:
        raise InputError("concat: expected at least 1 KeyedJaggedTensor, got 0")
    keys: list[str] = []
    values: list[Tensor] = []
    weights: list[Tensor] = []
    lengths: list[Tensor] = []
    counts: list[int] = []
    counted = True
    for kjt in kjts:
        if kjt.stride() != kjts[0].stride():
            raise InputError(
                f"features {kjt.keys()}: expected {kjts[0].stride()} examples "
                f"as in {kjts[0].keys()}, got {kjt.stride()}"
            )
        keys.extend(kjt.keys())
        values.append(kjt.values())
        lengths.append(kjt.lengths())
        own_weights = kjt.weights_or_none()
        if (own_weights is not None) != (kjts[0].weights_or_none() is not None):
            raise InputError(
                f"features {kjt.keys()}: expected weights as in {kjts[0].keys()}, in all or in none"
            )
        if own_weights is not None:
            weights.append(own_weights)
        own_counts = kjt.length_per_key_or_none()
        if own_counts is None:
            counted = False
        else:
            counts.extend(own_counts)
    return KeyedJaggedTensor(
        keys,
        torch.cat(values),
        torch.cat(weights) if len(weights) != 0 else None,
        torch.cat(lengths),
        None,
        kjts[0].stride(),
        counts if counted else None,
    )


@torch.fx.wrap
def from_features(features: dict[str, JaggedTensor]) -> KeyedJaggedTensor:
    if len(features) == 0:
        return KeyedJaggedTensor.empty()
    parts: list[KeyedJaggedTensor] = []
    for key, jagged in features.items():
        parts.append(
            KeyedJaggedTensor([key], jagged.values(), jagged.weights_or_none(), jagged.lengths())
        )
    return concat_keyed(parts)
