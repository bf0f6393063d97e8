"""Examples as a package keeps them: in the packed form of the wire."""

from __future__ import annotations

from itertools import islice

import numpy as np

from embershard.data.base import Examples
from embershard.data.requests import ClientRequest, client_requests
from embershard.package.samples import SampleRequest
from embershard.package.schema import Schema

__all__ = ["sample_requests"]


def sample_requests(examples: Examples, count: int) -> list[SampleRequest]:
    """The first ``count`` requests of a split, without outputs."""
    requests = islice(client_requests(examples), count)
    return [_sample(examples.schema, request) for request in requests]


def _sample(schema: Schema, request: ClientRequest) -> SampleRequest:
    shared = [item.scope == "request" for item in schema.dense]
    own = [not each for each in shared]
    lists = [request.sparse[item.name] for item in schema.sparse]
    lengths = [np.asarray(each.lengths, np.int32) for each in lists]
    values = [np.asarray(each.values, np.int64) for each in lists]
    return SampleRequest(
        num_examples=len(request.dense),
        request_dense=request.dense[0, shared],
        example_dense=request.dense[:, own],
        lengths=np.concatenate([np.zeros(0, np.int32), *lengths]),
        values=np.concatenate([np.zeros(0, np.int64), *values]),
        weights=np.zeros(0, np.float32),
        outputs={},
    )
