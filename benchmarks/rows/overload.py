"""*ranking* for a minute at three times its capacity: memory, refusals, goodput and recovery."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.checkout import Checkout
from benchmarks.child import memory_bytes
from benchmarks.harness import Bench, Block, Figures, Ratio, Session, benchmark
from benchmarks.loads import Load
from benchmarks.packages import PackageSpec, Requests
from benchmarks.servers import Serve
from benchmarks.statistics import Bound

CAPACITY_SECONDS: Final = 3.0
RECOVERY_SECONDS: Final = 1.0
"""Time after the overload before the rate is measured again."""

TIMES_CAPACITY: Final = 3.0
DEADLINE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """A closed loop, an open loop at a multiple of its rate, and the closed loop again.

    ==================== ===============================================================
    capacity_per_second  rate of the closed loop before the overload
    ok_per_second        rate of OK answers during the overload
    recovered_per_second rate of the closed loop after the overload
    memory_growth_mib    peak memory minus memory before the overload
    late_percent         DEADLINE_EXCEEDED, unsent requests included, among these and OK answers
    accepted_p99_us      latency of OK answers, from the scheduled time
    refusal_p99_us       latency of refusals, from the time of sending
    ==================== ===============================================================
    """

    load: Load
    """The closed loop. Its seconds are the length of the overload."""

    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> Block:
        send = self.load.started(session, checkout)
        process = self.load.running(session, checkout).process
        closed = replace(self.load.options(), duration_seconds=CAPACITY_SECONDS)

        def block(seconds: float | None) -> Figures:
            capacity = [send(closed).ok_per_second for _ in range(2)][-1]
            overload = replace(
                self.load.options(seconds),
                rate=TIMES_CAPACITY * capacity,
                in_flight=None,
                warmup_seconds=0.0,
                timeout_seconds=DEADLINE_SECONDS,
            )
            resident = memory_bytes(process)
            Path(f"/proc/{process}/clear_refs").write_text("5")  # Resets the peak.
            result = send(overload)
            peak = memory_bytes(process, "VmHWM")
            recovered = send(replace(closed, warmup_seconds=RECOVERY_SECONDS))
            late = result.by_code.get("DEADLINE_EXCEEDED", 0)
            refused = result.by_code.get("RESOURCE_EXHAUSTED", 0)
            return {
                "capacity_per_second": capacity,
                "ok_per_second": result.ok_per_second,
                "recovered_per_second": recovered.ok_per_second,
                "memory_growth_mib": (peak - resident) / 2**20,
                "late_percent": 100 * late / max(late + result.ok, 1),
                "refused_percent": 100 * refused / result.requests,
                "accepted_p99_us": result.latency.percentile_seconds(99) * 1e6,
                "refusal_p99_us": result.refusal.percentile_seconds(99) * 1e6,
                "tool_lag_p99_us": result.lag.percentile_seconds(99) * 1e6,
            }

        return block


@benchmark(by_name_only=True)
def overload_long(bench: Bench) -> None:
    ranking, side, capacity = PackageSpec(workload="ranking"), "overload", "capacity_per_second"
    load = Load(
        server=Serve(package=ranking),
        requests=Requests(package=ranking, examples=200, count=200),
        in_flight=32,
        seconds=60.0,
        all_ok=False,
    )
    bench.compare(
        "*ranking*, 200 candidates, open loop at 3 times the closed-loop rate for 60 s, deadline "
        "100 ms",
        {side: Overload(load=load)},
        [
            Ratio("memory", "memory_growth_mib", side),
            Ratio("accepted_late", "late_percent", side),
            Ratio("accepted_p99", "accepted_p99_us", side),
            Ratio("refusal_p99", "refusal_p99_us", side),
            Ratio("goodput", "ok_per_second", side, side, capacity, bound=Bound(0.8)),
            Ratio("recovery", "recovered_per_second", side, side, capacity, bound=Bound(0.9)),
        ],
        blocks=1,
        warm_up=False,
    )
