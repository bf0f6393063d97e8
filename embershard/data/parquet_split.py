"""A split of Parquet files, which is read again in every epoch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embershard.data.base import Examples
from embershard.data.parquet_columns import (
    SPLIT_OWNER,
    Rows,
    dense_matrix,
    needed_columns,
    raw_lists,
    read_rows,
    row_keys,
)
from embershard.data.parquet_config import SPLITS, ParquetConfig
from embershard.data.parquet_files import footer_of
from embershard.data.parquet_order import (
    LANES,
    EpochOrder,
    Lanes,
    RankPart,
    Windows,
    positions_read,
    request_ranges,
    window_rng,
)
from embershard.data.parquet_preparation import BATCH_REQUESTS, Prepared
from embershard.data.parquet_requests import RequestMapper, Unfolded
from embershard.data.parquet_rows import RowLookup, RowMapper
from embershard.data.prefetch import prefetched
from embershard.data.requests import sample_requests
from embershard.data.row_batches import dropout_shares
from embershard.data.splits import Batch, check_batch_size, check_part
from embershard.data.table_rows import RequestRows, Shares, TableRows
from embershard.data.tasks import TaskConfig
from embershard.modules import DenseTransforms
from embershard.package.samples import SampleRequest
from embershard.package.schema import Schema

BATCHES_AHEAD: Final = 4
DECODED_ROWS: Final = 32_768
"""Rows of a lane that are decoded at once."""

ORDERED: Final = 65_536
"""Largest number of rows of a window that is not shuffled."""

SAMPLE_ROWS: Final = 16_384
"""Largest number of rows that sample requests are taken from."""

SAMPLE_REQUESTS: Final = 256
"""Rows that are read in addition to the wanted ones, if each row is a request."""

AnyRows: TypeAlias = TableRows | RequestRows
Mapper: TypeAlias = Callable[[Rows], AnyRows]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSplit:
    """One split; a `Split`."""

    config: ParquetConfig
    tasks: Mapping[str, TaskConfig]
    prepared: Prepared
    schema: Schema
    name: str
    """``train``, ``valid`` or ``test``."""

    def __len__(self) -> int:
        if self._candidates is not None:
            return int(self._candidates.sum())
        return int(self.group_rows().sum())

    @property
    def _place(self) -> int:
        return SPLITS.index(self.name)

    @property
    def _candidates(self) -> NDArray[np.int32] | None:
        """Number of candidates of each row, or None if rows are impressions."""
        counts = self.prepared.candidates
        return counts[self._place] if counts else None

    def label_means(self) -> list[float]:
        means: list[float] = self.prepared.label_means[self._place].tolist()
        return means

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
        """One pass over the split, read ahead on threads.

        Ranks read different places of the files, so a batch has other rows than that of one
        process. All ranks together use each row once.
        """
        check_batch_size(batch_size)
        check_part(rank, world_size, first)
        reader = _RankReader(
            split=self,
            part=self._parts(batch_size, shuffle_seed, world_size)[rank],
            seed=shuffle_seed,
            rank=rank,
            shares=dropout_shares(self.schema, id_dropout, shuffle_seed),
        )
        return prefetched(reader.batches(first), BATCHES_AHEAD)

    def batch_sizes(
        self, *, batch_size: int, shuffle_seed: int | None = None, world_size: int = 1
    ) -> NDArray[np.int64]:
        """Examples of each batch of one pass, of all ranks together."""
        check_batch_size(batch_size)
        parts = self._parts(batch_size, shuffle_seed, world_size)
        examples: NDArray[np.int64] = np.sum([part.examples for part in parts], axis=0)
        return examples

    def _parts(self, batch_size: int, seed: int | None, world_size: int) -> list[RankPart]:
        """The batches of each rank."""
        if self._candidates is None:
            ranks = range(world_size)
            return [RankPart.of(len(self), batch_size, rank, world_size) for rank in ranks]
        order = EpochOrder.of(self.group_rows(), seed)
        counts = order.reordered(self._candidates, self.group_rows())
        parts = []
        for rank, (begin, end) in enumerate(request_ranges(counts, world_size)):
            lanes, windows = self.windows(order, begin, end, seed)
            read = np.concatenate([counts[p] for p in positions_read(lanes, windows, seed, rank)])
            share = batch_size * (rank + 1) // world_size - batch_size * rank // world_size
            parts.append(RankPart.of_requests(begin, read, share))
        batches = max(len(part.sizes) for part in parts)
        return [part.padded(batches) for part in parts]

    def windows(
        self, order: EpochOrder, begin: int, end: int, seed: int | None
    ) -> tuple[Lanes, Windows]:
        rows_max = self.config.shuffle_rows
        lanes = order.lanes(begin, end, 1 if seed is None else LANES)
        return lanes, Windows.of(lanes, rows_max if seed is not None else min(rows_max, ORDERED))

    def samples(self, count: int) -> list[SampleRequest]:
        """The first ``count`` requests, as packages keep them, without outputs. An empty split has
        none."""
        config, is_request = self.config, self._candidates is not None
        rows_max = SAMPLE_REQUESTS + count if is_request else SAMPLE_ROWS
        order = EpochOrder.of(self.group_rows(), None)
        for rows in self.rows(order, 0, int(order.starts[-1]), rows_max):
            impressions = rows
            if is_request:
                impressions = Unfolded(needed_columns(config, self.tasks)).impressions(rows)
            if len(impressions):
                break
        else:
            return []
        own = impressions.numbers
        examples = Examples(
            schema=self.schema,
            dense=dense_matrix(impressions, config.dense),
            sparse={
                name: raw_lists(impressions, name, spec).ids().column()
                for name, spec in config.sparse.items()
            },
            labels=np.zeros(len(own), np.float32),
            request=own if config.request is None else row_keys(impressions, config.request),
        )
        return sample_requests(examples, count)

    def group_rows(self) -> NDArray[np.int64]:
        return self.prepared.groups[:, 4 + self._place]

    def rows(self, order: EpochOrder, begin: int, end: int, rows_max: int) -> Iterator[Rows]:
        """The rows at positions ``begin`` to ``end`` of an epoch, at most ``rows_max`` at once."""
        first_place = int(np.searchsorted(order.starts, begin, side="right")) - 1
        for place in range(first_place, len(order.groups)):
            start, stop = (int(edge) for edge in order.starts[place : place + 2])
            if start >= end:
                return
            position = start
            for rows in self._group(int(order.groups[place]), rows_max):
                chosen = rows.part(max(begin - position, 0), max(end - position, 0))
                position += len(rows)
                if len(chosen):
                    yield chosen
                if position >= min(stop, end):
                    break

    def _group(self, group: int, rows_max: int) -> Iterator[Rows]:
        """The rows of the split in one row group."""
        file, number, first, total = self.prepared.groups[group, :4].tolist()
        is_whole = int(self.group_rows()[group]) == total
        columns = {
            needed.name
            for needed in needed_columns(self.config, self.tasks)
            if not (is_whole and needed.owner == SPLIT_OWNER)
        }
        rule = self.prepared.rule(self.config)
        source = self.prepared.files[file]
        for rows in read_rows(source, number, sorted(columns), first=first, rows_max=rows_max):
            if is_whole:
                yield rows
            else:
                yield rows.take(np.flatnonzero(rule.splits(rows) == self._place))


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankReader:
    """One epoch of one rank."""

    split: ParquetSplit
    part: RankPart
    seed: int | None
    rank: int
    shares: Shares

    def batches(self, first: int) -> Generator[Batch, None, None]:
        """The rank's batches after the first ones."""
        order = EpochOrder.of(self.split.group_rows(), self.seed)
        lanes, windows = self.split.windows(order, self.part.begin, self.part.end, self.seed)
        number, used = windows.at(int(self.part.sizes[:first].sum()))
        make_mapper = self._mappers()
        source = prefetched(self._windows(make_mapper, order, lanes, windows, number), depth=1)
        window, used_before = make_mapper()(self._no_rows()), used
        try:
            used = len(window)
            for size in self.part.sizes[first:].tolist():
                parts = []
                while used + size > len(window):
                    parts.append(window.part(used, len(window)))
                    size -= len(window) - used
                    window, used, used_before = next(source), used_before, 0
                parts.append(window.part(used, used + size))
                used += size
                yield joined(parts).to_batch(self.split.schema)
        finally:
            source.close()

    def _windows(
        self,
        make_mapper: Callable[[], Mapper],
        order: EpochOrder,
        lanes: Lanes,
        windows: Windows,
        first: int,
    ) -> Generator[AnyRows, None, None]:
        split = self.split
        rows_max = DECODED_ROWS if split.config.rows == "impression" else BATCH_REQUESTS
        readers = [
            _Lane(split.rows(order, begin + int(before), end, rows_max), make_mapper())
            for (begin, end), before in zip(lanes, windows.edges(first), strict=True)
        ]
        for window in range(first, windows.number):
            counts = windows.edges(window + 1) - windows.edges(window)
            parts = [
                part
                for lane, count in zip(readers, counts.tolist(), strict=True)
                for part in lane.take(count)
            ]
            if not parts:
                continue  # Few rows in many lanes: the parts of a lane are rounded.
            rows = joined(parts)
            if self.seed is not None:
                rng = window_rng(self.seed, self.rank, window)
                rows = rows.take(rng.permutation(len(rows))).without_ids(self.shares, rng)
            yield rows

    def _mappers(self) -> Callable[[], Mapper]:
        """Makes the mapper of each lane."""
        config, tasks, schema = self.split.config, self.split.tasks, self.split.schema
        lookups = {item.name: RowLookup(item.ids) for item in schema.sparse if item.ids is not None}
        if config.rows == "request":
            return lambda: RequestMapper(config, tasks, lookups, schema).map
        transforms = DenseTransforms(schema)
        return lambda: RowMapper(config, tasks, lookups, transforms).map

    def _no_rows(self) -> Rows:
        file = self.split.prepared.files[0]
        nothing = pa.RecordBatch.from_pylist([], footer_of(file).schema)
        return Rows(nothing, file.path, 0, np.empty(0, np.int64))


def joined(parts: Sequence[Any]) -> AnyRows:
    rows: AnyRows = type(parts[0]).joined(parts)
    return rows


class _Lane:
    """A stream of rows that a rank reads, with the rest of its last chunk."""

    def __init__(self, rows: Iterator[Rows], mapper: Mapper) -> None:
        self._rows, self._mapper = rows, mapper
        self._rest: Rows | None = None

    def take(self, count: int) -> Iterator[AnyRows]:
        while count:
            rows = next(self._rows) if self._rest is None else self._rest
            taken = min(count, len(rows))
            self._rest = rows.part(taken, len(rows)) if taken < len(rows) else None
            count -= taken
            yield self._mapper(rows.part(0, taken))
