"""Lookups compared with FBGEMM, and the limits of one and two threads of this machine."""

from benchmarks.checkout import THIS
from benchmarks.harness import Bench, Ratio, Side, benchmark
from benchmarks.local import Child
from benchmarks.packages import SMALL, PackageSpec
from benchmarks.workloads import WORKLOADS

OURS, EACH = "embershard", "embershard, a batch for each thread"
THEIRS, LIMIT = "FBGEMM, tuned", "random-row limit"
ROWS = "million_rows_per_second"
BATCHES = 64
"""Batches of each thread. They read a quarter of tables of 1 GiB, more than the L3 cache holds."""


@benchmark()
def lookup(bench: Bench) -> None:
    """int8 and int4 tables of 1 GiB, and tables that fit the cache."""
    for weights in ("int8", "int4"):
        for tables in ("d64", "d128", "d64_cached", "d128_cached"):
            package = PackageSpec(workload=f"lookup_{tables}", weights=weights)
            batches = 0 if tables.endswith("_cached") else BATCHES
            for threads in (1, 2):
                name = f"{weights}_{tables}_{threads}t"
                _compare(bench, name, package, threads=threads, batches=batches)


@benchmark()
def lookup_sizes(bench: Bench) -> None:
    """Tables of *small*, with small and large batches and short and long bags."""
    for bags in (1, 64, 512):
        for length in (1, 20):
            _compare(bench, f"{bags}x{length}", SMALL, bags=bags, length=length)


@benchmark()
def limits(bench: Bench) -> None:
    """Sequential and random memory reads, multiply-adds, and linear layers."""
    sums = "int8 rows drawn at random, {}, sums of 20"
    probes = {
        "stream": ("memory read in order", "gb_per_second"),
        "gather 64 8000000": (sums.format("D64"), ROWS),
        "gather 128 8000000": (sums.format("D128"), ROWS),
        "multiply_add": ("float32 multiply-adds in registers", "gflop_per_second"),
    }
    for probe, (what, figure) in probes.items():
        for threads in (1, 2):
            name = f"{'_'.join(probe.split()[:2])}_{threads}t"
            bench.compare(
                f"{what}, threads: {threads}",
                {"C++": _limit(threads, *probe.split())},
                [Ratio(name, figure, "C++")],
            )
    layers = ("benchmarks.workers.layers", "small", 512)
    bench.compare(
        "linear layers of *small* alone, 512 examples, fp32, threads: 1",
        {"torch": Child(command=lambda checkout: checkout.module(*layers))},
        [Ratio("layers_1t", "examples_per_second", "torch")],
    )


def _limit(threads: int, *probe: object) -> Child:
    """A probe of ``cpp/limits.cc``, always from this checkout."""
    return Child(
        command=lambda _: THIS.program("limits", threads, *probe), cores=tuple(range(threads))
    )


def _compare(
    bench: Bench,
    name: str,
    package: PackageSpec,
    *,
    bags: int = 512,
    length: int = 20,
    threads: int = 1,
    batches: int = 0,
) -> None:
    """Add rows that compare with FBGEMM and with the limit.

    Our threads share a batch; with several, a further row has a batch for each, as FBGEMM has.
    ``bags`` are those of each table, ``length`` the ids of a bag. ``batches`` of 0: just enough for
    each thread to exceed the L1 and L2 caches.
    """
    tables = WORKLOADS[package.workload].tables()
    dim, rows = tables[0].embedding_dim, sum(table.num_embeddings for table in tables)
    code_bytes = dim if package.weights == "int8" else dim // 2

    def side(kernels: str) -> Child:
        return Child(
            command=lambda checkout: checkout.program(
                "lookup", checkout.package(package), bags, length, threads, kernels, batches
            ),
            cores=tuple(range(threads)),
            is_peer=kernels == "fbgemm",
        )

    sides: dict[str, Side] = {
        OURS: side("embershard"),
        THEIRS: side("fbgemm"),
        LIMIT: _limit(threads, "gather", code_bytes, rows),
    }
    ratios = [Ratio(name, ROWS, OURS, THEIRS), Ratio(f"{name}_limit", ROWS, OURS, LIMIT)]
    if threads > 1:
        sides[EACH] = side("each")
        ratios.append(Ratio(f"{name}_each", ROWS, EACH, THEIRS))
    bench.compare(
        f"{package.weights} D{dim}, {len(tables)} tables, {rows:,} rows together, "
        f"bags: {bags} of {length}, threads: {threads}"
        + (f", {batches} batches" if batches else ""),
        sides,
        ratios,
    )
