"""A workload with request scope off: the user's inputs are sent once per candidate."""

from dataclasses import replace

import numpy as np

from benchmarks.workloads import Workload
from embershard.package import SampleRequest


def without_scope(workload: Workload) -> Workload:
    """The same model and weights with every input in example scope."""
    return replace(
        workload,
        name=f"{workload.name}_request_scope_off",
        sparse=tuple(replace(each, scope="example") for each in workload.sparse),
        request_dense=0,
        example_dense=workload.request_dense + workload.example_dense,
    )


def request_without_scope(workload: Workload, request: SampleRequest) -> SampleRequest:
    """A request of a workload in the form of `without_scope` of that workload."""
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
