from typing import Any

import torch
from torch import Tensor

from embershard.errors import InputError, MissingKeyError
from embershard.jagged import checks, joined, segments
from embershard.jagged.jagged_base import JaggedBase
from embershard.jagged.jagged_tensor import JaggedTensor
from embershard.jagged.pytrees import jagged_children, register_pytree
from embershard.jagged.text import keyed_jagged_repr, keyed_jagged_text


class KeyedJaggedTensor(JaggedBase):
    """A batch's sparse features: a list of values for each of F keys and B examples ("stride").

                 example 0   example 1   example 2
        "user"   [v0, v1]    []          [v2]
        "item"   [v3]        [v4]        [v5, v6, v7]

        keys     ["user", "item"]
        values   [v0, v1, v2, v3, v4, v5, v6, v7]     [total]
        lengths  [2, 0, 1,  1, 1, 3]                  [F * B]
        offsets  [0, 2, 2, 3, 4, 5, 8]                [F * B + 1]

    Works in torch.fx traces and as a torch pytree. Tensors are not copied.

    The constructor checks keys, shapes and dtypes and never waits for a device. ``length_per_key``
    and the methods that use it check that lengths sum to the number of values.
    ``validate_keyed_jagged_tensor`` checks every length and offset.

    In a variable batch, keys have different numbers of examples. ``stride_per_key_per_rank`` has
    them, and inverse indices say which of a key's examples each of the B examples is.

    Args:
        keys: F distinct names.
        values: any dtype, [total, ...]; ids are int64 or int32.
        weights: numbers, [total, ...]: one for each value. None: unweighted.
        lengths: int32 or int64, [F * B] or [F, B].
        offsets: int32 or int64, [F * B + 1]; first 0, last the total.
        stride: B. None: computed from lengths or offsets. For a variable batch: width of the
            inverse indices, or else the largest stride of a key. 0 without keys.
        length_per_key: number of values of each key, if known; saves waiting for the device.
        stride_per_key_per_rank: for a variable batch, examples of each key on each rank whose batch
            it contains. A key has as many lengths as examples on all ranks.
        inverse_indices: keys, and int64 [keys, B].
        repeated_keys: True if a key may occur twice, with the same examples, as in the result of
            ``permute``.

    Raises:
        InputError: neither lengths nor offsets; a repeated key; lengths, offsets or weights that
            contradict keys, stride or values; a wrong dtype.
    """

    def __init__(
        self,
        keys: list[str],
        values: Tensor,
        weights: Tensor | None = None,
        lengths: Tensor | None = None,
        offsets: Tensor | None = None,
        stride: int | None = None,
        length_per_key: list[int] | None = None,
        stride_per_key_per_rank: list[list[int]] | None = None,
        inverse_indices: tuple[list[str], Tensor] | None = None,
        repeated_keys: bool = False,
    ) -> None:
        names = list(keys)
        if isinstance(lengths, Tensor) and lengths.dim() == 2:
            if lengths.size(0) != len(names):
                raise InputError(
                    f"KeyedJaggedTensor lengths: expected {len(names)} rows, one a key, "
                    f"got {lengths.size(0)}"
                )
            lengths = lengths.reshape(-1)
        strides: list[int] | None = None
        if stride_per_key_per_rank is not None:
            strides = [sum(of_ranks) for of_ranks in stride_per_key_per_rank]
        fault = "" if repeated_keys else checks.keys_fault(names)
        fault = fault or checks.jagged_fault(values, weights, lengths, offsets)
        examples = 0
        if not fault:
            fault, examples = checks.stride_fault(
                names, values, lengths, offsets, stride, strides, length_per_key, inverse_indices
            )
        if fault:
            raise InputError(f"KeyedJaggedTensor {fault}")

        super().__init__(values, weights, lengths, offsets)
        self._keys = names
        self._stride = examples
        self._length_per_key = length_per_key
        self._strides = stride_per_key_per_rank
        self._inverse_keys = [] if inverse_indices is None else inverse_indices[0]
        self._inverse = None if inverse_indices is None else inverse_indices[1]

    @staticmethod
    def from_lengths_sync(
        keys: list[str],
        values: Tensor,
        lengths: Tensor,
        weights: Tensor | None = None,
        stride: int | None = None,
    ) -> "KeyedJaggedTensor":
        """Call the constructor, then ``sync()``, which also checks the sum of the lengths."""
        return KeyedJaggedTensor(keys, values, weights, lengths, None, stride).sync()

    @staticmethod
    def from_offsets_sync(
        keys: list[str],
        values: Tensor,
        offsets: Tensor,
        weights: Tensor | None = None,
        stride: int | None = None,
    ) -> "KeyedJaggedTensor":
        """Call the constructor, then ``sync()``, which also checks the first and last offset."""
        return KeyedJaggedTensor(keys, values, weights, None, offsets, stride).sync()

    @staticmethod
    def concat(kjt_list: list["KeyedJaggedTensor"]) -> "KeyedJaggedTensor":
        """All keys, in order. Raises InputError for an empty list or a repeated key. Parts must
        agree in the number of examples. Either all or none have weights,
        ``stride_per_key_per_rank`` and inverse indices."""
        return _concat(kjt_list)

    @staticmethod
    def empty(
        is_weighted: bool = False,
        device: torch.device | None = None,
        values_dtype: torch.dtype | None = None,
        weights_dtype: torch.dtype | None = None,
        lengths_dtype: torch.dtype = torch.int32,
    ) -> "KeyedJaggedTensor":
        """A batch without keys and examples. Missing dtypes are torch's default dtype."""
        return _empty(is_weighted, device, values_dtype, weights_dtype, lengths_dtype)

    @staticmethod
    def empty_like(kjt: "KeyedJaggedTensor") -> "KeyedJaggedTensor":
        """A batch without keys, with the dtypes and device of ``kjt``, and empty weights if ``kjt``
        has weights. Its stride is that of ``kjt``, or 0 if ``kjt`` is a variable batch."""
        return _empty_like(kjt)

    @staticmethod
    def from_jt_dict(jt_dict: dict[str, JaggedTensor]) -> "KeyedJaggedTensor":
        """One key from each entry, in order. Raises InputError if entries differ in examples or
        weights."""
        return _from_jt_dict(jt_dict)

    def keys(self) -> list[str]:
        """The F names. Do not change the list."""
        return self._keys

    def stride(self) -> int:
        """B, the number of examples. Parts of a variable batch have that of the whole."""
        return self._stride

    def stride_per_key(self) -> list[int]:
        if self._strides is None:
            return [self._stride for _ in self._keys]
        return [sum(ranks) for ranks in self._strides]

    def stride_per_key_per_rank(self) -> list[list[int]]:
        """Examples of each key on each rank; of one rank, unless the batch is variable."""
        if self._strides is None:
            return [[self._stride] for _ in self._keys]
        return self._strides

    def variable_stride_per_key(self) -> bool:
        """True if built with ``stride_per_key_per_rank``."""
        return self._strides is not None

    def inverse_indices_or_none(self) -> tuple[list[str], Tensor] | None:
        """Keys, and int64 [keys, B], or None."""
        return None if self._inverse is None else (self._inverse_keys, self._inverse)

    def inverse_indices(self) -> tuple[list[str], Tensor]:
        """Keys, and int64 [keys, B]. Raises InputError if there are none."""
        if self._inverse is None:
            raise InputError(
                "inverse_indices: expected a KeyedJaggedTensor with them, got one without"
            )
        return self._inverse_keys, self._inverse

    def sync(self) -> "KeyedJaggedTensor":
        """Compute ``length_per_key``, which waits for the device, and return the same object."""
        self.length_per_key()
        return self

    def unsync(self) -> "KeyedJaggedTensor":
        """Forget ``length_per_key`` and return the same object."""
        self._length_per_key = None
        return self

    def length_per_key(self) -> list[int]:
        """Number of values of each key. Waits for the device the first time. Raises InputError if
        the lengths do not sum to the number of values, or a key's is negative."""
        if self._length_per_key is not None:
            return self._length_per_key
        if self._strides is not None:
            counts = segments.counts_at(self.offsets(), self.lengths_offset_per_key())
        elif self._by_offsets:
            counts = segments.counts_of_offsets(self.offsets(), len(self._keys))
        else:
            counts = segments.counts_of_lengths(self.lengths(), len(self._keys))
        fault = checks.totals_fault(self._keys, counts, self._values.size(0))
        if fault:
            if self._strides is None and not self._by_offsets:
                fault = checks.negative_fault(self._keys, self._stride, self.lengths()) or fault
            raise InputError(f"KeyedJaggedTensor {fault}")
        self._length_per_key = counts
        return counts

    def length_per_key_or_none(self) -> list[int] | None:
        """``length_per_key``, or None if it was not passed and not computed yet."""
        return self._length_per_key

    def offset_per_key(self) -> list[int]:
        """First value of each key, and the total: F + 1 numbers."""
        return segments.running_sums(self.length_per_key())

    def offset_per_key_or_none(self) -> list[int] | None:
        """``offset_per_key``, or None if computing it would wait for the device."""
        known = self._length_per_key
        return None if known is None else segments.running_sums(known)

    def lengths_offset_per_key(self) -> list[int]:
        """First length of each key, and the number of lengths: F + 1 numbers."""
        return segments.running_sums(self.stride_per_key())

    def index_per_key(self) -> dict[str, int]:
        return {key: i for i, key in enumerate(self._keys)}

    def split(self, segments: list[int]) -> list["KeyedJaggedTensor"]:
        """Consecutive groups of keys, as views. ``segments`` has the number of keys in each group,
        maybe 0. Raises InputError for numbers that are negative or do not sum to the number of
        keys."""
        fault = checks.segments_fault(segments, len(self._keys))
        if fault:
            raise InputError(f"split: {fault}")
        groups: list[KeyedJaggedTensor] = []
        first = 0
        for segment in segments:
            groups.append(self._slice(first, first + segment))
            first += segment
        return groups

    def permute(self, indices: list[int]) -> "KeyedJaggedTensor":
        """The keys at ``indices``, in that order. An index may be repeated or left out. Raises
        InputError for an index that is not a key's position."""
        fault = checks.positions_fault(indices, len(self._keys))
        if fault:
            raise InputError(f"permute: {fault}")
        counts = self.length_per_key()
        bounds = self.offset_per_key()
        strides = self._strides
        weights = self._weights
        if weights is not None:
            weights = segments.gather_slices(weights, bounds, indices)
        return KeyedJaggedTensor(
            [self._keys[i] for i in indices],
            segments.gather_slices(self._values, bounds, indices),
            weights,
            segments.gather_slices(self.lengths(), self.lengths_offset_per_key(), indices),
            None,
            self._stride,
            [counts[i] for i in indices],
            None if strides is None else [strides[i] for i in indices],
            segments.rows_of([self._keys[i] for i in indices], self._inverse_keys, self._inverse),
            True,
        )

    def flatten_lengths(self) -> "KeyedJaggedTensor":
        """Returns the same object, since lengths are always flat."""
        return self

    def __getitem__(self, key: str) -> JaggedTensor:
        """The B examples of one key, as views. Raises MissingKeyError, which is a KeyError."""
        if key not in self._keys:
            raise MissingKeyError(f"feature '{key}': expected one of {self._keys}")
        return self._feature(self._keys.index(key), self.offset_per_key())

    def to_dict(self) -> dict[str, JaggedTensor]:
        bounds = self.offset_per_key()
        return {key: self._feature(index, bounds) for index, key in enumerate(self._keys)}

    def to(
        self, device: torch.device, non_blocking: bool = False, dtype: torch.dtype | None = None
    ) -> "KeyedJaggedTensor":
        """A copy on ``device``, with weights of ``dtype``. Tensors that are there already are
        shared."""
        weights = self._weights
        if weights is not None:
            weights = weights.to(device, non_blocking=non_blocking)
            if dtype is not None:
                weights = weights.to(dtype)
        lengths: Tensor | None = None
        offsets: Tensor | None = None
        if self._by_offsets:
            offsets = self.offsets().to(device, non_blocking=non_blocking)
        else:
            lengths = self.lengths().to(device, non_blocking=non_blocking)
        values = self._values.to(device, non_blocking=non_blocking)
        inverse = self._inverse
        inverse_indices: tuple[list[str], Tensor] | None = None
        if inverse is not None:
            inverse_indices = (self._inverse_keys, inverse.to(device, non_blocking=non_blocking))
        return KeyedJaggedTensor(
            self._keys,
            values,
            weights,
            lengths,
            offsets,
            self._stride,
            self._length_per_key,
            self._strides,
            inverse_indices,
            True,
        )

    def dist_labels(self) -> list[str]:
        """Names of ``dist_tensors()``: lengths, values, strides if variable, weights if any."""
        return joined.labels_to_send(self)

    def dist_splits(self, key_splits: list[int]) -> list[list[int]]:
        """Number of elements of each of ``dist_tensors()`` for each rank, if each rank gets the
        next ``key_splits`` keys. Raises InputError for negative numbers or a wrong sum."""
        return joined.splits_to_send(self, key_splits)

    def dist_tensors(self) -> list[Tensor]:
        """Tensors to send to other ranks, cut by ``dist_splits()``."""
        return joined.tensors_to_send(self)

    @staticmethod
    def dist_init(
        keys: list[str],
        tensors: list[Tensor],
        variable_stride_per_key: bool,
        num_workers: int,
        recat: Tensor | None,
        stride_per_rank: list[int] | None,
        stagger: int = 1,
    ) -> "KeyedJaggedTensor":
        """Build the keys of one rank from ``dist_tensors()`` of all ranks: see
        ``joined.received``."""
        return _received(
            keys, tensors, variable_stride_per_key, num_workers, recat, stride_per_rank, stagger
        )

    def __repr__(self) -> str:
        return keyed_jagged_repr(self)

    def __str__(self) -> str:
        return keyed_jagged_text(self)

    def _slice(self, first: int, last: int) -> "KeyedJaggedTensor":
        counts = self.length_per_key()
        bounds = self.offset_per_key()
        strides = self._strides
        slots = self.lengths_offset_per_key()
        weights = self._weights
        if weights is not None:
            weights = weights[bounds[first] : bounds[last]]
        return KeyedJaggedTensor(
            self._keys[first:last],
            self._values[bounds[first] : bounds[last]],
            weights,
            self.lengths()[slots[first] : slots[last]],
            None,
            self._stride,
            counts[first:last],
            None if strides is None else strides[first:last],
            segments.rows_of(self._keys[first:last], self._inverse_keys, self._inverse),
            True,
        )

    def _feature(self, index: int, bounds: list[int]) -> JaggedTensor:
        slots = self.lengths_offset_per_key()
        weights = self._weights
        if weights is not None:
            weights = weights[bounds[index] : bounds[index + 1]]
        return JaggedTensor(
            self._values[bounds[index] : bounds[index + 1]],
            weights,
            self.lengths()[slots[index] : slots[index + 1]],
        )


