"""Requests of a client, made of examples: each sends its request-scoped inputs once."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.data.base import Examples, JaggedColumn
from embershard.errors import InputError
from embershard.package.manifest import default_limits
from embershard.package.samples import SampleLists, SampleRequest
from embershard.package.schema import Schema


class ClientRequest(NamedTuple):
    """Inputs of one ``Client.predict`` call for N examples. The client's ``Lists`` are made from
    the lengths and values of a ``JaggedColumn``."""

    dense: NDArray[np.float32]
    """``[N, F]`` in schema order; request-scoped columns are constant."""

    sparse: Mapping[str, JaggedColumn]
    """Raw ids: one list for an input of the request scope, else N lists."""

    positions: NDArray[np.int64]
    """``[N]``: place of each example among all examples."""


def client_requests(examples: Examples) -> Iterator[ClientRequest]:
    """Group examples by their request number, in order of first appearance. Raises InputError for
    examples of one request that differ in a request-scoped input."""
    order = np.argsort(examples.request, kind="stable")
    numbers = examples.request[order]
    groups = np.split(order, np.flatnonzero(np.diff(numbers)) + 1) if len(order) else []
    for index in sorted(groups, key=lambda group: int(group[0])):
        yield _request(examples.take(index), index)


def sample_requests(examples: Examples, count: int) -> list[SampleRequest]:
    """The first ``count`` requests in the packed form that packages keep, without outputs. Requests
    beyond `default_limits` are left out, since export refuses them. Raises InputError for examples
    that `client_requests` refuses, or if all requests are too large."""
    limits = default_limits()
    packed = (_packed(examples.schema, request) for request in client_requests(examples))
    fitting = (
        sample
        for sample in packed
        if sample.num_examples <= limits.max_examples and len(sample.values) <= limits.max_ids
    )
    samples = list(islice(fitting, count))
    if len(examples) and not samples:
        raise InputError(
            f"requests: expected one of at most {limits.max_examples} examples and "
            f"{limits.max_ids} ids, got larger ones only"
        )
    return samples


def _request(group: Examples, index: NDArray[np.int64]) -> ClientRequest:
    schema = group.schema
    shared = [at for at, item in enumerate(schema.dense) if item.scope == "request"]
    if (group.dense[:, shared] != group.dense[:1, shared]).any():
        raise _differs(group, [schema.dense[at].name for at in shared])
    sparse = {}
    for item in schema.sparse:
        column = group.sparse[item.name]
        sparse[item.name] = column if item.scope == "example" else _shared_list(group, item.name)
    return ClientRequest(group.dense, sparse, index)


def _shared_list(group: Examples, name: str) -> JaggedColumn:
    column = group.sparse[name]
    first = column.take(np.zeros(1, np.int64))
    alike = (column.lengths == first.lengths).all()
    if not alike or not np.array_equal(column.values, np.tile(first.values, len(group))):
        raise _differs(group, [name])
    return first


def _differs(group: Examples, names: list[str]) -> InputError:
    return InputError(
        f"request {group.request[0]}: expected equal request-scoped {names} "
        f"in its {len(group)} examples, got different ones"
    )


def _packed(schema: Schema, request: ClientRequest) -> SampleRequest:
    shared = [item.scope == "request" for item in schema.dense]
    not_shared = [item.scope == "example" for item in schema.dense]
    columns = [request.sparse[item.name] for item in schema.sparse]
    return SampleRequest.of_lists(
        request.dense[0, shared],
        request.dense[:, not_shared],
        [SampleLists(column.lengths, column.values, None) for column in columns],
    )
