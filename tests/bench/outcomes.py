"""Results of runs as a test wants them."""

from embershard.bench.result import Distribution, RunResult


def outcome(load, *, ok_per_second, latency_ms=1.0, failed=0):
    """A run of the load's whole duration; every answer took the same time."""
    seconds, latency = load.duration_seconds, round(latency_ms * 1e6)
    ok = round(ok_per_second * seconds)
    return RunResult(
        options=load,
        requests=ok + failed,
        by_code={"OK": ok, "RESOURCE_EXHAUSTED": failed},
        messages={},
        examples_ok=ok,
        latency=Distribution([(latency, latency, ok)] if ok else []),
        lag=Distribution([]),
        refusal=Distribution([]),
        window_seconds=seconds,
        elapsed_seconds=seconds,
        client_cpu_seconds=0,
        server_cpu_seconds=None,
        busiest_thread_share=0,
        cores=2,
    )


class Server:
    """Answers in a millisecond up to a capacity, and in a second above it."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.loads = []

    def run(self, load):
        self.loads.append(load)
        rate = self.capacity if load.rate is None else load.rate
        return outcome(load, ok_per_second=rate, latency_ms=1 if rate <= self.capacity else 1000)
