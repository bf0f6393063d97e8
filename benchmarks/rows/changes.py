"""Latency of a server below its capacity while versions are swapped, shadowed or added."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio, benchmark
from benchmarks.loads import Load, Together, at_share_of_capacity
from benchmarks.packages import SMALL, PackageSpec, Requests
from benchmarks.rows.objectives import MLPERF_REQUESTS
from benchmarks.servers import ONE_THREAD, RESIDENT, ServeModels, one_model

TWO_VERSIONS = ServeModels(models=one_model(SMALL, SMALL), name="swapped")
OTHER_TABLES = ServeModels(models=one_model(SMALL, PackageSpec(seed=1)))
QUIET = "no change"


def _half_load(bench: Bench, package: PackageSpec = SMALL) -> Load:
    """A load at half of the capacity, in blocks of 4 s, on a server with two versions."""
    load = Load(
        server=ServeModels(models=one_model(package, package), name="quiet"),
        requests=Requests(package=package, examples=16, count=500),
        seconds=4.0,
        warmup_seconds=0.2,
    )
    return at_share_of_capacity(bench, load, 0.5)


def _shadowed(package: PackageSpec, shadow: PackageSpec) -> ServeModels:
    return ServeModels(
        models=one_model(package, shadow),
        labels=(("small", "shadow", 2),),
        flags=(*ONE_THREAD, "--shadow-share", "0.05"),
    )


def _compare(
    bench: Bench, quiet: Load, changes: dict[str, tuple[str, Load]], *, blocks: int = 10
) -> None:
    """``changes``: title and load by row, whose p99 is compared with that of the quiet load."""
    bench.compare(
        f"*small*, 16 examples, {quiet.rate:.0f} requests/s, half of the capacity",
        {**dict(changes.values()), QUIET: quiet},
        [Ratio(row, "p99_us", title, QUIET) for row, (title, _) in changes.items()],
        blocks=blocks,
    )


@benchmark()
def swaps(bench: Bench) -> None:
    """Swaps of the default version, and a shadow."""
    quiet = _half_load(bench)
    swapped = replace(quiet, server=TWO_VERSIONS)
    other = replace(quiet, server=OTHER_TABLES, swap_seconds=0.0)
    shadowed = replace(quiet, server=_shadowed(SMALL, SMALL))
    _compare(
        bench,
        quiet,
        {
            "p99": ("a swap every 0.2 s", replace(swapped, swap_seconds=0.2)),
            "each_second": ("a swap every 1 s", replace(swapped, swap_seconds=1.0)),
            "back_to_back": ("swaps back to back", replace(swapped, swap_seconds=0.0)),
            "other_tables": ("other tables, back to back", other),
            "shadow": ("a shadow with 5 % of the requests", shadowed),
        },
    )


@benchmark(by_name_only=True)
def swaps_200(bench: Bench) -> None:
    quiet = _half_load(bench)
    swapped = replace(quiet, server=TWO_VERSIONS, swap_seconds=1.0)
    _compare(bench, quiet, {"p99": ("a swap every 1 s", swapped)}, blocks=40)


@benchmark()
def shadows(bench: Bench) -> None:
    """Faulty shadows that get 5 % of the requests."""
    good = PackageSpec(variant="shadow_good")
    quiet = _half_load(bench, good)
    titles = {
        "slow": "a shadow that takes 40 ms a batch",
        "throws": "a shadow that throws",
        "nan": "a shadow with NaN scores",
    }
    _compare(
        bench,
        quiet,
        {
            kind: (
                title,
                replace(quiet, server=_shadowed(good, PackageSpec(variant=f"shadow_{kind}"))),
            )
            for kind, title in titles.items()
        },
    )


@benchmark()
def two_models(bench: Bench) -> None:
    small = Requests(examples=16, count=500)
    for row, second in {"small_small": small, "small_mlperf": MLPERF_REQUESTS}.items():
        requests = {"first": small, "second": second}
        server = ServeModels(
            models=tuple((name, (drawn.package,)) for name, drawn in requests.items()),
            flags=RESIDENT,
        )
        loads = dict[str, Load]()
        for name, drawn in requests.items():
            load = Load(
                server=server,
                requests=replace(drawn, model=name),
                seconds=10.0,
                warmup_seconds=0.5,
                all_ok=False,
            )
            loads[name] = at_share_of_capacity(bench, load, 0.35)
        rates = " and ".join(f"{load.rate:.0f}" for load in loads.values())
        bench.compare(
            f"*small*, 16 examples, and "
            f"{'the same' if second == small else 'DLRM-v2 at the sizes of MLPerf'}: {rates} "
            "requests/s, 35 % of the capacity of each",
            {"both": Together(loads=tuple(loads.items()))},
            [Ratio(f"{row}_{name}", f"{name}_p99_us", "both") for name in loads],
            blocks=10,
        )
