"""The load tool in TorchRec's protocol, against the real server."""

from embershard.bench import BenchOptions, LoadOptions, TrafficOptions, run_bench

RANGES = {"user": (0, 999), "query": (0, 999), "item": (100, 159), "history": (100, 159)}
"""Ranges of ids, for inputs some of whose other ids have more than 32 bits."""


def test_a_bench_is_answered_well(server, package):
    report = run_bench(
        BenchOptions(
            target=server.address,
            load=LoadOptions(
                in_flight=4,
                max_requests=200,
                warmup_seconds=0,
                duration_seconds=60,
                timeout_seconds=60,
                protocol="torchrec",
            ),
            traffic=TrafficOptions(examples=((1, 5),), pool_requests=50),
            package=package,
            id_ranges=RANGES,
        )
    )
    assert report.result.by_code == {"OK": 200}
    assert report.result.examples_ok > 200
