"""Which ids to send: those that a model knows, where anyone says which they are.

from                          ids
────────────────────────────  ─────────────────────────────────────────────
an option for the feature     the range it gives
the package                   the vocabulary's; else 0 .. rows or buckets - 1
the server (GetModel)         0 .. known_ids - 1; nothing for a vocabulary
an option for all features    the range it gives
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embershard.client import ServedInput, ServedModel
from embershard.errors import InputError
from embershard.package import Hash, Identity, Package, Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class IdSource:
    """The ids of one feature."""

    size: int
    """How many there are."""

    first: int = 0
    """They are first .. first + size - 1, where there is no list."""

    listed: NDArray[np.int64] | None = None
    """The ids one by one, int64 ``[size]``."""

    where: str
    """Who says so, for people."""

    def ids_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids at places 0 .. size - 1, int64, in the shape of ``places``."""
        return places + self.first if self.listed is None else self.listed[places]


def find_id_sources(
    model: ServedModel, *, ranges: Mapping[str, tuple[int, int]], package: Path | None = None
) -> dict[str, IdSource]:
    """Where the ids of each sparse input come from. ``ranges``: first and last id by feature; under
    "" for those that nobody else knows. ``package``: of the model that is served."""
    unknown = set(ranges) - {""} - {item.name for item in model.sparse}
    if unknown:
        raise InputError(f"id-range: {sorted(unknown)[0]!r} is no sparse input of {model.name!r}")
    listed = _from_package(package, model) if package else {}
    return {item.name: _source(item, ranges, listed) for item in model.sparse}


def _source(
    item: ServedInput, ranges: Mapping[str, tuple[int, int]], listed: Mapping[str, IdSource]
) -> IdSource:
    if item.name in ranges:
        return _range(ranges[item.name])
    if item.name in listed:
        return listed[item.name]
    if item.known_ids:
        return IdSource(size=item.known_ids, where="the server")
    if "" in ranges:
        return _range(ranges[""])
    raise InputError(
        f"feature {item.name!r}: the server does not say which ids it knows; expected --package "
        "PATH of the package that it serves, or --id-range A..B"
    )


def _range(span: tuple[int, int]) -> IdSource:
    return IdSource(size=span[1] - span[0] + 1, first=span[0], where="--id-range")


def _from_package(path: Path, model: ServedModel) -> dict[str, IdSource]:
    package = Package.open(path)
    expected = f"{model.fingerprint:016x}"
    if package.manifest.fingerprint != expected:
        raise InputError(
            f"package {path}: expected the schema {expected} that the server has, "
            f"got {package.manifest.fingerprint}"
        )
    found = {}
    for item in package.schema().sparse:
        match item.ids:
            case Vocabulary() as known:
                found[item.name] = IdSource(
                    size=len(known.keys), listed=known.ids, where="the package"
                )
            case Identity() as known:
                found[item.name] = IdSource(size=known.rows, where="the package")
            case Hash() as known:
                found[item.name] = IdSource(size=known.buckets, where="the package")
    return found


Floats = NDArray[np.float64]


def zipf_ranks(
    random: np.random.Generator, count: int, *, size: int, alpha: float
) -> NDArray[np.int64]:
    """``count`` ranks 0 .. size - 1, int64, rank k with a probability proportional to ``(k + 1) **
    -alpha``, alpha above 0. Exact for any size, without a table.

    Source: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone
        discrete distributions", 1996. `area` is their H, the integral of ``x ** -alpha``.
    """
    slope = 1 - alpha

    def area(x: Floats | float) -> Floats:
        log = np.log(x)
        return np.asarray(np.expm1(slope * log) / slope if slope else log)

    def inverse(y: Floats | float) -> Floats:
        if not slope:
            return np.asarray(np.exp(y))
        return np.asarray(np.exp(np.log1p(np.maximum(slope * np.asarray(y), -1)) / slope))

    left, right = float(area(1.5)) - 1, float(area(size + 0.5))
    near = 2 - float(inverse(float(area(2.5)) - 2**-alpha))  # Closer than this: never rejected.
    ranks = np.empty(count, np.int64)
    filled = 0
    while filled < count:
        y = right + random.random(count - filled) * (left - right)
        x = inverse(y)
        nearest = np.clip(np.rint(x), 1, size)
        accepted = (nearest - x <= near) | (y >= area(nearest + 0.5) - nearest**-alpha)
        found = nearest[accepted].astype(np.int64) - 1
        ranks[filled : filled + len(found)] = found
        filled += len(found)
    return ranks


def scattered(ranks: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Each rank's place among ``size``: a fixed permutation that spreads frequent ones.

    Neighbours in rank would otherwise lie in one cache line, as they do in no real table.
    """
    step = max(1, min(int(size * 0.6180339887), (1 << 62) // size))  # No product overflows.
    while math.gcd(step, size) != 1:
        step -= 1
    return ranks * step % size
