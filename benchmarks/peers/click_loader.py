"""A DataLoader for Parquet files with two workers, as one would write it without embershard: with
record batches of pyarrow, and a collate function without a loop over rows."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from embershard.data.splits import Batch
from embershard.jagged import KeyedJaggedTensor
from embershard.package.schema import Schema

WORKERS = 2
LABELS = ["click", "buy"]


class Clicks(IterableDataset[Batch]):
    """Endless batches of each worker's files, in the order of the rows."""

    def __init__(self, folder: Path, schema: Schema, batch_size: int) -> None:
        self._files, self._size = sorted(folder.glob("*.parquet")), batch_size
        self._dense, self._sparse = schema.dense_names(), schema.sparse_names()
        self._known: dict[str, pa.Array] = {}

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        assert worker is not None
        torch.set_num_threads(1)
        columns = [*self._dense, *self._sparse, *LABELS]
        everything = pq.read_table(self._files, columns=self._sparse)
        for name in self._sparse:
            column = everything[name]
            is_list = pa.types.is_list(column.type)
            self._known[name] = pc.unique(pc.list_flatten(column) if is_list else column)
        for _ in count():
            for file in self._files[worker.id :: WORKERS]:
                for rows in pq.ParquetFile(file).iter_batches(self._size, columns=columns):
                    yield self._collate(rows)

    def _collate(self, rows: pa.RecordBatch) -> Batch:
        dense, labels = (
            torch.from_numpy(np.stack([rows[name].to_numpy() for name in names], axis=1))
            for names in (self._dense, LABELS)
        )
        values, lengths = [], []
        for name in self._sparse:
            ids, counts = rows[name], np.ones(len(rows), np.int64)
            if pa.types.is_list(ids.type):
                ids, counts = ids.flatten(), pc.list_value_length(ids).to_numpy()
            values.append(pc.index_in(ids, self._known[name]).to_numpy().astype(np.int64))
            lengths.append(counts.astype(np.int64))
        sparse = KeyedJaggedTensor(
            self._sparse,
            torch.from_numpy(np.concatenate(values)),
            lengths=torch.from_numpy(np.concatenate(lengths)),
        )
        return Batch(dense, sparse, labels.float())


def click_loader(folder: Path, schema: Schema, batch_size: int) -> DataLoader[Batch]:
    clicks = Clicks(folder, schema, batch_size)
    return DataLoader(clicks, batch_size=None, num_workers=WORKERS, prefetch_factor=4)
