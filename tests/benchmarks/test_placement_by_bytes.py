"""The rule that the planner of serving is measured beside."""

from benchmarks.placement_by_bytes import place_by_bytes
from tests.package.building import table_spec


def shards_of(tables, devices, ids):
    """Name, rows, columns and devices of each shard."""
    shards = place_by_bytes(tables, [f"cpu:{index}" for index in range(devices)], ids)
    return [(each.table, each.rows, each.columns, each.devices) for each in shards]


def test_it_goes_by_the_bytes_that_lookups_read_and_not_by_rows():
    tables = [table_spec("vast", 10**6), table_spec("busy", 10), table_spec("idle", 10)]
    ids = {"vast": 10, "busy": 15, "idle": 5}
    assert shards_of(tables, 2, ids) == [
        ("busy", (0, 10), (0, 8), (0,)),
        ("idle", (0, 10), (0, 8), (1,)),
        ("vast", (0, 10**6), (0, 8), (1,)),
    ]


def test_it_cuts_columns_of_what_exceeds_a_devices_share():
    # Loads of 20 * 30 = 600 and 20 * 10 = 200: shares of 400.
    tables = [table_spec("busy", 10, 16), table_spec("calm", 10, 16)]
    assert shards_of(tables, 2, {"busy": 30, "calm": 10}) == [
        ("busy", (0, 10), (0, 8), (0,)),
        ("busy", (0, 10), (8, 16), (1,)),
        ("calm", (0, 10), (0, 16), (0,)),
    ]


def test_it_without_any_lookup_goes_by_bytes_held():
    tables = [table_spec("large", 30), table_spec("small", 10), table_spec("tiny", 5)]
    places = {
        name: devices
        for name, _, _, devices in shards_of(
            tables, 2, dict.fromkeys(["large", "small", "tiny"], 0)
        )
    }
    assert places == {"large": (0,), "small": (1,), "tiny": (1,)}
