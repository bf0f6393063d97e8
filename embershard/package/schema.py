"""The inputs of a model. For a request of N examples a client sends:

scope       dense input   sparse input
──────────  ────────────  ──────────────
"example"   N floats      N lists of ids
"request"   1 float       1 list of ids
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
"""Limit on the ids of a list, since lengths are int32 on the wire."""


@final
@dataclass(frozen=True, slots=True)
class DenseInput:
    """One float32 per example, or per request.

    Raises:
        InputError: the name is empty or unprintable, the scope is unknown, the default is not a
            finite number below 1e15, or ``transforms`` has the wrong type.
    """

    name: str

    scope: Scope = "example"
    """``example``: a value for each candidate. ``request``: one value for all candidates."""

    default: float | None = None
    """Raw value for requests without this input. None: such requests are refused."""

    transforms: tuple[Transform, ...] = ()
    """Functions of the raw value, applied in this order in training and in the served program."""

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
    """A list of 64-bit ids per example, or per request. Requests without it have empty lists.

    Raises:
        InputError: the name is empty or unprintable, the scope or ``keep`` is unknown, or
            ``max_ids`` is outside 0 .. 2**31 - 1.
    """

    name: str

    scope: Scope = "example"
    """``example``: a list for each candidate. ``request``: one list for all candidates."""

    ids: IdMap | None = None
    """Maps ids to rows. None: the id is the row."""

    weighted: bool = False
    """True if each id has a float32 weight."""

    max_ids: int = 0
    """Limit on the ids of a list. 0: no limit."""

    keep: Keep = "reject"
    """Handling of a longer list: its ``first`` or ``last`` ``max_ids`` ids are kept, or the
    request is refused (``reject``)."""

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
    """The inputs of a model: all dense inputs, then all sparse inputs.

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
        InputError: there are no inputs, two have the same name, or one has the wrong type.
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
            for item in inputs:
                if not isinstance(item, kind):
                    raise InputError(f"Schema: expected {kind.__name__}, got {item!r}")
                if item.name in seen:
                    raise InputError(f"Schema: expected distinct names, got {item.name!r} twice")
                seen.add(item.name)

    def dense_names(self, scope: Scope | None = None) -> list[str]:
        """Names of the dense inputs, in order. None: of both scopes."""
        return [item.name for item in self.dense if scope in (None, item.scope)]

    def sparse_names(self, scope: Scope | None = None) -> list[str]:
        """Names of the sparse inputs, in order. None: of both scopes."""
        return [item.name for item in self.sparse if scope in (None, item.scope)]


def check_name(what: str, name: str) -> None:
    if not isinstance(name, str):
        raise InputError(f"{what}: name: expected a string, got {name!r}")
    problem = name_problem(name)
    if problem:
        raise InputError(f"{what}: name: expected {problem}, got {name!r}")


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{what}: expected one of {', '.join(choices)}, got {value!r}")
