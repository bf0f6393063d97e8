"""``Fleet``: the devices that a plan of serving is for, and the memory of each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from embershard.errors import InputError
from embershard.package import Plan, parse_devices
from embershard.package.manifest import TableSpec
from embershard.package.placement import device_bytes

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


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
