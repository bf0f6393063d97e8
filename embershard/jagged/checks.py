"""Checks of shapes and dtypes of jagged tensors, as "where: expected ..., got ...", or "" if they
pass. No check reads the contents of a tensor, so that building one never waits for a device.
TorchScript compiles the checks of ``KeyedTensor``, which dense programs may contain."""

import torch
from torch import Tensor

from embershard.jagged.segments import stride_of


def jagged_fault(
    values: Tensor, weights: Tensor | None, lengths: Tensor | None, offsets: Tensor | None
) -> str:
    fault = _type_fault("values", values)
    if fault != "":
        return fault
    if values.dim() < 1:
        return "values: expected at least 1 dimension, got a scalar"
    if weights is not None:
        fault = _type_fault("weights", weights)
        if fault != "":
            return fault
        if weights.dim() < 1 or weights.size(0) != values.size(0):
            return (
                f"weights: expected one for each of {values.size(0)} values, "
                f"got shape {list(weights.shape)}"
            )
    if lengths is None and offsets is None:
        return "lengths and offsets: expected one of them, got neither"
    if lengths is not None:
        fault = _index_fault("lengths", lengths)
        if fault != "":
            return fault
    if offsets is not None:
        fault = _index_fault("offsets", offsets)
        if fault == "" and offsets.size(0) == 0:
            return "offsets: expected at least 1 element, got 0"
        if fault == "" and lengths is not None and offsets.size(0) != lengths.size(0) + 1:
            return f"offsets: expected {lengths.size(0) + 1} elements, got {offsets.size(0)}"
        return fault
    return ""


def stride_fault(
    keys: list[str],
    values: Tensor,
    lengths: Tensor | None,
    offsets: Tensor | None,
    stride: int | None,
    strides: list[int] | None,
    length_per_key: list[int] | None,
    inverse: tuple[list[str], Tensor] | None = None,
) -> tuple[str, int]:
    """Returns the fault, and the number of examples. ``strides`` has the examples of each key of a
    variable batch, ``inverse`` its inverse indices."""
    if strides is not None:
        fault, examples = _variable_stride(stride, strides, inverse)
        if fault == "":
            fault = _strides_fault(keys, strides)
        slots, meaning = sum(strides), "the examples of all keys"
    else:
        examples = stride_of(len(keys), stride, lengths, offsets)
        fault = ""
        if len(keys) == 0 and values.size(0) != 0:
            fault = f"values: expected 0 values without keys, got {values.size(0)}"
        slots, meaning = len(keys) * examples, f"{len(keys)} keys x stride {examples}"
    if examples < 0:
        fault = f"stride: expected at least 0, got {examples}"
    if fault != "":
        return fault, examples
    if lengths is not None and lengths.size(0) != slots:
        fault = f"lengths: expected {slots} elements ({meaning}), got {lengths.size(0)}"
    elif offsets is not None and offsets.size(0) != slots + 1:
        fault = f"offsets: expected {slots + 1} elements ({meaning}, plus 1), got {offsets.size(0)}"
    elif length_per_key is not None and len(length_per_key) != len(keys):
        fault = f"length_per_key: expected {len(keys)} elements, got {len(length_per_key)}"
    elif length_per_key is not None:
        fault = totals_fault(keys, length_per_key, values.size(0))
    return fault, examples


def _variable_stride(
    stride: int | None, strides: list[int], inverse: tuple[list[str], Tensor] | None
) -> tuple[str, int]:
    """Returns the fault, and the number of examples: the width of the inverse indices, or else the
    stride, or else the largest stride of a key."""
    fault = ""
    if inverse is not None and inverse[1].dim() == 2 and inverse[1].size(0) != 0:
        examples = inverse[1].size(1)
        if stride is not None and stride != examples:
            fault = f"stride: expected {examples}, the width of the inverse indices, got {stride}"
        return fault, examples
    largest = max(strides) if len(strides) != 0 else 0
    examples = largest if stride is None else stride
    if examples < largest:
        fault = f"stride: expected at least {largest}, the largest stride of a key, got {stride}"
    return fault, examples


def _strides_fault(keys: list[str], strides: list[int]) -> str:
    if len(strides) != len(keys):
        return f"stride_per_key_per_rank: expected {len(keys)} keys, got {len(strides)}"
    for i, key in enumerate(keys):
        if strides[i] < 0:
            return f"feature '{key}': expected at least 0 examples, got {strides[i]}"
    return ""


def segments_fault(counts: list[int], num_keys: int) -> str:
    for place, count in enumerate(counts):
        if count < 0:
            return f"expected at least 0 keys at {place}, got {count}"
    if sum(counts) != num_keys:
        return f"expected numbers that sum to {num_keys} keys, got {sum(counts)}"
    return ""


def keyed_fault(keys: list[str], widths: list[int], values: Tensor, key_dim: int) -> str:
    fault = keys_fault(keys)
    if fault != "":
        return fault
    if len(widths) != len(keys):
        return f"length_per_key: expected {len(keys)} elements, got {len(widths)}"
    fault = _type_fault("values", values)
    if fault != "":
        return fault
    if key_dim < 0 or key_dim >= values.dim():
        return f"key_dim: expected 0..{values.dim() - 1}, got {key_dim}"
    for i, key in enumerate(keys):
        if widths[i] < 0:
            return f"feature '{key}': expected a width of at least 0, got {widths[i]}"
    if sum(widths) != values.size(key_dim):
        return (
            f"values: expected size {sum(widths)}, the sum of the widths, in dimension {key_dim}, "
            f"got shape {list(values.shape)}"
        )
    return ""


def totals_fault(keys: list[str], length_per_key: list[int], total: int) -> str:
    lengths_sum = 0
    for i, key in enumerate(keys):
        if length_per_key[i] < 0:
            return f"feature '{key}': expected at least 0 values, got {length_per_key[i]}"
        lengths_sum += length_per_key[i]
    if lengths_sum != total:
        return f"sum of lengths: expected {total}, the number of values, got {lengths_sum}"
    return ""


def negative_fault(keys: list[str], stride: int, lengths: Tensor) -> str:
    below = torch.nonzero(lengths < 0)
    if below.size(0) == 0:
        return ""
    at = int(below[0])
    return (
        f"feature '{keys[at // stride]}', example {at % stride}: "
        f"expected a length of at least 0, got {int(lengths[at])}"
    )


def keys_fault(keys: list[str]) -> str:
    first: dict[str, int] = {}
    for i, key in enumerate(keys):
        if key in first:
            return f"keys: expected distinct names, got '{key}' at {first[key]} and {i}"
        first[key] = i
    return ""


def positions_fault(indices: list[int], count: int) -> str:
    for position, index in enumerate(indices):
        if index < 0 or index >= count:
            return f"expected indices in 0..{count - 1}, got {index} at {position}"
    return ""


def _type_fault(name: str, tensor: Tensor) -> str:
    """Check a type at run time, for callers without a type checker."""
    if not isinstance(tensor, Tensor):
        return f"{name}: expected a tensor, got {type(tensor).__name__}"  # type: ignore[unreachable]
    return ""


def _index_fault(name: str, tensor: Tensor) -> str:
    fault = _type_fault(name, tensor)
    if fault != "":
        return fault
    if tensor.dtype != torch.int32 and tensor.dtype != torch.int64:
        return f"{name}: expected int32 or int64, got {tensor.dtype}"
    if tensor.dim() != 1:
        return f"{name}: expected 1 dimension, got shape {list(tensor.shape)}"
    return ""
