"""``serving_shortage``: why no plan of serving fits the memory of the devices."""

from collections.abc import Callable, Mapping, Sequence

from embershard.planner.fleet import Fleet
from embershard.planner.inference_cost import ServedTable
from embershard.planner.shortage import smallest_addition
from embershard.planner.starting_placements import InfeasibleError


def serving_shortage(
    tables: Sequence[ServedTable],
    fleet: Fleet,
    constraints: Mapping[str, Sequence[str]],
    error: InfeasibleError,
    fits: Callable[[int], bool],
) -> str:
    """Which tables do not fit, by how much, and what would.

    Args:
        fleet: with a cap on memory.
        constraints: by table: cuts to choose from.
        fits: whether so many bytes more on each device hold the tables.
    """
    assert fleet.memory_bytes is not None
    devices = len(fleet.devices)
    needed = sum(
        each.spec.table_bytes
        * (devices if tuple(constraints.get(each.spec.name, ())) == ("replicate",) else 1)
        for each in tables
    )
    short = needed - fleet.memory_bytes * devices
    least = max(0.0, short / devices)
    advice = (
        f"{smallest_addition(fits, least=least, held=float(fleet.memory_bytes)):,} bytes more on "
        "each device would hold"
    )
    if short > 0:
        return (
            f"plan: tables: expected at most {needed - short:,.0f} bytes on {fleet.name}, got "
            f"{needed:,.0f}: {short:,.0f} bytes short; {advice} them"
        )
    table = tables[error.table].spec.name
    given = constraints.get(table)
    kept = f", which may be cut by {', '.join(given)} only" if given else ""
    return (
        f"plan: table {table!r}{kept}: its smallest shard has no device with room: "
        f"{error.missing_bytes:,.0f} bytes short; {advice} all tables"
        f"{'; or allow further cuts' if given else ''}"
    )
