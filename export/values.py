"""What a traced value is: its scope, and whether it is a tensor or tells a size."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import fx

from embershard.export.tracing import target_name
from embershard.package.schema import Scope

Kind: TypeAlias = Literal["tensor", "shape", "size", "plain"]
"""shape: all sizes of a tensor. size: a number that depends on how many rows there are. plain:
anything else that is no tensor."""

# What asks a tensor for something that is the same in either scope.
PLAIN_ATTRIBUTES = frozenset({"device", "dtype", "ndim", "dim", "ndimension"})


@dataclass(frozen=True, slots=True)
class Value:
    """What a node of the traced graph became."""

    node: fx.Node

    scope: Scope | None
    """None: the same whatever R and B are, as parameters are."""

    kind: Kind = "tensor"


@dataclass(frozen=True, slots=True)
class Pooled:
    """The KeyedTensor that an embedding module gives."""

    path: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequences:
    """The dict from key to JaggedTensor that an embedding module without pooling gives."""

    path: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One JaggedTensor of it."""

    path: str
    key: str


@dataclass(frozen=True, slots=True)
class Regrouped:
    """What ``KeyedTensor.regroup`` gives: a tensor a group."""

    groups: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """The KeyedJaggedTensor that is forward's sparse input."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Feature:
    """One JaggedTensor of it."""

    key: str


Found: TypeAlias = Value | Pooled | Sequences | Sequence | Regrouped | Features | Feature


def result_of(node: fx.Node, copy: fx.Node, scope: Scope | None, kinds: list[Kind]) -> Value:
    """The value of an operation: ``node`` of the traced graph says what was asked of what, ``copy``
    is the node in the rewritten graph; scope and kinds are those of the operands."""
    asked = _asked(node)
    if asked in PLAIN_ATTRIBUTES:
        return Value(copy, None, "plain")
    if asked == "shape" or (asked == "size" and len(node.args) == 1 and not node.kwargs):
        return Value(copy, scope, "shape")
    if asked == "size":
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        return Value(copy, scope, "size") if dim == 0 else Value(copy, None, "plain")
    if asked in ("numel", "nelement", len):
        return Value(copy, scope, "size" if scope else "plain")
    if asked == "getitem" and kinds == ["shape"]:
        return _item_of_shape(node, copy, scope)
    if "tensor" not in kinds and _is_arithmetic(node.target):
        return Value(copy, scope, "size" if scope else "plain")
    return Value(copy, scope)


def is_in_place(node: fx.Node) -> bool:
    """Whether a node writes into one of its operands: ``x.add_(y)``, ``operator.iadd(x, y)``."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = target_name(node)
    if _is_operator(node.target):
        return name in fx.graph.inplace_methods
    return node.kwargs.get("out") is not None or (name.endswith("_") and not name.endswith("__"))


def without_writing(node: fx.Node) -> str:
    """What to write in place of a node that `is_in_place`."""
    if node.kwargs.get("out") is not None:
        return "the call without out=, and use what it returns"
    return f"{target_name(node).strip('_')}, and use the new tensor that it returns"


def _asked(node: fx.Node) -> object:
    """The attribute, method or function: "shape" of ``x.shape``, "size" of ``x.size()``."""
    if node.op == "call_function":
        if node.target is getattr and len(node.args) > 1:
            return node.args[1]
        if _is_operator(node.target):
            return getattr(node.target, "__name__", None)
    return node.target


def _item_of_shape(node: fx.Node, copy: fx.Node, scope: Scope | None) -> Value:
    index: Any = node.args[1]
    if isinstance(index, slice):
        beyond_first = isinstance(index.start, int) and index.start > 0
        return Value(copy, None, "plain") if beyond_first else Value(copy, scope, "shape")
    return Value(copy, scope, "size") if index == 0 else Value(copy, None, "plain")


def _is_operator(target: Callable[..., Any] | str) -> bool:
    return getattr(target, "__module__", None) == "_operator"


def _is_arithmetic(target: Callable[..., Any] | str) -> bool:
    return getattr(target, "__module__", None) in ("_operator", "builtins", "math")
