"""Splits: the form in which training and evaluation read a data set."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.package.samples import SampleRequest
from embershard.package.schema import Schema


class Batch(NamedTuple):
    """B examples. If rows are requests, they are the candidates of R requests."""

    dense: Tensor
    """float32 ``[B, F]``, transformed, columns in ``schema.dense`` order."""

    sparse: KeyedJaggedTensor
    """Table rows, keys in ``schema.sparse`` order, B lists each. If rows are requests, keys of the
    request scope have R lists, and ``inverse_indices`` has the list of each example."""

    labels: Tensor
    """float32 ``[B]``, or ``[B, T]`` for T > 1 tasks. A label that is NaN does not count."""

    weights: Tensor | None = None
    """float32 ``[B]``: weight of each example's losses. None stands for ones."""

    request: Tensor | None = None
    """int64 ``[B]``: examples with equal numbers belong to one request. None if they are not
    known."""


class Split(Protocol):
    """One split of a data set, as training and evaluation read it."""

    @property
    def schema(self) -> Schema:
        """Inputs and id maps."""
        ...

    def __len__(self) -> int:
        """Number of examples."""
        ...

    def batches(
        self,
        *,
        batch_size: int,
        shuffle_seed: int | None = None,
        id_dropout: Mapping[str, float] | None = None,
        rank: int = 0,
        world_size: int = 1,
        first: int = 0,
    ) -> Iterator[Batch]:
        """One pass over the split; arguments are those of ``embershard.data.batches``.

        Batch k of all ranks together has ``batch_sizes(...)[k]`` examples. Unless rows are
        requests, rank r gets the part ``[n * r // world_size, n * (r + 1) // world_size)`` of these
        n. The part may be empty, but every rank gets equally many batches.
        """
        ...

    def batch_sizes(
        self, *, batch_size: int, shuffle_seed: int | None = None, world_size: int = 1
    ) -> NDArray[np.int64]:
        """Examples of each batch of one pass, of all ranks together."""
        ...

    def label_means(self) -> list[float]:
        """Mean label of each task, over labels that count; NaN if there are none."""
        ...

    def samples(self, count: int) -> list[SampleRequest]:
        """The first ``count`` requests, as packages keep them, without outputs."""
        ...


def check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise InputError(f"batch_size: expected at least 1, got {batch_size}")


def check_part(rank: int, world_size: int, first: int) -> None:
    """Raise InputError unless ``rank`` is one of ``world_size`` ranks and ``first`` is not below
    0."""
    if world_size < 1:
        raise InputError(f"world_size: expected at least 1, got {world_size}")
    if not 0 <= rank < world_size:
        raise InputError(f"rank: expected 0 to {world_size - 1}, got {rank}")
    if first < 0:
        raise InputError(f"first: expected at least 0, got {first}")


def even_sizes(examples: int, batch_size: int) -> NDArray[np.int64]:
    """Batches of ``batch_size`` examples, and a last one of the rest."""
    sizes = np.full(-(-examples // batch_size), batch_size, np.int64)
    if len(sizes):
        sizes[-1] = examples - batch_size * (len(sizes) - 1)
    return sizes
