"""One request input by input, the same request without an input, and the rows of its ids."""

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

CallerId: TypeAlias = str | int


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExplainedRequest:
    """A request of N examples, and which of its values the caller wrote."""

    manifest: Manifest
    sample: SampleRequest

    caller_dense: Collection[str]
    """Names of the dense inputs that the caller passed. The others have their defaults."""

    caller_ids: Mapping[str, tuple[CallerId, ...]]
    """Ids by sparse input, as the caller wrote them. Others have only the ids in ``sample``."""

    outputs: tuple[str, ...] = ()
    """Names of the outputs to explain. Empty: all."""

    def dense(self) -> Iterator[tuple[DenseInputSpec, NDArray[np.float32]]]:
        """Dense inputs in schema order, and values: ``[N]``, or ``[1]`` in request scope."""
        return _columns(self.manifest, self.sample.request_dense, self.sample.example_dense)

    def sparse(self) -> Iterator[tuple[SparseInputSpec, SampleLists]]:
        return zip(self.manifest.sparse, self.sample.lists(self.manifest.sparse), strict=True)

    def sample_without(self, name: str = "") -> SampleRequest:
        """A copy in which the input ``name`` has no ids, or if dense its default (else 0)."""
        request_dense = self.sample.request_dense.copy()
        example_dense = self.sample.example_dense.copy()
        for spec, column in _columns(self.manifest, request_dense, example_dense):
            if spec.name == name:
                column[:] = spec.default or 0
        lists = [
            SampleLists(0 * lists.lengths, lists.values[:0], None) if spec.name == name else lists
            for spec, lists in self.sparse()
        ]
        return SampleRequest.of_lists(request_dense, example_dense, lists)


def _columns(
    manifest: Manifest, request_dense: NDArray[np.float32], example_dense: NDArray[np.float32]
) -> Iterator[tuple[DenseInputSpec, NDArray[np.float32]]]:
    columns = {"request": iter(request_dense[:, None]), "example": iter(example_dense.T)}
    return ((spec, next(columns[spec.scope])) for spec in manifest.dense)


def client_request(
    manifest: Manifest,
    sample: SampleRequest,
    dense: object,
    sparse: Mapping[str, object],
    *,
    outputs: Sequence[str] = (),
) -> ExplainedRequest:
    """``dense`` and ``sparse`` are the client's arguments, from which ``sample`` was made."""
    caller_ids = {
        name: tuple(flatten(name, lists, _unconverted).values.tolist())
        for name, lists in sparse.items()
    }
    # Dense inputs come as a mapping, or as a matrix with a column for every input.
    names = set(dense) if isinstance(dense, Mapping) else {spec.name for spec in manifest.dense}
    return ExplainedRequest(
        manifest=manifest,
        sample=sample,
        caller_dense=names,
        caller_ids=caller_ids,
        outputs=tuple(outputs),
    )


def sample_request(manifest: Manifest, sample: SampleRequest) -> ExplainedRequest:
    """A package's sample request, whose ids are known only as numbers."""
    names = {spec.name for spec in manifest.dense}
    return ExplainedRequest(manifest=manifest, sample=sample, caller_dense=names, caller_ids={})


def _unconverted(name: str, values: list[Any] | tuple[Any, ...] | NDArray[Any]) -> NDArray[Any]:
    """Ids as the caller wrote them, as an array of one dimension."""
    if isinstance(values, np.ndarray):
        return values
    kept = np.empty(len(values), dtype=object)
    kept[:] = values
    return kept


class IdRows(NamedTuple):
    """Rows and fates of the ids of one sparse input, each ``[ids]``."""

    rows: NDArray[np.int64]
    """The row of each id, -1 if it has none."""

    fates: NDArray[np.str_]
    """Fate of each id.

    | fate | the id |
    |---|---|
    | ``known`` | has a row |
    | ``oov`` | is unknown, and gets the row that all unknown ids share |
    | ``zero`` | is unknown, and gets a zero vector |
    | ``cut`` | is dropped, since its list is longer than max_ids |
    """

    @property
    def unknown(self) -> int:
        return int(np.isin(self.fates, ("oov", "zero")).sum())


def map_ids(spec: SparseInputSpec, lists: SampleLists, ids: IdMap) -> IdRows:
    """The server has already rejected requests with ids that the map rejects."""
    kept = _kept(spec, lists.lengths)
    known = ids.lookup(lists.values) != ZERO_ROW
    rows = np.full(len(kept), ZERO_ROW, np.int64)
    rows[kept] = ids.rows_of(lists.values[kept])
    return IdRows(
        rows, np.select([~kept, known, rows != ZERO_ROW], ["cut", "known", "oov"], "zero")
    )


def _kept(spec: SparseInputSpec, lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool ``[ids]``. ``spec.keep`` says which end of a long list stays."""
    max_ids = spec.max_ids
    if not max_ids:
        return np.ones(lengths.sum(), np.bool_)
    ends = np.cumsum(lengths)
    position = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
    if spec.keep == "last":
        return np.asarray(position >= np.repeat(lengths - max_ids, lengths))
    return np.asarray(position < max_ids)
