"""One request, input by input, and the requests that are made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from embershard.client.arrays import flatten
from embershard.package import Manifest, SampleRequest
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
