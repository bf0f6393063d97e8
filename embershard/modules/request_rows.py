"""The user side of a batch of request rows, computed once per request as in serving.

A variable batch has R lists of keys of the request scope, and B lists of the others, B > R. While
`once_per_request` runs, tensors that depend only on requests have R rows:

    dense[:, columns]                columns of the request scope         RequestRows [R, ...]
    pooled[key]                      a key of the request scope           RequestRows [R, D]
    sequences[key].to_padded_dense   a key of the request scope           RequestRows [R, L, D]

An operation on RequestRows runs on R rows. Operations that also read rows of examples, and
`to_examples`, expand them to the examples first.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from embershard.modules.scope import to_examples


class RequestRows(Tensor):
    """R rows that depend only on requests."""

    request_of_example: Tensor
    """int64 ``(B,)``, rising."""

    @classmethod
    def of(cls, rows: Tensor, request_of_example: Tensor) -> RequestRows:
        """Mark ``rows``, ``(R, ...)``, as a row for each request."""
        marked = rows.as_subclass(cls)
        marked.request_of_example = request_of_example
        return marked

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            request_of = next(x.request_of_example for x in tensors if isinstance(x, RequestRows))
            meets_examples = func is to_examples or any(
                len(request_of) in x.shape for x in tensors if not isinstance(x, RequestRows)
            )

            def plain(leaf: Any) -> Any:
                if not isinstance(leaf, RequestRows):
                    return leaf
                rows = leaf.as_subclass(Tensor)
                return rows.index_select(0, request_of) if meets_examples else rows

            args, kwargs = tree_map(plain, (tuple(args), dict(kwargs or {})))
            result = func(*args, **kwargs)
            if meets_examples:
                return result
            return tree_map(lambda x: cls.of(x, request_of) if isinstance(x, Tensor) else x, result)


class RequestColumns(Tensor):
    """Rows of B examples ``(B, F)``. Some columns depend only on requests."""

    request_columns: Collection[int]
    request_of_example: Tensor

    @classmethod
    def of(
        cls, matrix: Tensor, request_columns: Collection[int], request_of_example: Tensor
    ) -> RequestColumns:
        """Mark a matrix. ``request_columns`` depend only on requests."""
        marked = matrix.as_subclass(cls)
        marked.request_columns = frozenset(request_columns)
        marked.request_of_example = request_of_example
        return marked

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if RequestRows in types:
            return RequestRows.__torch_function__(func, types, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            matrix = args[0] if args else None
            if isinstance(matrix, cls) and matrix._depends_on_requests(func, args[1:]):
                result = RequestRows.of(
                    result[_is_first(matrix.request_of_example)], matrix.request_of_example
                )
            return result

    def _depends_on_requests(self, func: Any, args: Any) -> bool:
        """True for ``matrix[:, columns]`` and ``matrix.narrow(1, first, width)``, if the columns
        depend only on requests."""
        places = range(self.shape[1])
        match func, args:
            case Tensor.narrow, (1, int(first), int(width)):
                chosen = list(places[first : first + width])
            case Tensor.__getitem__, ((slice(start=None, stop=None, step=None), columns),):
                chosen = torch.tensor(places)[columns].flatten().tolist()
            case _:
                return False
        return bool(chosen) and set(chosen) <= set(self.request_columns)


class RequestLists(JaggedTensor):
    """Lists of R requests. Their lengths and padded values are RequestRows."""

    def __init__(self, lists: JaggedTensor, request_of_example: Tensor) -> None:
        super().__init__(lists.values(), None, lists.lengths())
        self._lists, self._request_of_example = lists, request_of_example

    def lengths(self) -> Tensor:
        return RequestRows.of(self._lists.lengths(), self._request_of_example)

    def to_padded_dense(
        self, desired_length: int | None = None, padding_value: float = 0.0
    ) -> Tensor:
        padded = self._lists.to_padded_dense(desired_length, padding_value)
        return RequestRows.of(padded, self._request_of_example)


@contextmanager
def once_per_request(
    collections: Sequence[nn.Module], dense: Tensor, columns: Collection[int], request_of: Tensor
) -> Iterator[Tensor]:
    """A block in which a model runs its user side once per request. Yields the dense input to pass,
    from ``dense``, float32 ``(B, F)``, with ``columns`` of the request scope. Outputs of the
    model's ``collections`` are marked, too. ``request_of`` has the request of each example, int64
    ``(B,)``, rising."""

    def mark(_: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        features = [*args, *kwargs.values()][0]
        return _marked(output, features, request_of)

    hooks = [part.register_forward_hook(mark, with_kwargs=True) for part in collections]
    try:
        yield RequestColumns.of(dense, columns, request_of)
    finally:
        for hook in hooks:
            hook.remove()


def has_marks(module: nn.Module) -> bool:
    """True if a class of the module or of a submodule calls `to_examples`."""
    kinds: set[Any] = {type(part) for part in module.modules()}
    return any(_calls_to_examples(kind) for kind in kinds)


@cache
def _calls_to_examples(kind: type) -> bool:
    functions = (function for _, function in inspect.getmembers(kind, inspect.isfunction))
    return any(to_examples.__name__ in function.__code__.co_names for function in functions)


def _marked(
    output: KeyedTensor | dict[str, JaggedTensor], features: KeyedJaggedTensor, request_of: Tensor
) -> KeyedTensor | dict[str, JaggedTensor]:
    """The output of a collection, with its request scope marked."""
    strides = dict(zip(features.keys(), features.stride_per_key(), strict=True))

    def is_request(key: str) -> bool:
        feature = key if key in strides else key.rpartition("@")[0]
        return strides[feature] < len(request_of)

    if isinstance(output, dict):
        return {
            key: RequestLists(lists, request_of) if is_request(key) else lists
            for key, lists in output.items()
        }
    keys, widths, columns = output.keys(), output.length_per_key(), list[int]()
    for key, first, width in zip(keys, output.offset_per_key(), widths, strict=False):
        columns += range(first, first + width) if is_request(key) else ()
    return KeyedTensor(keys, widths, RequestColumns.of(output.values(), columns, request_of))


def _is_first(request_of: Tensor) -> Tensor:
    """bool ``(B,)``: true for the first example of each request."""
    is_first = torch.ones_like(request_of, dtype=torch.bool)
    is_first[1:] = request_of[1:] != request_of[:-1]
    return is_first
