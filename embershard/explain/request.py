"""One request, input by input, the requests that are made of it, and the rows of its ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from embershard.client.arrays import flatten
from embershard.package import IdMap, Manifest, SampleRequest
from embershard.package.id_maps import ZERO_ROW
from embershard.package.manifest_inputs import DenseInputSpec, SparseInputSpec

GivenId: TypeAlias = str | int


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseAsked:
    """A dense input of one request."""

    spec: DenseInputSpec

    values: NDArray[np.float32]
    """``[N]``, or ``[1]`` in request scope."""

    given: bool
    """Whether the request has it; else its default stands in."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseAsked:
    """A sparse input of one request. Left out of it, every list is empty."""

    spec: SparseInputSpec

    lengths: NDArray[np.int64]
    """``[N]``, or ``[1]`` in request scope."""

    ids: NDArray[np.int64]
    """``[sum of lengths]``, as the server sees them."""

    weights: NDArray[np.float32] | None
    """``[sum of lengths]``. None: not weighted."""

    given: tuple[GivenId, ...] | None
    """Each id as the caller wrote it: a string, or a number. None: as ``ids`` has it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """A request of N examples: one entry for each input of the model, in its order."""

    num_examples: int
    dense: tuple[DenseAsked, ...]
    sparse: tuple[SparseAsked, ...]

    outputs: tuple[str, ...]
    """Those wanted. Empty: all."""

    def request(self, *, without: str = "") -> SampleRequest:
        """The request, without one input if one is named: then a sparse input is empty, and a
        dense one has its default, or 0 if it has none."""
        columns = {
            scope: [
                np.full_like(each.values, each.spec.default or 0)
                if each.spec.name == without
                else each.values
                for each in self.dense
                if each.spec.scope == scope
            ]
            for scope in ("request", "example")
        }
        given = [each for each in self.sparse if each.spec.name != without]
        lengths = [each.lengths * (each.spec.name != without) for each in self.sparse]
        return SampleRequest(
            num_examples=self.num_examples,
            request_dense=_joined(columns["request"], np.float32),
            example_dense=_joined(columns["example"], np.float32)
            .reshape(len(columns["example"]), self.num_examples)
            .T,
            lengths=_joined(lengths, np.int32),
            values=_joined([each.ids for each in given], np.int64),
            weights=_joined(
                [each.weights for each in given if each.weights is not None], np.float32
            ),
            outputs={},
        )


def _joined(arrays: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    """Concatenated; empty where there are none."""
    return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)


def asked_inputs(
    manifest: Manifest,
    sample: SampleRequest,
    dense: object,
    sparse: Mapping[str, object],
    *,
    outputs: Sequence[str] = (),
) -> Asked:
    """A request as a caller of the client has it. ``sample``: made of ``dense`` and ``sparse``.
    ``outputs``: those wanted. Empty: all."""
    given = {
        name: tuple(flatten(name, lists, _as_given).values.tolist())
        for name, lists in sparse.items()
    }
    # A matrix, which is no mapping, holds every input.
    names = set(dense) if isinstance(dense, Mapping) else {each.name for each in manifest.dense}
    return _asked(manifest, sample, given_dense=names, given_ids=given, outputs=tuple(outputs))


def asked_sample(manifest: Manifest, sample: SampleRequest) -> Asked:
    """A request that a package keeps."""
    names = {each.name for each in manifest.dense}
    return _asked(manifest, sample, given_dense=names, given_ids={}, outputs=())


def _asked(
    manifest: Manifest,
    sample: SampleRequest,
    *,
    given_dense: set[str],
    given_ids: Mapping[str, tuple[GivenId, ...]],
    outputs: tuple[str, ...],
) -> Asked:
    columns = {
        "request": iter(sample.request_dense[:, None]),
        "example": iter(sample.example_dense.T),
    }
    dense = tuple(
        DenseAsked(spec=spec, values=next(columns[spec.scope]), given=spec.name in given_dense)
        for spec in manifest.dense
    )
    return Asked(
        num_examples=sample.num_examples,
        dense=dense,
        sparse=tuple(
            SparseAsked(
                spec=spec,
                lengths=lists.lengths,
                ids=lists.values,
                weights=lists.weights,
                given=given_ids.get(spec.name),
            )
            for spec, lists in zip(manifest.sparse, sample.lists(manifest.sparse), strict=True)
        ),
        outputs=outputs,
    )


def _as_given(name: str, values: list[Any] | tuple[Any, ...] | NDArray[Any]) -> NDArray[Any]:
    """Values as they are, in one dimension; ``ids_of`` has refused what is no id."""
    if isinstance(values, np.ndarray):
        return values
    kept = np.empty(len(values), dtype=object)
    kept[:] = values
    return kept


class IdRows(NamedTuple):
    """The ids of a sparse input, ``[ids]`` each."""

    rows: NDArray[np.int64]
    """The row of each, -1 where there is none."""

    fates: NDArray[np.str_]
    """``known``: the id has a row. Unknown ids: ``oov``, the row of all unknown ones; ``zero``, a
    zero vector. ``cut``: beyond max_ids, never looked at. (The policy ``reject`` refuses the
    request.)"""

    @property
    def unknown(self) -> int:
        """Ids that count and that the map does not know."""
        return int(np.isin(self.fates, ("oov", "zero")).sum())


def map_ids(asked: SparseAsked, ids: IdMap) -> IdRows:
    """Follow the ids of one input to their rows. ``asked``: without ids that its map rejects."""
    kept = _kept(asked)
    known = ids.lookup(asked.ids) != ZERO_ROW
    rows = np.full(len(asked.ids), ZERO_ROW, np.int64)
    rows[kept] = ids.rows_of(asked.ids[kept])
    return IdRows(
        rows, np.select([~kept, known, rows != ZERO_ROW], ["cut", "known", "oov"], "zero")
    )


def _kept(asked: SparseAsked) -> NDArray[np.bool_]:
    """Which ids count, bool ``[ids]``: of a list that is too long, its first or its last."""
    most, lengths = asked.spec.max_ids, asked.lengths
    if not most:
        return np.ones(len(asked.ids), np.bool_)
    ends = np.cumsum(lengths)
    position = np.arange(len(asked.ids)) - np.repeat(ends - lengths, lengths)
    if asked.spec.keep == "last":
        return np.asarray(position >= np.repeat(lengths - most, lengths))
    return np.asarray(position < most)
