"""Constraints of plans of serving: the cuts that a table may have."""

from collections.abc import Iterable, Mapping, Sequence

from embershard.errors import InputError
from embershard.formatting import names_text

CUTS = ("table", "column", "row", "replicate")
"""Whole on one device; by columns; by rows; whole on every device."""


def parse_constraints(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """ "users=replicate" and "items=table,column", by table.

    Raises:
        InputError: another form, an unknown cut, or two that contradict each other.
    """
    found = dict[str, tuple[str, ...]]()
    for text in texts:
        name, equals, rest = text.rpartition("=")
        cuts = tuple(rest.split(","))
        if not name or not equals or not set(CUTS).issuperset(cuts):
            raise InputError(
                f"constraint: expected TABLE=CUT or TABLE=CUT,CUT with cuts of {', '.join(CUTS)}, "
                f"got {text[:80]!r}"
            )
        if not set(cuts) & set(found.get(name, cuts)):
            raise InputError(
                f"constraint: table {name!r}: {', '.join(found[name])} and {', '.join(cuts)} "
                "contradict each other: expected a cut that both allow"
            )
        found[name] = tuple(each for each in cuts if each in found.get(name, cuts))
    return found


def check_constraints(constraints: Mapping[str, Sequence[str]], tables: Sequence[str]) -> None:
    """Whether constraints are of these tables.

    Raises:
        InputError: one names no table, or no cut.
    """
    for name, cuts in constraints.items():
        if name not in tables:
            raise InputError(
                f"constraint: expected a table of the package ({names_text(tables)}), got {name!r}"
            )
        if not cuts or not set(CUTS).issuperset(cuts):
            raise InputError(
                f"constraint: table {name!r}: expected some of {', '.join(CUTS)}, got "
                f"{', '.join(cuts) or 'none'}"
            )
