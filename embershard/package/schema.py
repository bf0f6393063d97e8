"""What a model is asked with: its inputs, in order, and how each is given.

client sends                 dense input           sparse input
───────────────────────────  ────────────────────  ──────────────────────
scope "example"  (N of it)   one float a example   one list of ids a example
scope "request"  (1 of it)   one float             one list of ids
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final, get_args

from embershard.errors import InputError
from embershard.package.id_maps import IdMap
from embershard.package.names import name_problem
from embershard.package.transforms import NUMBER_LIMIT, Transform

Scope: TypeAlias = Literal["request", "example"]
Keep: TypeAlias = Literal["reject", "first", "last"]

MAX_LENGTH: Final = (1 << 31) - 1
"""Longest list of ids: lengths are int32 on the wire."""


@final
@dataclass(frozen=True, slots=True)
class DenseInput:
    """One float32 per example, or per request.

    Raises:
        InputError: an empty or unprintable name, an unknown scope, a default that is no number,
            not finite or not below 1e15, or transforms of another type.
    """

    name: str

    scope: Scope = "example"
    """``example``: a value for each candidate. ``request``: one value for all of them."""

    default: float | None = None
    """What a request without this input gets. None: such a request is refused."""

    transforms: tuple[Transform, ...] = ()
    """Applied to the raw value, the first one first, in training and in the served program. The
    default is a raw value, too."""

    def __post_init__(self) -> None:
        check_name("DenseInput", self.name)
        where = f"DenseInput {self.name!r}"
        _check_choice(f"{where}: scope", self.scope, get_args(Scope))
        default = self.default
        if default is not None and (
            isinstance(default, bool) or not isinstance(default, int | float)
        ):
            raise InputError(f"{where}: default: expected a float or None, got {default!r}")
        if default is not None and not (math.isfinite(default) and abs(default) < NUMBER_LIMIT):
            raise InputError(f"{where}: default: expected |default| < 1e15, got {default!r}")
        if isinstance(self.transforms, Transform) or not isinstance(self.transforms, Iterable):
            raise InputError(f"{where}: transforms: expected a tuple, got {self.transforms!r}")
        object.__setattr__(self, "transforms", tuple(self.transforms))
        for transform in self.transforms:
            if not isinstance(transform, Transform):
                raise InputError(
                    f"{where}: transforms: expected instances of Log1p, Clip, Standardize or "
                    f"Bucketize, got {transform!r}"
                )


@final
@dataclass(frozen=True, slots=True)
class SparseInput:
    """A list of 64-bit ids per example, or per request. Left out of a request, it is empty.

    Raises:
        InputError: an empty or unprintable name, an unknown scope or keep, or ``max_ids``
            outside 0 .. 2**31 - 1.
    """

    name: str

    scope: Scope = "example"
    """``example``: a list for each candidate. ``request``: one list for all of them."""

    ids: IdMap | None = None
    """None: the id is the row, for the rows of the table it is looked up in."""

    weighted: bool = False
    """Whether each id comes with a float32 weight."""

    max_ids: int = 0
    """Most ids of one list that count. 0: no limit."""

    keep: Keep = "reject"
    """Of a longer list: its first ``max_ids`` ids, its last, or the list is refused."""

    def __post_init__(self) -> None:
        check_name("SparseInput", self.name)
        where = f"SparseInput {self.name!r}"
        _check_choice(f"{where}: scope", self.scope, get_args(Scope))
        _check_choice(f"{where}: keep", self.keep, get_args(Keep))
        if self.ids is not None and not isinstance(self.ids, IdMap):
            raise InputError(f"{where}: ids: expected an id map or None, got {self.ids!r}")
        if type(self.weighted) is not bool:
            raise InputError(f"{where}: weighted: expected True or False, got {self.weighted!r}")
        if type(self.max_ids) is not int or not 0 <= self.max_ids <= MAX_LENGTH:
            raise InputError(f"{where}: max_ids: expected 0 .. 2**31 - 1, got {self.max_ids!r}")


@final
@dataclass(frozen=True, slots=True, init=False)
class Schema:
    """The inputs of a model: all dense ones, then all sparse ones.

    ::

        import embershard as es

        item_ids = [1101, 1205, 1007]
        schema = es.Schema(
            dense=[es.DenseInput("hour", scope="request"), es.DenseInput("price")],
            sparse=[
                es.SparseInput("user", scope="request", ids=es.Hash(buckets=1000)),
                es.SparseInput("item", ids=es.Vocabulary(item_ids, unknown="oov")),
            ],
        )

    Raises:
        InputError: no inputs, two with one name, or one of the wrong kind.
    """

    dense: tuple[DenseInput, ...]
    """Columns of the model's dense tensor, in this order."""

    sparse: tuple[SparseInput, ...]
    """Keys of the model's KeyedJaggedTensor, in this order."""

    def __init__(
        self, *, dense: Iterable[DenseInput] = (), sparse: Iterable[SparseInput] = ()
    ) -> None:
        object.__setattr__(self, "dense", tuple(dense))
        object.__setattr__(self, "sparse", tuple(sparse))
        if not (self.dense or self.sparse):
            raise InputError("Schema: expected at least one input, got none")
        seen: set[str] = set()
        for kind, inputs in ((DenseInput, self.dense), (SparseInput, self.sparse)):
            for each in inputs:
                if not isinstance(each, kind):
                    raise InputError(f"Schema: expected {kind.__name__}, got {each!r}")
                if each.name in seen:
                    raise InputError(f"Schema: expected distinct names, got {each.name!r} twice")
                seen.add(each.name)

    def dense_names(self, scope: Scope | None = None) -> list[str]:
        """Names of the dense inputs, in order; those of one scope where one is given."""
        return [each.name for each in self.dense if scope in (None, each.scope)]

    def sparse_names(self, scope: Scope | None = None) -> list[str]:
        """Names of the sparse inputs, in order; those of one scope where one is given."""
        return [each.name for each in self.sparse if scope in (None, each.scope)]


def check_name(what: str, name: str) -> None:
    """Refuses a name that no manifest can hold."""
    if not isinstance(name, str):
        raise InputError(f"{what}: name: expected a string, got {name!r}")
    problem = name_problem(name)
    if problem:
        raise InputError(f"{what}: name: expected {problem}, got {name!r}")


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{what}: expected one of {', '.join(choices)}, got {value!r}")
