"""One request, input by input, the requests that are made of it, and the rows of its ids."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from embershard.client.arrays import flatten
from embershard.package import IdMap, Manifest, SampleRequest
from embershard.package.id_maps import ZERO_ROW
from embershard.package.manifest_inputs import DenseInputSpec, SparseInputSpec
from embershard.package.samples import SampleLists

GivenId: TypeAlias = str | int


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """A request of N examples and what its caller gave."""

    manifest: Manifest
    """Of the model that was asked."""

    sample: SampleRequest

    given_dense: Collection[str]
    """The dense inputs that the caller gave; the default of each other one stands in for it."""

    given_ids: Mapping[str, tuple[GivenId, ...]]
    """By sparse input, each id as the caller wrote it: a string, or a number. An input that is not
    there: as ``sample`` has them."""

    outputs: tuple[str, ...] = ()
    """Those wanted. Empty: all."""

    def dense(self) -> Iterator[tuple[DenseInputSpec, NDArray[np.float32]]]:
        """Each dense input in the model's order, and its values: ``[N]``, or ``[1]`` in request
        scope."""
        return _columns(self.manifest, self.sample.request_dense, self.sample.example_dense)

    def sparse(self) -> Iterator[tuple[SparseInputSpec, SampleLists]]:
        """Each sparse input in the model's order, and its lists, of ids as the server sees them."""
        return zip(self.manifest.sparse, self.sample.lists(self.manifest.sparse), strict=True)

    def request(self, *, without: str = "") -> SampleRequest:
        """The request, without one input if one is named: then a sparse input is empty, and a
        dense one has its default, or 0 if it has none."""
        request_dense = self.sample.request_dense.copy()
        example_dense = self.sample.example_dense.copy()
        for spec, column in _columns(self.manifest, request_dense, example_dense):
            if spec.name == without:
                column[:] = spec.default or 0
        lists = [
            SampleLists(0 * each.lengths, each.values[:0], None) if spec.name == without else each
            for spec, each in self.sparse()
        ]
        return SampleRequest.of_lists(request_dense, example_dense, lists)


def _columns(
    manifest: Manifest, request_dense: NDArray[np.float32], example_dense: NDArray[np.float32]
) -> Iterator[tuple[DenseInputSpec, NDArray[np.float32]]]:
    """Each dense input and a view of its values."""
    columns = {"request": iter(request_dense[:, None]), "example": iter(example_dense.T)}
    return ((spec, next(columns[spec.scope])) for spec in manifest.dense)


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
    return Asked(
        manifest=manifest,
        sample=sample,
        given_dense=names,
        given_ids=given,
        outputs=tuple(outputs),
    )


def asked_sample(manifest: Manifest, sample: SampleRequest) -> Asked:
    """A request that a package keeps."""
    names = {each.name for each in manifest.dense}
    return Asked(manifest=manifest, sample=sample, given_dense=names, given_ids={})


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


def map_ids(spec: SparseInputSpec, lists: SampleLists, ids: IdMap) -> IdRows:
    """Follow the ids of one input to their rows. ``lists``: without ids that its map rejects."""
    kept = _kept(spec, lists.lengths)
    known = ids.lookup(lists.values) != ZERO_ROW
    rows = np.full(len(kept), ZERO_ROW, np.int64)
    rows[kept] = ids.rows_of(lists.values[kept])
    return IdRows(
        rows, np.select([~kept, known, rows != ZERO_ROW], ["cut", "known", "oov"], "zero")
    )


def _kept(spec: SparseInputSpec, lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which ids count, bool ``[ids]``: of a list that is too long, its first or its last."""
    most = spec.max_ids
    if not most:
        return np.ones(lengths.sum(), np.bool_)
    ends = np.cumsum(lengths)
    position = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
    if spec.keep == "last":
        return np.asarray(position >= np.repeat(lengths - most, lengths))
    return np.asarray(position < most)
