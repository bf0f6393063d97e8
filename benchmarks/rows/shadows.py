"""The latency of requests at half load beside a shadow version that misbehaves."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio, Side
from benchmarks.packages import PackageSpec
from benchmarks.rows.swaps import SHADOW_FLAGS, half_load
from benchmarks.servers import ONE_THREAD, ServeModels, one_model

GOOD = PackageSpec(variant="shadow_good")
SHADOWS = {
    "slow": "a shadow that takes 40 ms a batch",
    "throws": "a shadow that throws",
    "nan": "a shadow with NaN scores",
}


def measure(bench: Bench) -> None:
    quiet = half_load(bench, GOOD, edit="trigger_fault")
    sides: dict[str, Side] = {"no shadow": quiet}
    for kind, title in SHADOWS.items():
        server = ServeModels(
            models=one_model(GOOD, PackageSpec(variant=f"shadow_{kind}")),
            labels=(("small", "shadow", 2),),
            flags=(*ONE_THREAD, *SHADOW_FLAGS),
        )
        sides[title] = replace(quiet, server=server)
    bench.compare(
        f"*small*, 16 examples, {quiet.rate:.0f} requests/s, half of the capacity; the shadow gets "
        "5 % of the requests",
        sides,
        [Ratio(row, "p99_us", title, "no shadow") for row, title in SHADOWS.items()],
        blocks=10,
    )
