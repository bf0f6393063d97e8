"""``Fleet``: devices of a plan of serving and the memory of each; constraints on its tables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from embershard.errors import InputError
from embershard.formatting import names_text
from embershard.package import Plan, parse_devices
from embershard.package.manifest import TableSpec
from embershard.package.placement import device_bytes

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}

CUTS = ("table", "column", "row", "replicate")
"""Whole on one device; by columns; by rows; whole on every device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Devices of one kind."""

    devices: tuple[str, ...]
    """"cpu:0", "cpu:1", ..."""

    memory_bytes: int | None
    """For the tables of each. None: no cap, as ``cpu`` devices of a process read one copy of the
    rows."""

    @property
    def kind(self) -> str:
        """ "cpu" or "cuda"."""
        return self.devices[0].partition(":")[0]

    @property
    def name(self) -> str:
        """Of a plan for it: "2xcpu"."""
        return f"{len(self.devices)}x{self.kind}"


def check_memory(plan: Plan, tables: Sequence[TableSpec], fleet: Fleet) -> None:
    """Whether a plan keeps to the memory of the fleet.

    Raises:
        InputError: one device has more.
    """
    if fleet.memory_bytes is None:
        return
    for device, held in zip(plan.devices, device_bytes(plan, tables), strict=True):
        if held > fleet.memory_bytes:
            raise InputError(
                f"plan {plan.name}: device {device}: expected at most {fleet.memory_bytes:,} bytes "
                f"of tables, got {held:,.0f}; the strategy auto keeps to the memory"
            )


def parse_fleet(text: str) -> Fleet:
    """ "8xcuda:80GB", "2xcpu:500MiB", "2xcpu" and "cpu".

    Raises:
        InputError: another form, an unknown device, no memory, or ``cuda`` without its memory.
    """
    head, colon, size = text.partition(":")
    devices = tuple(parse_devices(head))
    if not colon:
        if devices[0].startswith("cuda:"):
            raise InputError(
                f"devices: {head}: memory: expected bytes of one device, as in {head}:80GB, "
                "got none"
            )
        return Fleet(devices=devices, memory_bytes=None)
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGT]?I?B)", size.upper())
    memory = int(float(found[1]) * UNITS[found[2]]) if found and found[2] in UNITS else 0
    if memory < 1:
        raise InputError(
            f"devices: {head}: memory: expected bytes above 0 with a unit (B, MB, GB, GiB), as in "
            f"{head}:80GB, got {size[:40]!r}"
        )
    return Fleet(devices=devices, memory_bytes=memory)


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
    """Checks that constraints name these tables.

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
