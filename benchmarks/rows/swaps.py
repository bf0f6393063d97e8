"""The latency of requests at half load while versions are loaded and swapped, and with a shadow."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio, Side
from benchmarks.loads import Load, Swaps, at_share_of_capacity
from benchmarks.packages import SMALL, PackageSpec, Requests
from benchmarks.servers import ONE_THREAD, ServeModels, one_model

LOAD = 0.5
"""Of the capacity."""

OTHER_TABLES = PackageSpec(seed=1)
SHADOW_FLAGS = ("--shadow-share", "0.05")


def half_load(bench: Bench, package: PackageSpec = SMALL, *, edit: str = "") -> Load:
    """Blocks of 4 s at half of what a closed loop reaches, with two versions of a package."""
    load = Load(
        server=ServeModels(models=one_model(package, package), name="quiet"),
        requests=Requests(package=package, examples=16, count=500, edit=edit),
        seconds=4.0,
        warmup_seconds=0.2,
    )
    return at_share_of_capacity(bench, load, LOAD)


def measure(bench: Bench) -> None:
    quiet = half_load(bench)
    swapped = ServeModels(models=one_model(SMALL, SMALL), name="swapped")
    shadowed = ServeModels(
        models=one_model(SMALL, SMALL),
        labels=(("small", "shadow", 2),),
        flags=(*ONE_THREAD, *SHADOW_FLAGS),
    )
    other_tables = ServeModels(models=one_model(SMALL, OTHER_TABLES))
    sides: dict[str, Side] = {
        "a swap every 0.2 s": replace(quiet, server=swapped, swaps=Swaps(0.2)),
        "a swap every 1 s": replace(quiet, server=swapped, swaps=Swaps(1.0)),
        "swaps back to back": replace(quiet, server=swapped, swaps=Swaps(0.0)),
        "other tables, back to back": replace(quiet, server=other_tables, swaps=Swaps(0.0)),
        "a shadow with 5 % of the requests": replace(quiet, server=shadowed),
        "no change": quiet,
    }
    names = ("p99", "each_second", "back_to_back", "other_tables", "shadow")
    bench.compare(
        f"*small*, 16 examples, {quiet.rate:.0f} requests/s, half of the capacity",
        sides,
        [Ratio(row, "p99_us", side, "no change") for row, side in zip(names, sides, strict=False)],
        blocks=10,
    )
