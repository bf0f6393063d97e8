"""A workload asked without request scope, where each candidate brings the user's side again; and
asked without a user's ids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from embershard.data import Workload
from embershard.package import SampleRequest

__all__ = ["drop_user", "repeat_request", "repeat_user"]


def repeat_user(workload: Workload) -> Workload:
    """The same model, the same weights; every input is given once per example."""
    return replace(
        workload,
        name=f"{workload.name}_repeated",
        sparse=tuple(replace(each, scope="example") for each in workload.sparse),
        request_dense=0,
        example_dense=workload.request_dense + workload.example_dense,
    )


def repeat_request(workload: Workload, request: SampleRequest) -> SampleRequest:
    """A request of a workload, as `repeat_user` of that workload takes it."""
    count = request.num_examples
    values, start = [], 0
    for each in workload.sparse:
        lists = count if each.scope == "example" else 1
        ids = request.values[start : start + lists * each.ids]
        values.append(ids if each.scope == "example" else np.tile(ids, count))
        start += lists * each.ids
    user = np.tile(request.request_dense, (count, 1))
    return replace(
        request,
        request_dense=request.request_dense[:0],
        example_dense=np.concatenate([user, request.example_dense], axis=1),
        lengths=np.repeat([each.ids for each in workload.sparse], count).astype(np.int32),
        values=np.concatenate(values),
    )


def drop_user(workload: Workload, request: SampleRequest) -> SampleRequest:
    """A request of a workload in which all lists of the request scope are empty."""
    lengths, values, start = [], [], 0
    for each in workload.sparse:
        lists = request.num_examples if each.scope == "example" else 1
        kept = each.ids if each.scope == "example" else 0
        lengths.append(np.full(lists, kept, np.int32))
        values.append(request.values[start : start + lists * kept])
        start += lists * each.ids
    return replace(request, lengths=np.concatenate(lengths), values=np.concatenate(values))
