"""Arithmetic on lengths and offsets without a loop over examples, also for TorchScript.

lengths  [2, 0, 1]        number of values of each example
offsets  [0, 2, 2, 3]     first value of each example, and the total
values   [v0, v1, v2]     values of all examples
"""

import math

import torch
from torch import Tensor

from embershard.errors import InputError


def lengths_to_offsets(lengths: Tensor, total: int) -> Tensor:
    """Offsets [B + 1] in the dtype of ``lengths``, or int64 if ``total``, the number of values,
    exceeds int32."""
    dtype = lengths.dtype
    if total > 2147483647:  # The largest int32.
        dtype = torch.int64
    offsets = torch.zeros(lengths.size(0) + 1, dtype=dtype, device=lengths.device)
    offsets[1:] = torch.cumsum(lengths, dim=0, dtype=dtype)
    return offsets


def offsets_to_lengths(offsets: Tensor) -> Tensor:
    return offsets[1:] - offsets[:-1]


def counts_of_lengths(lengths: Tensor, num_keys: int) -> list[int]:
    """Number of values of each key, from lengths [num_keys * B]. Waits for the device."""
    if num_keys == 0:
        return []
    table = lengths.view(num_keys, lengths.size(0) // num_keys)
    counts: list[int] = torch.sum(table, dim=1).tolist()
    return counts


def counts_of_offsets(offsets: Tensor, num_keys: int) -> list[int]:
    """Number of values of each key, from offsets [num_keys * B + 1]. Waits for the device."""
    examples = (offsets.size(0) - 1) // max(num_keys, 1)
    at = torch.arange(num_keys + 1, device=offsets.device) * examples
    bounds: list[int] = offsets[at].to(torch.int64).tolist()  # TorchScript's tolist needs int64.
    if bounds[0] != 0:
        raise InputError(f"offsets: expected the first to be 0, got {bounds[0]}")
    return [bounds[i + 1] - bounds[i] for i in range(num_keys)]


def counts_at(offsets: Tensor, bounds: list[int]) -> list[int]:
    """Number of values between consecutive positions of ``offsets``. Waits for the device."""
    ends: list[int] = offsets[torch.tensor(bounds, device=offsets.device)].to(torch.int64).tolist()
    if ends[0] != 0:
        raise InputError(f"offsets: expected the first to be 0, got {ends[0]}")
    return [ends[i + 1] - ends[i] for i in range(len(bounds) - 1)]


def stride_of(
    num_keys: int, stride: int | None, lengths: Tensor | None, offsets: Tensor | None
) -> int:
    """``stride``, or else the number of lengths over the number of keys, rounded down."""
    if stride is not None:
        return stride
    slots = 0
    if lengths is not None:
        slots = lengths.size(0)
    elif offsets is not None:
        slots = offsets.size(0) - 1
    return slots // max(num_keys, 1)


def running_sums(counts: list[int]) -> list[int]:
    """0, and the sum of the first 1, 2, ... counts."""
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums


def places_of(keys: list[str], widths: list[int]) -> dict[str, tuple[int, int]]:
    """Offset and width of each key in the concatenation of all keys."""
    places: dict[str, tuple[int, int]] = {}
    start = 0
    for index, key in enumerate(keys):
        places[key] = (start, widths[index])
        start += widths[index]
    return places


def gather_slices(tensor: Tensor, bounds: list[int], order: list[int]) -> Tensor:
    """Concatenate the slices ``tensor[bounds[i]:bounds[i + 1]]`` for each i of ``order``."""
    if len(order) == 0:
        return tensor[:0]
    return torch.cat([tensor[bounds[i] : bounds[i + 1]] for i in order])


def rows_of(
    names: list[str], keys: list[str], inverse: Tensor | None
) -> tuple[list[str], Tensor] | None:
    """Inverse indices of ``names`` in their order, from ``inverse`` [keys, B]. Names that are not
    in ``keys`` are left out."""
    if inverse is None:
        return None
    if inverse.dim() == 0 or inverse.size(0) != len(keys):
        raise InputError(
            f"inverse_indices: expected a row for each of {keys}, got shape {list(inverse.shape)}"
        )
    rows: dict[str, int] = {}
    for i, key in enumerate(keys):
        rows[key] = i
    known: list[str] = []
    order: list[int] = []
    for name in names:
        if name in rows:
            known.append(name)
            order.append(rows[name])
    return known, gather_slices(inverse, list(range(len(keys) + 1)), order)


def pad_jagged(
    values: Tensor, lengths: Tensor, offsets: Tensor, width: int | None, padding: float
) -> Tensor:
    """Truncate or pad each example to one width, [B, width, ...]: see
    ``JaggedTensor.to_padded_dense``. ``lengths`` [B] and ``offsets`` [B + 1] must agree."""
    integers = not values.is_floating_point() and not values.is_complex()
    if integers and (not math.isfinite(padding) or padding != math.floor(padding)):
        raise InputError(
            f"padding_value: expected a whole number for integer values, got {padding}"
        )
    columns = 0
    if width is not None:
        columns = width
        if columns < 0:
            raise InputError(f"desired_length: expected at least 0, got {columns}")
    elif lengths.size(0) > 0:
        columns = int(lengths.max().item())
        if columns < 0:
            raise InputError(
                f"lengths: expected at least 0, got only negative ones, up to {columns}"
            )

    shape = [lengths.size(0), columns]
    for size in values.shape[1:]:
        shape.append(size)
    padded = torch.full(shape, padding, dtype=values.dtype, device=values.device)
    if values.size(0) == 0 or padded.numel() == 0:
        return padded

    column = torch.arange(columns, device=values.device).unsqueeze(0)  # [1, width]
    inside = column < lengths.unsqueeze(1)  # [B, width]
    position = torch.where(inside, offsets[:-1].unsqueeze(1) + column, torch.zeros_like(column))
    gathered = values.index_select(0, position.reshape(-1)).view(shape)
    for _ in values.shape[1:]:
        inside = inside.unsqueeze(-1)
    return torch.where(inside, gathered, padded)
