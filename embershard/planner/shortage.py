"""``shortage_text``: why no plan fits the memory of the ranks, and what would help."""

import math
from collections.abc import Sequence

import numpy as np

from embershard.formatting import count_text, megabytes_text
from embershard.planner.bound import Floats, Options
from embershard.planner.starts import InfeasibleError

LARGEST_SHOWN = 3
"""Tables that the text names."""

WEIGHTS = np.linspace(0, 1, 101)
"""Weights of one kind of memory relative to the other, in the bound on the shortage."""

KINDS = ("device memory", "host memory")


def short_bytes(options: Options, caps: Floats) -> list[float]:
    """Bytes of each kind of memory that any plan lacks, with as much as can be on the devices. All
    zero: all ranks together have enough memory.

    For weights of both kinds of at most 1, every plan lacks the weighted bytes of the options that
    are smallest by these weights, less those of the ranks. The shortage is the largest of these
    bounds, a linear programme's dual.

    Args:
        options: of each table.
        caps: usable bytes of each kind of memory and rank, ``(kinds, ranks)``.
    """
    of_tables = [np.array([option.memory.sum(1) for option in cuts]) for cuts in options]
    usable = caps.sum(1)

    def lacking(*weights: float) -> float:
        of_kinds = np.array(weights)
        least = sum(float((sizes @ of_kinds).min()) for sizes in of_tables)
        return least - float(of_kinds @ usable)

    if len(usable) == 1:
        return [max(0.0, lacking(1.0))]
    of_devices = max(0.0, lacking(1.0, 0.0))
    bounds = [lacking(*pair) for weight in WEIGHTS for pair in ((1.0, weight), (weight, 1.0))]
    return [of_devices, max(of_devices, *bounds) - of_devices]


def least_bytes(options: Options) -> list[float]:
    """Bytes of the smallest option of each table, of both kinds of memory together."""
    return [min(float(option.memory.sum()) for option in cuts) for cuts in options]


def shortage_text(
    options: Options,
    caps: Floats,
    tables: Sequence[str],
    failure: InfeasibleError | None,
    help_texts: Sequence[str],
) -> str:
    """The total shortage, the largest tables, and what helps.

    Args:
        caps: usable bytes of each kind of memory and rank, ``(kinds, ranks)``.
        tables: their names.
        failure: of the search, if all ranks together have enough memory.
        help_texts: what may be changed besides memory.
    """
    short, sizes = short_bytes(options, caps), least_bytes(options)
    needed = f"tables and buffers need at least {_size(sum(sizes))}"
    there = f"all ranks together have {_sizes_text(caps.sum(1).tolist())}"
    if failure is None:
        of_kinds = f" ({_sizes_text(short)})" if len(short) > 1 else ""
        what = f"{_size(sum(short))} short{of_kinds}: {needed}, {there}"
        each_rank = _size(sum(short) / caps.shape[1])
        more = f"at least {each_rank} more of usable memory on each rank"
    else:
        kind = f" of {KINDS[failure.kind]}" if len(short) > 1 else ""
        what = (
            f"found no placement, although no memory is short in all ({needed}, {there}): table "
            f"{tables[failure.table]!r} lacks {_size(failure.missing_bytes)}{kind} on the rank "
            "with most room"
        )
        more = "more memory on each rank"
    order = sorted(range(len(sizes)), key=lambda table: -sizes[table])[:LARGEST_SHOWN]
    largest = ", ".join(f"{tables[table]!r} {_size(sizes[table])}" for table in order)
    helping = "; ".join([more, *help_texts])
    return f"plan: {what}; the largest tables: {largest}; what helps: {helping}"


def _size(count: float) -> str:
    """Bytes, or MB of a million bytes and more."""
    if count >= 1e6:
        return f"{megabytes_text(count)} MB"
    return count_text(math.ceil(count), "byte")


def _sizes_text(sizes: Sequence[float]) -> str:
    """Bytes of each kind of memory, or of the only one."""
    if len(sizes) == 1:
        return _size(sizes[0])
    return " and ".join(f"{_size(size)} of {kind}" for size, kind in zip(sizes, KINDS, strict=True))
