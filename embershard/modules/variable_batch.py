"""Batches in which keys have different numbers of examples: padded for a lookup, then expanded."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.functional import pad

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.kernels import permute_segments


def pad_variable_batch(features: KeyedJaggedTensor) -> KeyedJaggedTensor:
    """A batch whose keys have equally many lists, by empty lists after those of each key. Batches
    that are not variable stay. Variable ones need ``inverse_indices``."""
    if not features.variable_stride_per_key():
        return features
    _check_inverse(features)
    strides = features.stride_per_key()
    most = max(strides, default=0)
    lengths = torch.split(features.lengths(), strides)
    return KeyedJaggedTensor(
        features.keys(),
        features.values(),
        features.weights_or_none(),
        torch.cat([pad(own, (0, most - len(own))) for own in lengths]),
        stride=most,
        length_per_key=features.length_per_key(),
        repeated_keys=True,
    )


def expand_variable_batch(features: KeyedJaggedTensor) -> KeyedJaggedTensor:
    """Each key's list of each of B examples; unchanged if the batch is not variable."""
    if not features.variable_stride_per_key():
        return features
    _check_inverse(features)
    keys, inverse = features.inverse_indices()
    firsts = accumulate(features.stride_per_key(), initial=0)
    pairs = zip(features.keys(), firsts, strict=False)
    order = torch.cat([inverse[keys.index(key)] + first for key, first in pairs])
    lengths, values, weights = permute_segments(
        order.int(), features.lengths(), features.values(), features.weights_or_none()
    )
    return KeyedJaggedTensor(
        features.keys(), values, weights, lengths, stride=inverse.shape[1], repeated_keys=True
    )


def _check_inverse(features: KeyedJaggedTensor) -> None:
    """Refuse ``inverse_indices`` that do not fit a variable batch."""
    keys, inverse = features.inverse_indices()
    strides = features.stride_per_key()
    if sorted(keys) != sorted(features.keys()) or inverse.shape[:1] != (len(keys),):
        raise InputError(
            f"inverse_indices: expected a row for each of {features.keys()}, got {keys} and "
            f"shape {list(inverse.shape)}"
        )
    if inverse.dim() != 2 or inverse.dtype not in (torch.int32, torch.int64):
        raise InputError(
            f"inverse_indices: expected int64 of 2 dimensions, got {inverse.dtype} of "
            f"{inverse.dim()}"
        )
    for key, stride in zip(features.keys(), strides, strict=True):
        row = inverse[keys.index(key)]
        if row.numel() and not 0 <= int(row.min()) <= int(row.max()) < stride:
            raise InputError(
                f"inverse_indices: feature {key!r}: expected 0 .. {stride - 1}, got "
                f"{int(row.min())} .. {int(row.max())}"
            )


def expand_pooled(
    pooled: Tensor, features: KeyedJaggedTensor, names: Sequence[str], dims: Sequence[int]
) -> Tensor:
    """The pooled vectors of each of B examples, by ``inverse_indices``. ``pooled``,
    ``(most examples of a key, sum of dims)``, is returned if the batch is not variable. ``names``
    and ``dims`` have the feature and the columns of each output."""
    if not features.variable_stride_per_key():
        return pooled
    keys, inverse = features.inverse_indices()
    identity = torch.arange(inverse.shape[1], device=inverse.device)
    groups = list[tuple[Tensor, list[int]]]()
    for place, name in enumerate(names):
        row = inverse[keys.index(name)]
        same = (places for other, places in groups if torch.equal(row, other))
        if (places := next(same, None)) is None:
            groups.append((row, places := []))
        places.append(place)
    parts = list(torch.split(pooled, list(dims), dim=1))
    for row, places in groups:
        if torch.equal(row, identity):
            for place in places:
                parts[place] = parts[place][: len(row)]
            continue
        # One gather for all columns: a gradient of each by itself would be slow.
        vectors = torch.cat([parts[place] for place in places], dim=1).index_select(0, row)
        widths = [dims[place] for place in places]
        for place, part in zip(places, torch.split(vectors, widths, dim=1), strict=True):
            parts[place] = part
    return torch.cat(parts, dim=1)
