"""``KeyedJaggedTensor`` objects made of others, whole or exchanged between ranks. Imported by the
module of the class, last.

    rank 0  keys a b | c      splits [2, 1]      rank 0 gets  a0 b0 a1 b1  and builds  a: a0 a1
    rank 1  keys a b | c                                      recat 0 2 1 3            b: b0 b1
"""

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged.checks import segments_fault
from embershard.jagged.jagged_tensor import JaggedTensor
from embershard.jagged.keyed_jagged_tensor import KeyedJaggedTensor
from embershard.jagged.segments import (
    counts_at,
    gather_slices,
    lengths_to_offsets,
    running_sums,
)

# These functions read objects that are proxies in a torch.fx trace: wrapped, each is one node.


@torch.fx.wrap
def empty_keyed(
    is_weighted: bool,
    device: torch.device | None,
    values_dtype: torch.dtype | None,
    weights_dtype: torch.dtype | None,
    lengths_dtype: torch.dtype,
) -> KeyedJaggedTensor:
    jagged = JaggedTensor.empty(is_weighted, device, values_dtype, weights_dtype, lengths_dtype)
    keys: list[str] = []
    return KeyedJaggedTensor(keys, jagged.values(), jagged.weights_or_none(), jagged.lengths())


@torch.fx.wrap
def empty_like_keyed(kjt: KeyedJaggedTensor) -> KeyedJaggedTensor:
    weights = kjt.weights_or_none()
    if weights is not None:
        weights = weights[:0]
    keys: list[str] = []
    strides: list[list[int]] = []
    inverse: tuple[list[str], Tensor] | None = None
    inverse_indices = kjt.inverse_indices_or_none()
    if inverse_indices is not None:
        inverse = (keys, inverse_indices[1][:0])
    return KeyedJaggedTensor(
        keys,
        kjt.values()[:0],
        weights,
        kjt.lengths()[:0],
        None,
        None if kjt.variable_stride_per_key() else kjt.stride(),
        None,
        strides if kjt.variable_stride_per_key() else None,
        inverse,
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
    variable = kjts[0].variable_stride_per_key()
    strides: list[list[int]] = []
    for kjt in kjts:
        if kjt.variable_stride_per_key() != variable:
            raise InputError(
                f"features {kjt.keys()}: expected stride_per_key_per_rank as in "
                f"{kjts[0].keys()}, in all or in none"
            )
        if variable:
            strides.extend(kjt.stride_per_key_per_rank())
        elif kjt.stride() != kjts[0].stride():
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
        None if variable else kjts[0].stride(),
        counts if counted else None,
        strides if variable else None,
        _concat_inverse(kjts),
    )


def _concat_inverse(kjts: list[KeyedJaggedTensor]) -> tuple[list[str], Tensor] | None:
    """The inverse indices of all keys. None: there are none."""
    keys: list[str] = []
    parts: list[Tensor] = []
    for kjt in kjts:
        inverse = kjt.inverse_indices_or_none()
        if (inverse is None) != (kjts[0].inverse_indices_or_none() is None):
            raise InputError(
                f"features {kjt.keys()}: expected inverse_indices as in {kjts[0].keys()}, "
                "in all or in none"
            )
        if inverse is not None:
            keys.extend(inverse[0])
            parts.append(inverse[1])
            if inverse[1].shape[1:] != parts[0].shape[1:]:
                raise InputError(
                    f"features {kjt.keys()}: inverse_indices: expected those of "
                    f"{list(parts[0].shape[1:])} examples as in {kjts[0].keys()}, "
                    f"got {list(inverse[1].shape[1:])}"
                )
    if len(parts) == 0:
        return None
    return keys, torch.cat(parts)


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


def labels_to_send(kjt: KeyedJaggedTensor) -> list[str]:
    labels = ["lengths", "values"]
    if kjt.variable_stride_per_key():
        labels.append("strides")
    if kjt.weights_or_none() is not None:
        labels.append("weights")
    return labels


def splits_to_send(kjt: KeyedJaggedTensor, key_splits: list[int]) -> list[list[int]]:
    fault = segments_fault(key_splits, len(kjt.keys()))
    if fault != "":
        raise InputError(f"key_splits: {fault}")
    counts = _sums(kjt.length_per_key(), key_splits)
    splits = [_sums(kjt.stride_per_key(), key_splits), counts]
    if kjt.variable_stride_per_key():
        splits.append(key_splits)
    if kjt.weights_or_none() is not None:
        splits.append(counts)
    return splits


