"""Runs requests with `LocalPredictor`: ``python -m benchmarks.workers.local JSON``.

The JSON has the fields of `benchmarks.local.Local`, and ``folder``, the package's. ``scores`` is a
file for the first request's scores, or "". Speaks the line protocol of `benchmarks.child`.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.child import serve_blocks
from benchmarks.packages import PackageSpec, Requests
from embershard.package import SampleRequest
from embershard.serving import LocalPredictor


def main(options: dict[str, Any]) -> None:
    package = PackageSpec(**options["requests"].pop("package"))
    folder = Path(options["folder"])
    pool = Requests(package=package, **options["requests"]).arrays()
    runs = len(os.sched_getaffinity(0)) if options["on_each_core"] else 1
    predictors = [
        LocalPredictor(folder, threads=options["threads"], tables=options["tables"])
        for _ in range(runs)
    ]
    if options["scores"]:
        np.save(options["scores"], scores_of(predictors[0], pool[0]))
    batches = merged(pool, examples=options["merge_examples"], requests=options["merge_requests"])

    def block(seconds: float) -> dict[str, float]:
        cpu = time.process_time()
        with ThreadPoolExecutor(runs) as threads:
            calls = [
                threads.submit(
                    run, predictor, batches[place:] + batches[:place], seconds, options["pause_us"]
                )
                for place, predictor in enumerate(predictors)
            ]
            results = [call.result() for call in calls]
        cpu = time.process_time() - cpu
        latencies = np.concatenate([call_seconds for _, call_seconds, _ in results])
        examples = sum(count for count, _, _ in results)
        return {
            "examples_per_second": sum(count / passed for count, _, passed in results),
            "examples_per_cpu_second": examples / cpu,
            "p50_us": float(np.median(latencies)) * 1e6,
            "cpu_ms": cpu / len(latencies) * 1e3,
        }

    serve_blocks(block)


def run(
    predictor: LocalPredictor,
    batches: Sequence[Sequence[SampleRequest]],
    seconds: float,
    pause_us: float,
) -> tuple[int, NDArray[np.float64], float]:
    """Returns the number of examples, the seconds of each call, and the seconds of all."""
    sizes = [sum(request.num_examples for request in batch) for batch in batches]
    examples, latencies, began = 0, list[float](), time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds or not latencies:
        if pause_us:
            time.sleep(pause_us * 1e-6)
        place, called = len(latencies) % len(batches), time.perf_counter()
        answers = predictor.predict_merged(batches[place])
        latencies.append(time.perf_counter() - called)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        examples += sizes[place]
    return examples, np.array(latencies), passed


def merged(
    pool: Sequence[SampleRequest], *, examples: int, requests: int
) -> list[list[SampleRequest]]:
    """Divide requests into batches in order, with at most ``examples`` and ``requests`` each; 0 is
    no limit. A larger request is a batch of its own."""
    batches: list[list[SampleRequest]] = [[]]
    for request in pool:
        batch = batches[-1]
        full = (
            examples
            and sum(other.num_examples for other in batch) + request.num_examples > examples
        )
        if batch and (full or (requests and len(batch) == requests)):
            batches.append([])
        batches[-1].append(request)
    return batches


def scores_of(predictor: LocalPredictor, request: SampleRequest) -> NDArray[np.float32]:
    [answer] = predictor.predict_merged([request])
    if isinstance(answer, Exception):
        raise answer
    [scores] = answer.outputs.values()
    return scores.reshape(-1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
