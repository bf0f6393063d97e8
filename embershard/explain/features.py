"""An explanation as JSON: the scores, and the rows and norms of the ids of sparse inputs."""

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
    found: IdRows,
    numbers: Sequence[int],
) -> list[dict[str, Any]]:
    """The lists of those numbers, as docs/tools.md describes them."""
    given = explanation.asked.given_ids.get(spec.name)
    offsets = offsets_of(lists.lengths)
    edges = offsets_of(lists.lengths[list(numbers)])  # Only of the ids of these lists.
    places = [np.arange(offsets[number], offsets[number + 1]) for number in numbers]
    here = np.concatenate([np.zeros(0, np.int64), *places])
    looked_up = [_look_up(lists.weights, found, each, explanation.package, here, edges)
                 for each in spec.lookups]  # fmt: skip
    ids = [
        {
            "id": int(lists.values[at]),
            "given": None if given is None else given[at],
            "weight": None if lists.weights is None else float(lists.weights[at]),
            "fate": str(found.fates[at]),
            "row": None if found.rows[at] == ZERO_ROW else int(found.rows[at]),
            "norms": [each.norms[place] for each in looked_up],
        }
        for place, at in enumerate(here)
    ]
    return [
        {
            "example": None if spec.scope == "request" else number,
            "ids": ids[first:end],
            "pooled_norms": [each.pooled[place] for each in looked_up],
        }
        for place, (number, (first, end)) in enumerate(zip(numbers, pairwise(edges), strict=True))
    ]


class _LookedUp(NamedTuple):
    norms: list[float | None]
    """The norm of each id's row as stored, before its weight: 0 for a zero vector, None for an id
    that is cut."""

    pooled: list[float | None]
    """Norm of each list's pooled vector. None: a sequence has none."""


def _look_up(
    weights: NDArray[np.float32] | None,
    found: IdRows,
    lookup: Lookup,
    package: Package,
    here: NDArray[np.int64],
    edges: NDArray[np.int64],
) -> _LookedUp:
    """``here``: the ids to look up, list after list. ``edges``: where each list begins in it."""
    table = package.manifest.table(lookup.table)
    rows, kept = found.rows[here], found.fates[here] != "cut"
    has_row = rows != ZERO_ROW
    distinct, which = np.unique(rows[has_row], return_inverse=True)
    stored = package.read_rows(table.name, distinct)
    vectors = table.row_format.dequantize_rows(stored).astype(np.float64)
    norms = np.zeros(len(here))
    norms[has_row] = np.linalg.norm(vectors, axis=1)[which]
    factors = np.ones(len(here)) if weights is None else weights[here]
    pooled = list[float | None]()
    row_edges = offsets_of(has_row)[edges]
    for counted, (first, end) in zip(
        np.diff(offsets_of(kept)[edges]), pairwise(row_edges), strict=True
    ):
        length = np.linalg.norm(factors[has_row][first:end] @ vectors[which[first:end]])
        mean = lookup.pooling == "mean"  # A zero vector counts in the mean.
        pooled.append(float(length / max(counted, 1) if mean else length))
    return _LookedUp(
        [float(norm) if counts else None for norm, counts in zip(norms, kept, strict=True)],
        [None] * len(pooled) if lookup.output == "sequence" else pooled,
    )


def explanation_json(explanation: Explanation, *, examples: Sequence[int] = ()) -> dict[str, Any]:
    """The explanation as values of JSON. docs/tools.md says what they mean.

    Args:
        explanation: what to write.
        examples: those to write, each 0 .. num_examples - 1. Empty: all.
    """
    asked = explanation.asked
    manifest = explanation.package.manifest
    chosen = list(examples or range(asked.sample.num_examples))
    scopes = {each.name: each.scope for each in manifest.outputs}

    def outputs(values: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
        return {name: _taken(each, scopes[name], chosen) for name, each in values.items()}

    left_out = {
        each.input: {
            "in_its_place": each.in_its_place,
            "change": None if each.failed else outputs(each.change),
            "failed": each.failed or None,
        }
        for each in explanation.left_out
    }
    dense = [
        {
            "name": spec.name,
            "scope": spec.scope,
            "default": spec.default,
            "given": spec.name in asked.given_dense,
            "values": _taken(values, spec.scope, chosen),
            "left_out": left_out[spec.name],
        }
        for spec, values in asked.dense()
    ]
    sparse = [
        {
            **_input(manifest, spec, found),
            "lists": lists_json(
                explanation, spec, lists, found, [0] if spec.scope == "request" else chosen
            ),
            "left_out": left_out[spec.name],
        }
        for (spec, lists), found in zip(asked.sparse(), explanation.sparse, strict=True)
    ]
    return {
        "model": manifest.model,
        "version": manifest.version,
        "num_examples": asked.sample.num_examples,
        "examples": chosen,
        "outputs": outputs(explanation.scores),
        "dense": dense,
        "sparse": sparse,
    }


def _taken(values: NDArray[np.float32], scope: Scope, examples: list[int]) -> list[Any]:
    taken: list[Any] = (values[examples] if scope == "example" else values).tolist()
    return taken


def _input(manifest: Manifest, spec: SparseInputSpec, found: IdRows) -> dict[str, Any]:
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
        "unknown_ids": found.unknown,
        "cut_ids": int((found.fates == "cut").sum()),
    }
