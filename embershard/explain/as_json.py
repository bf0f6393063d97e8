"""An explanation as JSON can hold it: everything, list by list and id by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embershard.explain.explanation import Explanation, LeftOut
from embershard.explain.features import SparseExplained
from embershard.package.id_maps import ZERO_ROW
from embershard.package.schema import Scope


def explanation_json(explanation: Explanation, *, examples: Sequence[int] = ()) -> dict[str, Any]:
    """The explanation as values of JSON. docs/tools.md says what they mean.

    Args:
        explanation: what to write.
        examples: those to write, each 0 .. num_examples - 1. Empty: all.
    """
    chosen = list(examples or range(explanation.num_examples))
    manifest, plan = explanation.manifest, explanation.plan
    scopes = {each.name: each.scope for each in manifest.outputs}
    changes = {each.input: _left_out(each, scopes, chosen) for each in explanation.left_out}
    return {
        "model": manifest.model,
        "version": manifest.version,
        "plan": {"name": plan.name, "devices": list(plan.devices)},
        "scored_with": explanation.scored_with,
        "num_examples": explanation.num_examples,
        "examples": chosen,
        "outputs": _outputs(explanation.scores, scopes, chosen),
        "dense": [
            {
                "name": each.spec.name,
                "scope": each.spec.scope,
                "default": each.spec.default,
                "given": each.given,
                "values": _taken(each.values, each.spec.scope, chosen),
                "left_out": changes[each.spec.name],
            }
            for each in explanation.dense
        ],
        "sparse": [
            {**_sparse(each, chosen), "left_out": changes[each.asked.spec.name]}
            for each in explanation.sparse
        ],
    }


def _taken(values: NDArray[np.float32], scope: Scope, examples: list[int]) -> list[Any]:
    taken: list[Any] = (values[examples] if scope == "example" else values).tolist()
    return taken


def _outputs(
    values: Mapping[str, NDArray[np.float32]], scopes: Mapping[str, Scope], examples: list[int]
) -> dict[str, Any]:
    return {name: _taken(each, scopes[name], examples) for name, each in values.items()}


def _left_out(
    left_out: LeftOut, scopes: Mapping[str, Scope], examples: list[int]
) -> dict[str, Any]:
    return {
        "in_its_place": left_out.in_its_place,
        "change": _outputs(left_out.change, scopes, examples) if not left_out.failed else None,
        "failed": left_out.failed or None,
    }


def _sparse(feature: SparseExplained, examples: list[int]) -> dict[str, Any]:
    spec = feature.asked.spec
    whole_request = spec.scope == "request"
    lists = range(1) if whole_request else examples
    return {
        "name": spec.name,
        "scope": spec.scope,
        "weighted": spec.weighted,
        "max_ids": spec.max_ids,
        "keep": spec.keep,
        "ids": spec.ids.model_dump(),
        "lookups": [
            {
                "table": each.table.name,
                "pooling": each.lookup.pooling,
                "dim": each.table.dim,
                "weights": each.table.weights,
            }
            for each in feature.lookups
        ],
        "unknown_ids": feature.unknown_ids,
        "cut_ids": feature.cut_ids,
        "lists": [
            {
                "example": None if whole_request else number,
                "ids": [_id(feature, at) for at in feature.places_in(number)],
                "pooled_norms": [
                    None if each.lookup.output == "sequence" else float(each.pooled[number])
                    for each in feature.lookups
                ],
            }
            for number in lists
        ],
    }


def _id(feature: SparseExplained, at: int) -> dict[str, Any]:
    fate = feature.fates[at]
    return {
        "id": int(feature.asked.ids[at]),
        "given": None if feature.asked.given is None else feature.asked.given[at],
        "weight": None if feature.asked.weights is None else float(feature.asked.weights[at]),
        "fate": fate,
        "row": int(feature.rows[at]) if feature.rows[at] != ZERO_ROW else None,
        "norms": [None if fate == "cut" else float(each.norms[at]) for each in feature.lookups],
        "places": [
            [
                {"columns": list(place.columns), "devices": list(place.devices)}
                for place in each.places[at]
            ]
            for each in feature.lookups
        ],
    }
