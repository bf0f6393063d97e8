"""Chooses the ids to send for each sparse input. The first source that knows its ids wins.

source                                      ids
──────────────────────────────────────────  ──────────────────────────────────────────
1. --id-range NAME=A..B                     A .. B
2. the package (--package)                  the vocabulary, or 0 .. rows or buckets - 1
3. the server (GetModel; no vocabularies)   0 .. known_ids - 1
4. --id-range A..B                          A .. B
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
    size: int
    first: int = 0
    """The ids are first .. first + size - 1 if ``listed`` is None."""

    listed: NDArray[np.int64] | None = None
    """All ids, int64 ``[size]``."""

    where: str

    def ids_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places + self.first if self.listed is None else self.listed[places]


def find_id_sources(
    model: ServedModel, *, ranges: Mapping[str, tuple[int, int]], package: Path | None = None
) -> dict[str, IdSource]:
    """Find ids by the table at the top. ``ranges``: first and last id by feature ("": source 4)."""
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
        f"feature {item.name!r}: expected to learn its ids from the server, got none; pass "
        "--package PATH of the served package, or --id-range A..B"
    )


def _range(span: tuple[int, int]) -> IdSource:
    return IdSource(size=span[1] - span[0] + 1, first=span[0], where="--id-range")


def _from_package(path: Path, model: ServedModel) -> dict[str, IdSource]:
    package = Package.open(path)
    expected = f"{model.fingerprint:016x}"
    if package.manifest.fingerprint != expected:
        raise InputError(
            f"package {path}: expected the server's schema {expected}, "
            f"got {package.manifest.fingerprint}"
        )
    sources = {}
    for item in package.schema().sparse:
        match item.ids:
            case Vocabulary() as id_map:
                sources[item.name] = IdSource(
                    size=len(id_map.keys), listed=id_map.ids, where="the package"
                )
            case Identity() as id_map:
                sources[item.name] = IdSource(size=id_map.rows, where="the package")
            case Hash() as id_map:
                sources[item.name] = IdSource(size=id_map.buckets, where="the package")
    return sources


Floats = NDArray[np.float64]


def zipf_ranks(
    random: np.random.Generator, count: int, *, size: int, alpha: float
) -> NDArray[np.int64]:
    """Draw ``count`` ranks 0 .. size - 1, int64. Rank k has a probability proportional to
    ``(k + 1) ** -alpha``, with alpha above 0. Exact for any size, without a table.

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
    # Closer to its nearest rank than this, a draw is always accepted.
    near = 2 - float(inverse(float(area(2.5)) - 2**-alpha))
    ranks = np.empty(count, np.int64)
    filled = 0
    while filled < count:
        y = right + random.random(count - filled) * (left - right)
        x = inverse(y)
        nearest = np.clip(np.rint(x), 1, size)
        accepted = (nearest - x <= near) | (y >= area(nearest + 0.5) - nearest**-alpha)
        drawn = nearest[accepted].astype(np.int64) - 1
        ranks[filled : filled + len(drawn)] = drawn
        filled += len(drawn)
    return ranks


def scatter_ranks(ranks: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Positions 0 .. size - 1 of ranks, by a fixed permutation. Frequent ids of real tables do not
    share cache lines, as neighbours in rank would."""
    # The bound on the step keeps ranks * step within int64.
    step = max(1, min(int(size * 0.6180339887), (1 << 62) // size))
    while math.gcd(step, size) != 1:
        step -= 1
    return ranks * step % size
