"""Registers jagged tensors as nodes of torch's pytrees, and makes them traceable by torch.fx."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch.fx
from torch import Tensor
from torch.fx._symbolic_trace import ProxyableClassMeta
from torch.utils import _pytree

Node = TypeVar("Node")


def tree_map(function: Callable[[Tensor], Any], node: Node) -> Node:
    mapped: Node = _pytree.tree_map(function, node)
    return mapped


def jagged_children(node: Any) -> tuple[str, ...]:
    """Names of a node's tensors: values, weights, and the lengths or offsets that it was built
    from. The other ones may be computed at any time, which must not change the structure."""
    names = ("_values", "_offsets" if node._by_offsets else "_lengths")
    return names if node._weights is None else (*names, "_weights")


def register_pytree(
    cls: type,
    children: Callable[[Any], tuple[str, ...]],
    *,
    static: tuple[str, ...],
    optional: tuple[str, ...] = (),
) -> None:
    """Make ``cls`` a pytree node. Rebuilding checks nothing, since leaves may be no tensors.
    ``children`` returns the names of the attributes that are an object's children. ``static``
    attributes belong to the structure: numbers, or lists of strings or numbers. ``optional`` ones
    are None after rebuilding unless they are children."""

    def flatten(node: Any) -> tuple[list[Any], tuple[Any, ...]]:
        names = children(node)
        kept = tuple(_frozen(getattr(node, name)) for name in static)
        return [getattr(node, name) for name in names], (names, kept)

    def flatten_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        leaves, context = flatten(node)
        paths = [_pytree.GetAttrKey(name) for name in context[0]]
        return list(zip(paths, leaves, strict=True)), context

    def rebuild(leaves: Any, context: Any) -> Any:
        names, kept = context
        node: Any = object.__new__(cls)
        for name in optional:
            setattr(node, name, None)
        for name, value in zip(static, kept, strict=True):
            setattr(node, name, list(value) if isinstance(value, tuple) else value)
        for name, leaf in zip(names, leaves, strict=True):
            setattr(node, name, leaf)
        return node

    _pytree.register_pytree_node(
        cls,
        flatten,
        rebuild,
        serialized_type_name=f"embershard.jagged.{cls.__name__}",
        flatten_with_keys_fn=flatten_with_keys,
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class TraceableMeta(ProxyableClassMeta):
    """Metaclass of classes whose construction from traced values is one node of the graph. It looks
    for proxies among the arguments. ``torch.fx.ProxyableClassMeta`` does the same, but makes torch
    log a warning for every user."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy((*args, *kwargs.values()))
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", self, args, kwargs)
        return type.__call__(self, *args, **kwargs)


def _first_proxy(values: Iterable[Any]) -> torch.fx.Proxy | None:
    for value in values:
        if isinstance(value, torch.fx.Proxy):
            return value
        if isinstance(value, (list, tuple)):
            inner = _first_proxy(value)
            if inner is not None:
                return inner
    return None
