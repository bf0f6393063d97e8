"""``JaggedBase``: the tensors that ``JaggedTensor`` and ``KeyedJaggedTensor`` both have."""

from typing import Self

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged.pytrees import TraceableMeta, tree_map
from embershard.jagged.segments import lengths_to_offsets, offsets_to_lengths


class JaggedBase(metaclass=TraceableMeta):
    """Values, weights if any, and lengths or offsets. The constructor checks nothing."""

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
        """Any dtype, [total, ...]."""
        return self._values

    def weights(self) -> Tensor:
        """[total, ...]. Raises InputError when unweighted."""
        if self._weights is None:
            raise InputError(
                f"weights: expected a weighted {type(self).__name__}, got an unweighted one"
            )
        return self._weights

    def weights_or_none(self) -> Tensor | None:
        """[total, ...]. None when unweighted."""
        return self._weights

    def lengths(self) -> Tensor:
        """int32 or int64, one length for each list."""
        if self._lengths is None:
            assert self._offsets is not None
            self._lengths = offsets_to_lengths(self._offsets)
        return self._lengths

    def lengths_or_none(self) -> Tensor | None:
        """The lengths, unless the object was built from offsets and nothing has computed them."""
        return self._lengths

    def offsets(self) -> Tensor:
        """int32 or int64, one more than the lengths."""
        if self._offsets is None:
            assert self._lengths is not None
            self._offsets = lengths_to_offsets(self._lengths, self._values.size(0))
        return self._offsets

    def offsets_or_none(self) -> Tensor | None:
        """The offsets, unless the object was built from lengths and nothing has computed them."""
        return self._offsets

    def device(self) -> torch.device:
        """The device of the values."""
        return self._values.device

    def pin_memory(self) -> Self:
        """A copy in page-locked memory, from which a GPU can fetch while the CPU goes on."""
        return tree_map(Tensor.pin_memory, self)

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the memory of every tensor until ``stream`` has done what is queued on it now."""
        for value in vars(self).values():
            if isinstance(value, Tensor):
                value.record_stream(stream)
