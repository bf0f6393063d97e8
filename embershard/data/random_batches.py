"""Batches of random numbers, for scripts that were written with TorchRec's `RandomRecDataset`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, cycle, islice

import torch
from torch.utils.data import IterableDataset

from embershard.data.splits import Batch
from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor


class RandomRecDataset(IterableDataset[Batch]):
    """Batches of random numbers. The arguments are TorchRec's.

    Args:
        keys: names of the sparse inputs, at least one.
        batch_size: examples of each batch.
        hash_size: ids are 0 .. hash_size - 1.
        hash_sizes: the same for each key, in place of ``hash_size``.
        ids_per_feature: ids of each list.
        ids_per_features: the same for each key, in place of ``ids_per_feature``.
        num_dense: number of dense inputs, which are standard normal.
        manual_seed: seed of all numbers. None: torch's own generator.
        num_batches: batches of one pass. None: a pass has no end.
        num_generated_batches: batches that are kept and repeated. Negative: each batch is new.

    Raises:
        InputError: arguments out of range.
    """

    def __init__(
        self,
        keys: Sequence[str],
        batch_size: int,
        hash_size: int = 100,
        hash_sizes: Sequence[int] | None = None,
        ids_per_feature: int = 2,
        ids_per_features: Sequence[int] | None = None,
        num_dense: int = 50,
        manual_seed: int | None = None,
        num_batches: int | None = None,
        num_generated_batches: int = 10,
    ) -> None:
        if not keys:
            raise InputError("keys: expected the name of at least one sparse input, got none")
        self._keys, self._batch_size, self._num_dense = list(keys), batch_size, num_dense
        self._hash_sizes = list(hash_sizes or [hash_size] * len(keys))
        self._ids_per_features = list(ids_per_features or [ids_per_feature] * len(keys))
        for name, numbers, least in (
            ("hash_sizes", self._hash_sizes, 1),
            ("ids_per_features", self._ids_per_features, 0),
        ):
            if len(numbers) != len(keys) or min(numbers, default=least) < least:
                expected = f"{len(keys)} numbers of at least {least}"
                raise InputError(f"{name}: expected {expected}, got {numbers}")
        if batch_size < 1:
            raise InputError(f"batch_size: expected at least 1, got {batch_size}")
        if num_generated_batches == 0:
            raise InputError("num_generated_batches: expected at least 1, or a negative, got 0")
        self._num_batches = num_batches
        self._generator = None
        if manual_seed is not None:
            self._generator = torch.Generator().manual_seed(manual_seed)
        self._kept = [self._make_batch() for _ in range(num_generated_batches)]

    def __iter__(self) -> Iterator[Batch]:
        endless = cycle(self._kept) if self._kept else (self._make_batch() for _ in count())
        return islice(endless, self._num_batches)

    def _make_batch(self) -> Batch:
        size, rng = self._batch_size, self._generator
        sizes = list(zip(self._hash_sizes, self._ids_per_features, strict=True))
        values = [torch.randint(rows, (ids * size,), generator=rng) for rows, ids in sizes]
        lengths = torch.tensor(self._ids_per_features).repeat_interleave(size)
        sparse = KeyedJaggedTensor(keys=self._keys, values=torch.cat(values), lengths=lengths)
        dense = torch.randn(size, self._num_dense, generator=rng)
        return Batch(dense, sparse, torch.randint(2, (size,), generator=rng).float())
