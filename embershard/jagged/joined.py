"""Builds a ``KeyedJaggedTensor`` from others: concatenated, or received from other ranks.

rank 0  keys a b | c      splits [2, 1]      rank 0 receives a0 b0 a1 b1 and builds a: a0 a1
rank 1  keys a b | c                                      recat 0 2 1 3             b: b0 b1
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged.checks import segments_fault
from embershard.jagged.segments import (
    counts_at,
    gather_slices,
    lengths_to_offsets,
    running_sums,
)

if TYPE_CHECKING:
    from embershard.jagged.keyed_jagged_tensor import KeyedJaggedTensor


class Parts(NamedTuple):
    """Arguments of the constructor of ``KeyedJaggedTensor``, in its order."""

    keys: list[str]
    values: Tensor
    weights: Tensor | None
    lengths: Tensor
    offsets: None = None
    stride: int | None = None
    length_per_key: list[int] | None = None
    stride_per_key_per_rank: list[list[int]] | None = None
    inverse_indices: tuple[list[str], Tensor] | None = None


def emptied(kjt: KeyedJaggedTensor) -> Parts:
    variable = kjt.variable_stride_per_key()
    weights = kjt.weights_or_none()
    inverse = kjt.inverse_indices_or_none()
    return Parts(
        keys=[],
        values=kjt.values()[:0],
        weights=None if weights is None else weights[:0],
        lengths=kjt.lengths()[:0],
        stride=None if variable else kjt.stride(),
        stride_per_key_per_rank=[] if variable else None,
        inverse_indices=None if inverse is None else ([], inverse[1][:0]),
    )


def concatenated(kjts: list[KeyedJaggedTensor]) -> Parts:
    if not kjts:
        raise InputError("concat: expected at least 1 KeyedJaggedTensor, got 0")
    first = kjts[0]
    for kjt in kjts:
        _check_alike(first, kjt)
    variable = first.variable_stride_per_key()
    weights = [kjt.weights() for kjt in kjts] if first.weights_or_none() is not None else None
    counts = [kjt.length_per_key_or_none() for kjt in kjts]
    strides = list(chain.from_iterable(kjt.stride_per_key_per_rank() for kjt in kjts))
    return Parts(
        keys=list(chain.from_iterable(kjt.keys() for kjt in kjts)),
        values=torch.cat([kjt.values() for kjt in kjts]),
        weights=None if weights is None else torch.cat(weights),
        lengths=torch.cat([kjt.lengths() for kjt in kjts]),
        stride=None if variable else first.stride(),
        length_per_key=_flat(counts),
        stride_per_key_per_rank=strides if variable else None,
        inverse_indices=_concat_inverse(kjts),
    )


def _check_alike(first: KeyedJaggedTensor, kjt: KeyedJaggedTensor) -> None:
    if kjt.variable_stride_per_key() != first.variable_stride_per_key():
        raise InputError(
            f"features {kjt.keys()}: expected stride_per_key_per_rank as in "
            f"{first.keys()}, in all or in none"
        )
    if not first.variable_stride_per_key() and kjt.stride() != first.stride():
        raise InputError(
            f"features {kjt.keys()}: expected {first.stride()} examples "
            f"as in {first.keys()}, got {kjt.stride()}"
        )
    if (kjt.weights_or_none() is None) != (first.weights_or_none() is None):
        raise InputError(
            f"features {kjt.keys()}: expected weights as in {first.keys()}, in all or in none"
        )


def _flat(counts: list[list[int] | None]) -> list[int] | None:
    known = [counts_of_kjt for counts_of_kjt in counts if counts_of_kjt is not None]
    if len(known) != len(counts):
        return None
    return list(chain.from_iterable(known))


def _concat_inverse(kjts: list[KeyedJaggedTensor]) -> tuple[list[str], Tensor] | None:
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
                    f"features {kjt.keys()}: inverse_indices: expected "
                    f"{list(parts[0].shape[1:])} examples as in {kjts[0].keys()}, "
                    f"got {list(inverse[1].shape[1:])}"
                )
    return (keys, torch.cat(parts)) if parts else None


def labels_to_send(kjt: KeyedJaggedTensor) -> list[str]:
    labels = ["lengths", "values"]
    if kjt.variable_stride_per_key():
        labels.append("strides")
    if kjt.weights_or_none() is not None:
        labels.append("weights")
    return labels


def splits_to_send(kjt: KeyedJaggedTensor, key_splits: list[int]) -> list[list[int]]:
    fault = segments_fault(key_splits, len(kjt.keys()))
    if fault:
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


def received(
    keys: list[str],
    tensors: list[Tensor],
    variable_stride_per_key: bool,
    num_workers: int,
    recat: Tensor | None,
    stride_per_rank: list[int] | None,
    stagger: int,
) -> Parts:
    """Build the keys of one rank from the tensors that all ranks sent it: parts of every rank's
    ``dist_tensors()``, cut by ``dist_splits()``, rank after rank. A key's examples are in the order
    of the ranks. If the batch is not variable, ``stride_per_rank`` has the examples of each rank.

    ``recat`` has the number of the received segment at each place of the result; None keeps the
    order. A segment is one key of one rank; or one example, if the batch is not variable and ranks
    have different strides. Ranks are laid out in rows of ``num_workers / stagger``, and their
    strides are read by column.
    """
    first = 3 if variable_stride_per_key else 2
    if len(tensors) not in (first, first + 1):
        raise InputError(
            f"dist_init: expected {first} tensors, or {first + 1} with weights, got {len(tensors)}"
        )
    if stagger < 1 or num_workers % stagger != 0:
        raise InputError(f"dist_init: stagger: expected a divisor of {num_workers}, got {stagger}")
    lengths, values = tensors[0], tensors[1]
    weights = tensors[first] if len(tensors) > first else None
    strides = _strides(len(keys), tensors, variable_stride_per_key, num_workers, stride_per_rank)
    if sum(strides) != lengths.size(0):
        raise InputError(
            f"dist_init: lengths: expected {sum(strides)} elements, the sum of the strides, "
            f"got {lengths.size(0)}"
        )
    per_key: list[list[int]] | None = None
    if variable_stride_per_key:
        ranks = torch.arange(num_workers).view(stagger, -1).t().reshape(-1).tolist()
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
    return Parts(keys, values, weights, lengths, stride=stride, stride_per_key_per_rank=per_key)


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
                f"dist_init: strides: expected {num_keys} for each of {num_workers} ranks, "
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
    """Sums of consecutive numbers. ``splits`` has the count of numbers in each sum."""
    sums = running_sums(numbers)
    return [sums[end] - sums[begin] for begin, end in pairwise(running_sums(splits))]
