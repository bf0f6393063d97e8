"""The load tool in the Open Inference Protocol, against the real server."""

from embershard.bench import BenchOptions, LoadOptions, TrafficOptions, run_bench


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
                protocol="oip",
            ),
            traffic=TrafficOptions(examples=((1, 5),), pool_requests=50),
            package=package,
        )
    )
    assert report.result.by_code == {"OK": 200}
    assert report.result.examples_ok > 200
