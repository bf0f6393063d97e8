"""One pass over the files of a data set before training. It checks every value and collects facts
for the schema and the order of rows. They are kept in the cache, under a digest of the
configuration and of path, size and time of change of each file.

    groups        rows of each row group in each split
    label means   of each task in each split
    vocabularies  ids of the training split, the most frequent first
    moments       mean and deviation of standardized inputs in the training split
    candidates    of each request row
    cuts          first time of the validation split, and of the test split
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zipfile
import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embershard.data.base import Progress
from embershard.data.converted import locked
from embershard.data.parquet_columns import (
    NeededColumn,
    RawLists,
    Rows,
    column_kind,
    dense_matrix,
    label_matrix,
    needed_columns,
    raw_lists,
    read_rows,
    row_keys,
    row_times,
    row_weights,
)
from embershard.data.parquet_config import SPLITS, ParquetConfig, vocabularies_of
from embershard.data.parquet_files import (
    SourceFile,
    file_key,
    find_files,
    footer_of,
    in_parallel,
)
from embershard.data.parquet_requests import SCOPES, Unfolded, scope_config
from embershard.data.parquet_rows import LastDictionary, transformed
from embershard.data.parquet_rule import SplitRule, time_cuts
from embershard.data.parquet_schema import Learned, transforms_before
from embershard.data.parquet_statistics import IdCounts, Moments
from embershard.data.prefetch import prefetched
from embershard.data.tasks import TaskConfig
from embershard.errors import DataError
from embershard.modules import DenseTransforms

LOG = logging.getLogger(__name__)

VERSION: Final = 3
"""Changes with the meaning of the kept arrays."""

BATCH_ROWS: Final = 65_536
"""Rows that are decoded at once."""

BATCH_REQUESTS: Final = 4096
"""Rows that are decoded at once if each is a request with candidates."""

CANDIDATES: Final = tuple(f"candidates_{split}" for split in SPLITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    digest: str
    files: Sequence[SourceFile]
    file_splits: NDArray[np.int64]
    """``[files]``: 0 is training, 1 validation, 2 test; -1 if rows decide."""

    groups: NDArray[np.int64]
    """``[row groups, 7]``: place in ``files``, number in the file, first row in the file, rows, and
    rows of each of the three splits."""

    label_means: NDArray[np.float64]
    """``[3, T]``: for each split, over labels that count; NaN if there are none."""

    cuts: tuple[int, ...]
    candidates: Sequence[NDArray[np.int32]]
    """For each split, the number of candidates of its rows, in the order of the row groups. Empty
    if rows are impressions."""

    learned: Learned

    def rule(self, config: ParquetConfig) -> SplitRule:
        """The rule that assigns rows to splits, unless files do."""
        return SplitRule(config.split, config.seed, self.cuts)


def prepare(
    config: ParquetConfig,
    tasks: Mapping[str, TaskConfig],
    cache: Path,
    progress: Progress | None = None,
) -> Prepared:
    """Read the files, or the result that an earlier call kept. If several processes have the same
    cache folder, one reads and the others wait for it. Raises DataError for files that are missing
    or damaged, a value that the configuration does not take, or a split without rows."""
    files, file_splits = _files_of_splits(config)
    digest = _digest(config, tasks, files, file_splits)
    folder = cache / "parquet"
    kept = folder / f"{digest}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f"{digest}.lock"):
        prepared = _loaded(kept, digest, files, file_splits)
        if prepared is None:
            arrays = _Pass(config, tasks, files, file_splits, progress).run()
            partial_file = folder / f"{digest}.partial"
            with partial_file.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **arrays)
            os.replace(partial_file, kept)
            pa.default_memory_pool().release_unused()
            prepared = _loaded(kept, digest, files, file_splits)
            assert prepared is not None, "it has just been written"
    return prepared


def _files_of_splits(config: ParquetConfig) -> tuple[list[SourceFile], NDArray[np.int64]]:
    """All files without repeats, and the split of each file; -1 if rows decide."""
    files: dict[str, SourceFile] = {}
    splits: dict[str, int] = {}
    is_by_files = config.split.by == "files"
    for file in find_files(config.files, "data.files"):
        key = file_key(file.path)
        files[key], splits[key] = file, 0 if is_by_files else -1
    for split, setting in ((1, "valid_files"), (2, "test_files")):
        for file in find_files(getattr(config.split, setting), f"data.split.{setting}"):
            key = file_key(file.path)
            if splits.get(key, 0) > 0:
                raise DataError(
                    f"data.split.{setting}: expected files of one split, "
                    f"got {file.path} in valid_files as well"
                )
            files.setdefault(key, file)
            splits[key] = split
    return list(files.values()), np.array(list(splits.values()), np.int64)


def _digest(
    config: ParquetConfig,
    tasks: Mapping[str, TaskConfig],
    files: Sequence[SourceFile],
    file_splits: NDArray[np.int64],
) -> str:
    parts = [
        VERSION,
        config.model_dump(mode="json", exclude={"shuffle_rows"}),
        [[name, task.label, task.mask, task.loss] for name, task in tasks.items()],
        files,
        file_splits.tolist(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _loaded(
    kept: Path, digest: str, files: Sequence[SourceFile], file_splits: NDArray[np.int64]
) -> Prepared | None:
    """The kept result. None: there is none, or it is damaged."""
    if not kept.exists():
        return None
    try:
        with kept.open("rb") as stream, np.load(stream) as arrays:
            return Prepared(
                digest=digest,
                files=files,
                file_splits=file_splits,
                groups=arrays["groups"],
                label_means=arrays["label_means"],
                cuts=tuple(arrays["cuts"].tolist()),
                candidates=[arrays[key] for key in CANDIDATES if key in arrays],
                learned=Learned.of_arrays(arrays),
            )
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError, zlib.error) as error:
        LOG.warning("%s: expected an earlier result, got: %s; reading the files anew", kept, error)
        return None


class _Part(NamedTuple):
    """The inputs that are read from the same rows."""

    config: ParquetConfig
    transforms: DenseTransforms
    moments: Moments

    @classmethod
    def of(cls, config: ParquetConfig) -> _Part:
        before = transforms_before(config.dense)
        return cls(config, DenseTransforms(before), Moments(len(config.dense)))


class _Pass:
    def __init__(
        self,
        config: ParquetConfig,
        tasks: Mapping[str, TaskConfig],
        files: Sequence[SourceFile],
        file_splits: NDArray[np.int64],
        progress: Progress | None,
    ) -> None:
        self._progress = progress
        self._config, self._tasks = config, tasks
        self._files, self._file_splits = files, file_splits
        self._needed = list(needed_columns(config, tasks))
        self._list_inputs: set[str] = set()
        self._unfolded = Unfolded(self._needed) if config.rows == "request" else None
        configs = [config]
        if self._unfolded is not None:
            configs = [scope_config(config, scope) for scope in SCOPES]
        self._parts = [_Part.of(part) for part in configs]
        self._candidates: list[list[NDArray[np.int32]]] = [[] for _ in SPLITS]
        vocabularies = vocabularies_of(config.sparse)
        self._counts = {name: IdCounts() for name in vocabularies}
        self._counts_of = {
            name: self._counts[vocabulary]
            for vocabulary, names in vocabularies.items()
            for name in names
        }
        self._dictionaries = {name: LastDictionary(np.asarray) for name in config.sparse}
        self._label_sums = np.zeros((len(SPLITS), len(tasks)))
        self._label_counts = np.zeros((len(SPLITS), len(tasks)), np.int64)

    def run(self) -> dict[str, NDArray[Any]]:
        groups = self._row_groups()
        LOG.info("data: reading %s rows of %s files", groups[:, 3].sum(), len(self._files))
        rule = SplitRule(self._config.split, self._config.seed, self._time_cuts(groups))
        columns = sorted({needed.name for needed in self._needed})
        for place, rows in prefetched(self._rows(groups, columns, "reading rows"), depth=2):
            splits = self._splits(rule, groups[place], rows)
            groups[place, 4:] += np.bincount(splits, minlength=len(SPLITS))
            self._add(rows, splits)
        _check_splits(self._config, groups[:, 4:].sum(axis=0))
        with np.errstate(invalid="ignore"):
            means = self._label_sums / self._label_counts
        learned = Learned(
            list_inputs=frozenset(self._list_inputs),
            moments=self._moments_of_inputs(),
            vocabularies=self._vocabularies(),
        )
        candidates = zip(CANDIDATES, self._candidates, strict=True)
        return {
            "groups": groups,
            "label_means": means,
            "cuts": np.array(rule.cuts, np.int64),
            **learned.arrays(),
            **{key: np.concatenate(counts) for key, counts in candidates if counts},
        }

    def _row_groups(self) -> NDArray[np.int64]:
        """The row groups of all files. Checks the columns; splits have no rows yet."""
        surveys = in_parallel(partial(_survey, needed=self._needed), self._files)
        groups = []
        for place, (group_rows, kinds) in enumerate(surveys):
            for needed, kind, expected in zip(self._needed, kinds, surveys[0][1], strict=True):
                if kind != expected:
                    raise DataError(
                        f"{self._files[place].path}: column {needed.name!r}: expected {expected} "
                        f"as in {self._files[0].path}, got {kind}"
                    )
            first = 0
            for number, rows in enumerate(group_rows):
                groups.append((place, number, first, rows, 0, 0, 0))
                first += rows
        self._list_inputs = {
            name
            for name, spec in self._config.sparse.items()
            for needed, kind in zip(self._needed, surveys[0][1], strict=True)
            if needed.use in ("ids", "row") and needed.name == (spec.column or name)
            if kind.startswith("lists")
        }
        return np.array(groups, np.int64).reshape(-1, 7)

    def _rows(
        self, groups: NDArray[np.int64], columns: Sequence[str], step: str
    ) -> Generator[tuple[int, Rows], None, None]:
        """All rows in parts, with the place of the row group of each part."""
        rows_max = BATCH_ROWS if self._unfolded is None else BATCH_REQUESTS
        done, total = 0, int(groups[:, 3].sum())
        for place, (file, number, first, *_) in enumerate(groups.tolist()):
            source = self._files[file]
            for rows in read_rows(source, number, columns, first=first, rows_max=rows_max):
                yield place, rows
                done += len(rows)
                if self._progress is not None:
                    self._progress(step, done, total)

    def _time_cuts(self, groups: NDArray[np.int64]) -> tuple[int, ...]:
        split, total = self._config.split, int(groups[:, 3].sum())
        if split.by != "time" or not total:
            return ()
        column = str(split.column)
        times = (
            row_times(rows, column) for _, rows in self._rows(groups, [column], "reading times")
        )
        return time_cuts(split, times, total)

    def _splits(self, rule: SplitRule, group: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
        file_split = self._file_splits[group[0]]
        if file_split >= 0:
            return np.full(len(rows), file_split)
        return rule.splits(rows)

    def _add(self, rows: Rows, splits: NDArray[np.int64]) -> None:
        """Checks all values, and counts those of the training split."""
        if self._unfolded is not None:
            candidates, counts = self._unfolded.candidates(rows)
            for split, parts in enumerate(self._candidates):
                parts.append(counts[splits == split].astype(np.int32))
            # A value counts once for each candidate, as in impression rows.
            self._add_inputs(self._parts[0], rows, np.where(splits == 0, counts, 0))
            rows, splits = candidates, np.repeat(splits, counts)
        self._add_inputs(self._parts[-1], rows, (splits == 0).astype(np.int64))
        labels = label_matrix(rows, self._tasks)
        for split in range(len(SPLITS)):
            chosen = labels[splits == split]
            self._label_sums[split] += np.nansum(chosen, axis=0, dtype=np.float64)
            self._label_counts[split] += (~np.isnan(chosen)).sum(axis=0)

    def _add_inputs(self, part: _Part, rows: Rows, times: NDArray[np.int64]) -> None:
        """Checks the inputs of one part. A row counts as often as ``times`` says."""
        config, _, moments = part
        dense = transformed(rows, config, part.transforms, dense_matrix(rows, config.dense))
        moments.add(np.repeat(dense, times, axis=0))
        for name, spec in config.sparse.items():
            raw = raw_lists(rows, name, spec)
            if spec.ids == "vocabulary" and times.any():
                self._count(name, raw, times)
        if config.weight is not None:
            row_weights(rows, config.weight)
        if config.request is not None:
            row_keys(rows, config.request)

    def _count(self, name: str, raw: RawLists, times: NDArray[np.int64]) -> None:
        (ids, _), dictionary = raw
        counts = np.repeat(times, raw.lists.lengths)
        if dictionary is not None:
            counts = np.bincount(ids, counts, len(dictionary)).astype(np.int64)
            ids = self._dictionaries[name].values(dictionary)
        seen = counts > 0
        self._counts_of[name].add(ids[seen], counts[seen])

    def _moments_of_inputs(self) -> dict[str, tuple[float, float]]:
        inputs = (
            (name, spec, part.moments.mean(place), part.moments.deviation(place))
            for part in self._parts
            for place, (name, spec) in enumerate(part.config.dense.items())
        )
        moments = {}
        for name, spec, mean, deviation in inputs:
            if "standardize" in spec.transforms:
                if not deviation > 0:
                    raise DataError(
                        f"dense input {name!r}: expected values that differ for 'standardize', "
                        f"got {mean:g} in every training row; leave the input out"
                    )
                moments[name] = mean, deviation
        return moments

    def _vocabularies(self) -> dict[str, NDArray[np.int64]]:
        vocabularies = {}
        for table, names in vocabularies_of(self._config.sparse).items():
            spec = self._config.sparse[names[0]]
            if spec.ids != "vocabulary":
                continue
            ids = self._counts[table].most_frequent(
                min_count=spec.min_count, max_size=spec.max_size
            )
            if not len(ids):
                raise DataError(
                    f"table {table!r}: expected ids that the training split has at least "
                    f"{spec.min_count} times, found none"
                )
            vocabularies[table] = ids
        return vocabularies


def _survey(file: SourceFile, needed: Sequence[NeededColumn]) -> tuple[list[int], list[str]]:
    """Rows of each row group, and kinds of the columns."""
    footer = footer_of(file)
    kinds = [column_kind(file.path, footer.schema, column) for column in needed]
    return footer.group_rows(), kinds


def _check_splits(config: ParquetConfig, rows: NDArray[np.int64]) -> None:
    split = config.split
    wanted = {
        "train": True,
        "valid": bool(split.valid_files) if split.by == "files" else split.valid > 0,
        "test": bool(split.test_files) if split.by == "files" else split.test > 0,
    }
    for name, count in zip(SPLITS, rows.tolist(), strict=True):
        if wanted[name] and not count:
            raise DataError(
                f"data.split: expected rows in the {name} split, got none of {rows.sum()} rows "
                f"split by {split.by}"
            )
