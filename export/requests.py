"""Refuses requests that the exported model would refuse, before a package keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from embershard.errors import ExportError
from embershard.package.manifest import Limits
from embershard.package.samples import SampleRequest
from embershard.package.schema import Schema

__all__ = ["check_requests"]


def check_requests(samples: Sequence[SampleRequest], schema: Schema, limits: Limits) -> None:
    """Refuse samples that contradict the schema, the limits or themselves.

    Ids and the lengths of single lists are not looked at.

    Raises:
        ExportError: "samples: <number>: <part>: expected ..., got ...".
    """
    for number, sample in enumerate(samples):
        for part, expected, got in _problems(sample, schema, limits):
            raise ExportError(f"samples: {number}: {part}: expected {expected}, got {got}")


def _problems(
    sample: SampleRequest, schema: Schema, limits: Limits
) -> Iterator[tuple[str, object, object]]:
    """Part, expected and got; what follows a problem may make no sense."""
    examples = sample.num_examples
    if examples > limits.max_examples:
        yield "example_dense", f"at most {limits.max_examples} examples", examples
    for scope, part in (("request", sample.request_dense), ("example", sample.example_dense)):
        count = sum(item.scope == scope for item in schema.dense)
        if part.shape[-1] != count:
            yield f"{scope}_dense", f"{count} values", part.shape[-1]
        if not np.isfinite(part).all():
            yield f"{scope}_dense", "finite values", part[~np.isfinite(part)][0]
    lists = [examples if item.scope == "example" else 1 for item in schema.sparse]
    lengths = sample.lengths.astype(np.int64)
    if len(lengths) != sum(lists):
        yield "lengths", f"{sum(lists)} of them", len(lengths)
    if (lengths < 0).any():
        yield "lengths", "no negative length", lengths.min()
    if len(sample.values) > limits.max_ids:
        yield "values", f"at most {limits.max_ids} ids", len(sample.values)
    if len(sample.values) != lengths.sum():
        yield "values", f"{lengths.sum()} ids, as the lengths say", len(sample.values)
    weighted = np.repeat([item.weighted for item in schema.sparse], lists)
    weights = lengths[weighted.astype(bool)].sum()
    if len(sample.weights) != weights:
        yield "weights", f"{weights} of them", len(sample.weights)
    if not np.isfinite(sample.weights).all():
        yield "weights", "finite values", sample.weights[~np.isfinite(sample.weights)][0]
