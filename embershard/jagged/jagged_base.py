from typing import Self

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged.pytrees import TraceableMeta, tree_map
from embershard.jagged.segments import lengths_to_offsets, offsets_to_lengths


class JaggedBase(metaclass=TraceableMeta):
    """Common part of ``JaggedTensor`` and ``KeyedJaggedTensor``. The constructor checks nothing."""

    def __init__(
        self,
        values: Tensor,
        weights: Tensor | None,
        lengths: Tensor | None,
        offsets: Tensor | None,
    ) -> None:
        self._values = values
        self._weights = weights
        self._lengths = lengths
        self._offsets = offsets
        self._by_offsets = lengths is None

    def values(self) -> Tensor:
        """Values, any dtype, [total, ...]."""
        return self._values

    def weights(self) -> Tensor:
        """Weights, [total, ...]. Raises InputError if there are none."""
        if self._weights is None:
            raise InputError(
                f"weights: expected a weighted {type(self).__name__}, got an unweighted one"
            )
        return self._weights

    def weights_or_none(self) -> Tensor | None:
        """Weights, [total, ...], or None."""
        return self._weights

    def lengths(self) -> Tensor:
        """Length of each list: int32 or int64."""
        if self._lengths is None:
            assert self._offsets is not None
            self._lengths = offsets_to_lengths(self._offsets)
        return self._lengths

    def lengths_or_none(self) -> Tensor | None:
        """The lengths, or None if they were not passed and not computed yet."""
        return self._lengths

    def offsets(self) -> Tensor:
        """Offset of each list and of the end, int32 or int64."""
        if self._offsets is None:
            assert self._lengths is not None
            self._offsets = lengths_to_offsets(self._lengths, self._values.size(0))
        return self._offsets

    def offsets_or_none(self) -> Tensor | None:
        """The offsets, or None if they were not passed and not computed yet."""
        return self._offsets

    def device(self) -> torch.device:
        return self._values.device

    def pin_memory(self) -> Self:
        """A copy in page-locked memory, which a GPU can read while the CPU goes on."""
        return tree_map(Tensor.pin_memory, self)

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the memory of every tensor until ``stream`` has done the work that is queued now."""
        for value in vars(self).values():
            if isinstance(value, Tensor):
                value.record_stream(stream)
