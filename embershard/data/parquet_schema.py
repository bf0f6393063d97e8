"""Makes the schema of a data set from its configuration and from facts about the files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.data.base import TableHint
from embershard.data.parquet_config import (
    DenseColumn,
    ParquetConfig,
    SparseColumn,
    tables_of,
    vocabularies_of,
)
from embershard.errors import DataError, InputError
from embershard.package.id_maps import Hash, Identity, IdMap, Vocabulary
from embershard.package.schema import DenseInput, Schema, SparseInput
from embershard.package.transforms import Bucketize, Clip, Log1p, Standardize, Transform


class Learned(NamedTuple):
    list_inputs: frozenset[str]
    """Sparse inputs with a list of ids in each row."""

    moments: Mapping[str, tuple[float, float]]
    """Mean and deviation of each standardized input."""

    vocabularies: Mapping[str, NDArray[np.int64]]
    """The ids of each table with a vocabulary, in the order of their rows."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        text = json.dumps([sorted(self.list_inputs), dict(self.moments), list(self.vocabularies)])
        ids = {f"ids_{place}": ids for place, ids in enumerate(self.vocabularies.values())}
        return {"learned": np.frombuffer(text.encode(), np.uint8), **ids}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Learned:
        lists, moments, tables = json.loads(arrays["learned"].tobytes())
        return cls(
            list_inputs=frozenset(lists),
            moments={name: (mean, deviation) for name, (mean, deviation) in moments.items()},
            vocabularies={name: arrays[f"ids_{place}"] for place, name in enumerate(tables)},
        )


def make_schema(config: ParquetConfig, learned: Learned) -> Schema:
    """Inputs in the order of the configuration. Raises DataError for those that a schema
    refuses."""
    vocabularies: dict[str, Vocabulary] = {}
    for table, names in vocabularies_of(config.sparse).items():
        if table in learned.vocabularies:
            unknown = config.sparse[names[0]].unknown
            vocabulary = Vocabulary(learned.vocabularies[table], unknown=unknown)
            vocabularies |= dict.fromkeys(names, vocabulary)
    try:
        return Schema(
            dense=[
                DenseInput(
                    name,
                    scope=spec.scope,
                    default=spec.null,
                    transforms=_transforms(spec.transforms, learned.moments.get(name)),
                )
                for name, spec in config.dense.items()
            ],
            sparse=[
                SparseInput(
                    name,
                    scope=spec.scope,
                    ids=_id_map(spec, vocabularies.get(name)),
                    max_ids=spec.max_ids,
                    keep=spec.keep,
                )
                for name, spec in config.sparse.items()
            ],
        )
    except DataError:
        raise
    except InputError as error:
        raise DataError(f"data: {error}") from error


def transforms_before(dense: Mapping[str, DenseColumn]) -> Schema:
    """Dense inputs with the transforms before ``standardize``, or with all if it is not there."""
    inputs = []
    for name, spec in dense.items():
        before = itertools.takewhile(lambda transform: transform != "standardize", spec.transforms)
        inputs.append(DenseInput(name, transforms=_transforms(before, None)))
    # A schema needs an input; this one has no dense column.
    return Schema(dense=inputs, sparse=[] if inputs else [SparseInput("none")])


def make_tables(config: ParquetConfig, list_inputs: frozenset[str]) -> tuple[TableHint, ...]:
    """The tables, in the order of the inputs that name them first."""
    hints = []
    for table, names in tables_of(config.sparse).items():
        pooling: Literal["sum", "mean"] = "mean" if list_inputs.intersection(names) else "sum"
        for name in names:
            pooling = config.sparse[name].pooling or pooling
        hints.append(TableHint(name=table, features=tuple(names), pooling=pooling))
    return tuple(hints)


def _transforms(
    transforms: Iterable[str | Mapping[str, tuple[float, ...]]],
    moments: tuple[float, float] | None,
) -> tuple[Transform, ...]:
    return tuple(_transform(transform, moments) for transform in transforms)


def _transform(transform: Any, moments: tuple[float, float] | None) -> Transform:
    match transform:
        case "log1p":
            return Log1p()
        case "standardize":
            assert moments is not None
            return Standardize(*moments)
        case {"clip": (low, high)}:
            return Clip(low, high)
        case {"bucketize": boundaries}:
            return Bucketize(boundaries)
    raise AssertionError(transform)


def _id_map(spec: SparseColumn, vocabulary: Vocabulary | None) -> IdMap:
    match spec.ids:
        case "hash":
            return Hash(buckets=spec.buckets or 0)
        case "identity":
            return Identity(rows=spec.rows or 0)
        case "vocabulary":
            assert vocabulary is not None
            return vocabulary
