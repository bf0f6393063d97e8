"""Runs requests through the model in this process: ``python -m benchmarks.workers.local JSON``.

The JSON object holds the fields of `benchmarks.local.Local`, and ``folder``, the package's. Writes
the scores of the first request to ``scores`` if that is given. Blocks as `benchmarks.child` says.
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


def main(given: dict[str, Any]) -> None:
    """Serves blocks until the input ends."""
    package = PackageSpec(**given["requests"].pop("package"))
    folder = Path(given["folder"])
    pool = Requests(package=package, **given["requests"]).arrays()
    runs = len(os.sched_getaffinity(0)) if given["on_each_core"] else 1
    predictors = [
        LocalPredictor(folder, threads=given["threads"], tables=given["tables"])
        for _ in range(runs)
    ]
    if given["scores"]:
        np.save(given["scores"], scores_of(predictors[0], pool[0]))
    batches = merged(pool, examples=given["merge_examples"], requests=given["merge_requests"])

    def block(seconds: float) -> dict[str, float]:
        cpu = time.process_time()
        with ThreadPoolExecutor(runs) as threads:
            calls = [
                threads.submit(
                    run, each, batches[place:] + batches[:place], seconds, given["pause_us"]
                )
                for place, each in enumerate(predictors)
            ]
            done = [each.result() for each in calls]
        cpu = time.process_time() - cpu
        latencies = np.concatenate([each[1] for each in done])
        examples = sum(each[0] for each in done)
        return {
            "examples_per_second": sum(each[0] / each[2] for each in done),
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
    """Batches in turn. Examples, the seconds of each call, and the seconds of all of it."""
    sizes = [sum(each.num_examples for each in batch) for batch in batches]
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
    """Requests in order, in batches of at most so many examples or requests. A larger request is
    a batch of its own. 0: that number is not limited."""
    batches: list[list[SampleRequest]] = [[]]
    for each in pool:
        batch = batches[-1]
        full = examples and sum(one.num_examples for one in batch) + each.num_examples > examples
        if batch and (full or (requests and len(batch) == requests)):
            batches.append([])
        batches[-1].append(each)
    return batches


def scores_of(predictor: LocalPredictor, request: SampleRequest) -> NDArray[np.float32]:
    """The scores of one request."""
    [answer] = predictor.predict_merged([request])
    if isinstance(answer, Exception):
        raise answer
    [scores] = answer.outputs.values()
    return scores.reshape(-1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
