"""Lookups beside FBGEMM's tuned operator, called from C++, and beside what no lookup can pass: of
tables of 1 GiB in int8 together, and of tables that the caches hold."""

from benchmarks.harness import Bench, Ratio, Side
from benchmarks.local import Child
from benchmarks.packages import PackageSpec
from benchmarks.workloads import workload

OURS, EACH = "embershard", "embershard, a batch for each thread"
THEIRS, LIMIT = "FBGEMM, tuned", "random-row limit"
PROBES = {
    "touch": "random rows, only touched",
    "load": "random rows, codes only read",
    "whole": "random rows, our sums alone",
}
"""Kinds of `limits`: rows of as many tables as a lookup's, one table after the other."""


def measure(bench: Bench) -> None:
    for weights in ("int8", "int4"):
        for tables in ("d64", "d128", "d64_cached", "d128_cached"):
            package = PackageSpec(workload=f"lookup_{tables}", weights=weights)
            for threads in (1, 2):
                name = f"{weights}_{tables}_{threads}t"
                compare_lookups(bench, name, package, threads=threads)


def compare_lookups(
    bench: Bench,
    name: str,
    package: PackageSpec,
    *,
    bags: int = 512,
    length: int = 20,
    threads: int = 1,
) -> None:
    """Adds rows beside FBGEMM, ours and the probes', and one beside the limit: ``bags`` of each
    table in a batch, with ``length`` ids each. Threads share our batches; with a batch for each, as
    FBGEMM's operator and a server's threads have, a row of its own."""
    tables = workload(package.workload).tables()
    dim, rows = tables[0].embedding_dim, sum(each.num_embeddings for each in tables)
    codes = dim if package.weights == "int8" else dim // 2  # Bytes.
    cores = tuple(range(threads))

    def lookup(kernels: str) -> Child:
        return Child(
            command=lambda checkout: checkout.program(
                "lookup", checkout.package(package), bags, length, threads, kernels
            ),
            cores=cores,
            is_peer=kernels == "fbgemm",
        )

    def limit(kind: str, of_tables: int) -> Child:
        return Child(
            command=lambda checkout: checkout.program(
                "limits", threads, kind, codes, rows, of_tables
            ),
            cores=cores,
        )

    sides: dict[str, Side] = {
        OURS: lookup("embershard"),
        THEIRS: lookup("fbgemm"),
        LIMIT: limit("gather", 1),
    }
    figure = "million_rows_per_second"
    ratios = [
        Ratio(name, figure, OURS, THEIRS),
        Ratio(f"{name}_limit", figure, OURS, LIMIT),
    ]
    for kind, title in PROBES.items():
        if kind == "touch" or (package.weights == "int8" and package.workload.endswith("_cached")):
            sides[title] = limit(kind, len(tables))
            ratios.append(Ratio(f"{name}_{kind}", figure, title, THEIRS))
    if threads > 1:
        sides[EACH] = lookup("each")
        ratios.append(Ratio(f"{name}_each", figure, EACH, THEIRS))
    bench.compare(
        f"{package.weights} D{dim}, {len(tables)} tables, {rows:,} rows together, "
        f"bags: {bags} of {length}, threads: {threads}",
        sides,
        ratios,
    )