# In a torch.fx trace these functions get proxies, so each is wrapped as one node.


@torch.fx.wrap
def _concat(kjt_list: list[KeyedJaggedTensor]) -> KeyedJaggedTensor:
    return KeyedJaggedTensor(*joined.concatenated(kjt_list))


@torch.fx.wrap
def _empty(
    is_weighted: bool,
    device: torch.device | None,
    values_dtype: torch.dtype | None,
    weights_dtype: torch.dtype | None,
    lengths_dtype: torch.dtype,
) -> KeyedJaggedTensor:
    jagged = JaggedTensor.empty(is_weighted, device, values_dtype, weights_dtype, lengths_dtype)
    return KeyedJaggedTensor([], jagged.values(), jagged.weights_or_none(), jagged.lengths())


@torch.fx.wrap
def _empty_like(kjt: KeyedJaggedTensor) -> KeyedJaggedTensor:
    return KeyedJaggedTensor(*joined.emptied(kjt))


@torch.fx.wrap
def _from_jt_dict(jt_dict: dict[str, JaggedTensor]) -> KeyedJaggedTensor:
    if not jt_dict:
        return KeyedJaggedTensor.empty()
    return _concat(
        [
            KeyedJaggedTensor([key], jagged.values(), jagged.weights_or_none(), jagged.lengths())
            for key, jagged in jt_dict.items()
        ]
    )


@torch.fx.wrap
def _received(
    keys: list[str],
    tensors: list[Tensor],
    variable_stride_per_key: bool,
    num_workers: int,
    recat: Tensor | None,
    stride_per_rank: list[int] | None,
    stagger: int,
) -> KeyedJaggedTensor:
    parts = joined.received(
        keys, tensors, variable_stride_per_key, num_workers, recat, stride_per_rank, stagger
    )
    return KeyedJaggedTensor(*parts).sync()


def _children(node: Any) -> tuple[str, ...]:
    names = jagged_children(node)
    return names if node._inverse is None else (*names, "_inverse")


register_pytree(
    KeyedJaggedTensor,
    _children,
    static=("_keys", "_stride", "_strides", "_inverse_keys", "_by_offsets"),
    optional=("_weights", "_lengths", "_offsets", "_length_per_key", "_inverse"),
)
