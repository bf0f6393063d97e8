"""Writes an explanation as JSON: the scores, and the rows and norms of the ids of sparse inputs."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.explain.explanation import Explanation
from embershard.explain.request import IdRows
from embershard.package import Manifest, Package
from embershard.package.id_maps import ZERO_ROW
from embershard.package.manifest_inputs import Lookup, SparseInputSpec
from embershard.package.samples import SampleLists, offsets_of
from embershard.package.schema import Scope


def lists_json(
    explanation: Explanation,
    spec: SparseInputSpec,
    lists: SampleLists,
    id_rows: IdRows,
    numbers: Sequence[int],
) -> list[dict[str, Any]]:
    """docs/tools.md describes the keys."""
    caller_ids = explanation.request.caller_ids.get(spec.name)
    offsets = offsets_of(lists.lengths)
    edges = offsets_of(lists.lengths[list(numbers)])
    spans = [np.arange(offsets[number], offsets[number + 1]) for number in numbers]
    positions = np.concatenate([np.zeros(0, np.int64), *spans])
    norms = [
        _lookup_norms(lists.weights, id_rows, lookup, explanation.package, positions, edges)
        for lookup in spec.lookups
    ]
    ids = [
        {
            "id": int(lists.values[at]),
            "given": None if caller_ids is None else caller_ids[at],
            "weight": None if lists.weights is None else float(lists.weights[at]),
            "fate": str(id_rows.fates[at]),
            "row": None if id_rows.rows[at] == ZERO_ROW else int(id_rows.rows[at]),
            "norms": [lookup.norms[place] for lookup in norms],
        }
        for place, at in enumerate(positions)
    ]
    return [
        {
            "example": None if spec.scope == "request" else number,
            "ids": ids[first:end],
            "pooled_norms": [lookup.pooled[place] for lookup in norms],
        }
        for place, (number, (first, end)) in enumerate(zip(numbers, pairwise(edges), strict=True))
    ]


class _LookupNorms(NamedTuple):
    norms: list[float | None]
    """Norm of each id's stored row, without its weight: 0 for a zero vector, None for a cut id."""

    pooled: list[float | None]
    """Norm of each list's pooled vector. None if the lookup returns a sequence."""


def _lookup_norms(
    weights: NDArray[np.float32] | None,
    id_rows: IdRows,
    lookup: Lookup,
    package: Package,
    positions: NDArray[np.int64],
    edges: NDArray[np.int64],
) -> _LookupNorms:
    """``positions``: the ids to look up, list after list. ``edges``: offsets of the lists in it."""
    table = package.manifest.table(lookup.table)
    rows, kept = id_rows.rows[positions], id_rows.fates[positions] != "cut"
    has_row = rows != ZERO_ROW
    distinct, which = np.unique(rows[has_row], return_inverse=True)
    stored = package.read_rows(table.name, distinct)
    vectors = table.row_format.dequantize_rows(stored).astype(np.float64)
    norms = np.zeros(len(positions))
    norms[has_row] = np.linalg.norm(vectors, axis=1)[which]
    factors = np.ones(len(positions)) if weights is None else weights[positions]
    pooled = list[float | None]()
    row_edges = offsets_of(has_row)[edges]
    for counted, (first, end) in zip(
        np.diff(offsets_of(kept)[edges]), pairwise(row_edges), strict=True
    ):
        length = np.linalg.norm(factors[has_row][first:end] @ vectors[which[first:end]])
        mean = lookup.pooling == "mean"  # `counted` includes ids whose vector is zero.
        pooled.append(float(length / max(counted, 1) if mean else length))
    return _LookupNorms(
        [float(norm) if counts else None for norm, counts in zip(norms, kept, strict=True)],
        [None] * len(pooled) if lookup.output == "sequence" else pooled,
    )


def explanation_json(explanation: Explanation, *, examples: Sequence[int] = ()) -> dict[str, Any]:
    """The explanation as JSON values. docs/tools.md says what they mean.

    ``examples``: positions of the examples to write, 0 .. num_examples - 1. Empty: all.
    """
    request = explanation.request
    manifest = explanation.package.manifest
    chosen = list(examples or range(request.sample.num_examples))
    scopes = {output.name: output.scope for output in manifest.outputs}

    def output_lists(outputs: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
        return {name: _select(scores, scopes[name], chosen) for name, scores in outputs.items()}

    left_out = {
        change.input: {
            "in_its_place": change.in_its_place,
            "change": None if change.failed else output_lists(change.change),
            "failed": change.failed or None,
        }
        for change in explanation.left_out
    }
    dense = [
        {
            "name": spec.name,
            "scope": spec.scope,
            "default": spec.default,
            "given": spec.name in request.caller_dense,
            "values": _select(values, spec.scope, chosen),
            "left_out": left_out[spec.name],
        }
        for spec, values in request.dense()
    ]
    sparse = [
        {
            **_sparse_input(manifest, spec, id_rows),
            "lists": lists_json(
                explanation, spec, lists, id_rows, [0] if spec.scope == "request" else chosen
            ),
            "left_out": left_out[spec.name],
        }
        for (spec, lists), id_rows in zip(request.sparse(), explanation.sparse, strict=True)
    ]
    return {
        "model": manifest.model,
        "version": manifest.version,
        "num_examples": request.sample.num_examples,
        "examples": chosen,
        "outputs": output_lists(explanation.scores),
        "dense": dense,
        "sparse": sparse,
    }


def _select(values: NDArray[np.float32], scope: Scope, examples: list[int]) -> list[Any]:
    selected: list[Any] = (values[examples] if scope == "example" else values).tolist()
    return selected


def _sparse_input(manifest: Manifest, spec: SparseInputSpec, id_rows: IdRows) -> dict[str, Any]:
    return {
        "name": spec.name,
        "scope": spec.scope,
        "weighted": spec.weighted,
        "max_ids": spec.max_ids,
        "keep": spec.keep,
        "ids": spec.ids.model_dump(),
        "lookups": [
            {
                "table": lookup.table,
                "pooling": lookup.pooling,
                "dim": manifest.table(lookup.table).dim,
                "weights": manifest.table(lookup.table).weights,
            }
            for lookup in spec.lookups
        ],
        "unknown_ids": id_rows.unknown,
        "cut_ids": int((id_rows.fates == "cut").sum()),
    }
