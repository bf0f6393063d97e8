"""An explanation as JSON can hold it: everything, list by list and id by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embershard.explain.explanation import Explanation
from embershard.explain.features import IdRows, lists_json
from embershard.explain.request import SparseAsked
from embershard.package.schema import Scope


def explanation_json(explanation: Explanation, *, examples: Sequence[int] = ()) -> dict[str, Any]:
    """The explanation as values of JSON. docs/tools.md says what they mean.

    Args:
        explanation: what to write.
        examples: those to write, each 0 .. num_examples - 1. Empty: all.
    """
    asked, plan = explanation.asked, explanation.plan
    manifest = explanation.package.manifest
    chosen = list(examples or range(asked.num_examples))
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
            "name": each.spec.name,
            "scope": each.spec.scope,
            "default": each.spec.default,
            "given": each.given,
            "values": _taken(each.values, each.spec.scope, chosen),
            "left_out": left_out[each.spec.name],
        }
        for each in asked.dense
    ]
    sparse = [
        {
            **_input(explanation, each, found),
            "lists": lists_json(
                each,
                found,
                explanation.package,
                plan,
                [0] if each.spec.scope == "request" else chosen,
            ),
            "left_out": left_out[each.spec.name],
        }
        for each, found in zip(asked.sparse, explanation.sparse, strict=True)
    ]
    return {
        "model": manifest.model,
        "version": manifest.version,
        "plan": {"name": plan.name, "devices": list(plan.devices)},
        "scored_with": explanation.scored_with,
        "num_examples": asked.num_examples,
        "examples": chosen,
        "outputs": outputs(explanation.scores),
        "dense": dense,
        "sparse": sparse,
    }


def _taken(values: NDArray[np.float32], scope: Scope, examples: list[int]) -> list[Any]:
    taken: list[Any] = (values[examples] if scope == "example" else values).tolist()
    return taken


def _input(explanation: Explanation, asked: SparseAsked, found: IdRows) -> dict[str, Any]:
    spec, manifest = asked.spec, explanation.package.manifest
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