def tensors_to_send(kjt: KeyedJaggedTensor) -> list[Tensor]:
    tensors = [kjt.lengths(), kjt.values()]
    if kjt.variable_stride_per_key():
        tensors.append(torch.tensor(kjt.stride_per_key(), device=kjt.device()))
    weights = kjt.weights_or_none()
    if weights is not None:
        tensors.append(weights)
    return tensors


@torch.fx.wrap
def received(
    keys: list[str],
    tensors: list[Tensor],
    variable_stride_per_key: bool,
    num_workers: int,
    recat: Tensor | None,
    stride_per_rank: list[int] | None,
    stagger: int,
) -> KeyedJaggedTensor:
    """The keys of one rank from what all ranks sent it: for each key, the examples of rank 0 first.

    Args:
        keys: that it received.
        tensors: ``dist_tensors()`` of every rank, cut by its ``dist_splits()``: rank after rank.
        variable_stride_per_key: whether strides are among them.
        num_workers: number of ranks.
        recat: integers: which segment, of a key of a rank, comes. If the batch is not variable and
            ranks have different strides: which example comes. None: as received.
        stride_per_rank: examples of each rank; not of a variable batch.
        stagger: a divisor of the ranks, whose ranks stand in rows of ``num_workers / stagger``;
            their strides are read by column.
    """
    first = 3 if variable_stride_per_key else 2
    if len(tensors) != first and len(tensors) != first + 1:
        raise InputError(
            f"dist_init: expected {first} tensors, or {first + 1} with weights, got {len(tensors)}"
        )
    if stagger < 1 or num_workers % stagger != 0:
        raise InputError(f"dist_init: stagger: expected a divisor of {num_workers}, got {stagger}")
    lengths, values = tensors[0], tensors[1]
    weights: Tensor | None = None
    if len(tensors) > first:
        weights = tensors[first]
    strides = _strides(len(keys), tensors, variable_stride_per_key, num_workers, stride_per_rank)
    if sum(strides) != lengths.size(0):
        raise InputError(
            f"dist_init: lengths: expected {sum(strides)}, as many as strides tell, "
            f"got {lengths.size(0)}"
        )
    per_key: list[list[int]] | None = None
    if variable_stride_per_key:
        ranks: list[int] = torch.arange(num_workers).view(stagger, -1).t().reshape(-1).tolist()
        per_key = [[strides[rank * len(keys) + at] for rank in ranks] for at in range(len(keys))]
    if recat is not None:
        is_by_example = not variable_stride_per_key and max(strides) != min(strides)
        segments = [1] * lengths.size(0) if is_by_example else strides
        order: list[int] = recat.long().tolist()
        if sorted(order) != list(range(len(segments))):
            raise InputError(
                f"dist_init: recat: expected each of 0 .. {len(segments) - 1} once, got {order}"
            )
        bounds = running_sums(segments)
        ends = running_sums(counts_at(lengths_to_offsets(lengths, values.size(0)), bounds))
        lengths = gather_slices(lengths, bounds, order)
        values = gather_slices(values, ends, order)
        if weights is not None:
            weights = gather_slices(weights, ends, order)
    stride: int | None = None
    if stride_per_rank is not None and not variable_stride_per_key:
        stride = sum(stride_per_rank)
    kjt = KeyedJaggedTensor(keys, values, weights, lengths, None, stride, None, per_key)
    return kjt.sync()


def _strides(
    num_keys: int,
    tensors: list[Tensor],
    variable_stride_per_key: bool,
    num_workers: int,
    stride_per_rank: list[int] | None,
) -> list[int]:
    """Examples of each key of each rank, rank after rank."""
    strides: list[int] = []
    if variable_stride_per_key:
        strides = tensors[2].long().tolist()
        if len(strides) != num_workers * num_keys:
            raise InputError(
                f"dist_init: strides: expected {num_keys} of each of {num_workers} ranks, "
                f"got {len(strides)}"
            )
        return strides
    if stride_per_rank is None or len(stride_per_rank) != num_workers:
        raise InputError(
            f"dist_init: stride_per_rank: expected {num_workers} numbers, got {stride_per_rank}"
        )
    for stride in stride_per_rank:
        strides.extend([stride] * num_keys)
    return strides


def _sums(numbers: list[int], splits: list[int]) -> list[int]:
    """Of consecutive numbers, as many as ``splits`` say."""
    bounds, sums = running_sums(splits), running_sums(numbers)
    return [sums[bounds[i + 1]] - sums[bounds[i]] for i in range(len(splits))]
