"""A model loaded, unloaded and loaded again, a hundred times, while clients ask."""

import json
import shutil
import threading
from collections import Counter

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from embershard.serving.triton import TritonOptions, write_model_config
from tests.serving.asking import random_request
from tests.serving.failures.busy import until
from tests.serving.models import seal
from tests.serving.triton.asking import inputs_of, outputs_of
from tests.serving.triton.running import serving

pytestmark = [pytest.mark.needs_triton, pytest.mark.slow, pytest.mark.timeout(900)]

LOADS = 100
WARM_LOADS = 25
"""Before memory counts: what is kept for the next load is there by then."""

GROWTH_BYTES = 20 << 20
WAIT_SECONDS = 60
GONE = ("StatusCode.UNAVAILABLE", "StatusCode.NOT_FOUND")


class Traffic:
    """Clients on threads of their own, two a model, until the block ends."""

    def __init__(self, address: str, models: list[str]) -> None:
        self.address = address
        self.over = threading.Event()
        self.answers: Counter[tuple[str, str]] = Counter()
        self.failures: list[Exception] = []
        self.threads = [threading.Thread(target=self._ask, args=(model,)) for model in 2 * models]

    def __enter__(self) -> "Traffic":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _ask(self, model: str) -> None:
        inputs = inputs_of(random_request(9))
        expected = None
        try:
            with triton.InferenceServerClient(self.address) as client:
                while not self.over.is_set():
                    try:
                        answer = client.infer(model, inputs, client_timeout=WAIT_SECONDS)
                    except InferenceServerException as error:
                        self.answers[model, str(error.status())] += 1
                        continue
                    self.answers[model, "OK"] += 1
                    got = outputs_of(answer)["score"]
                    expected = got if expected is None else expected
                    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6, strict=True)
        except Exception as error:  # Whatever it is, the test must hear of it.
            self.failures.append(error)


@pytest.fixture
def two_models(package, tmp_path):
    """The ranker under two names: one stays, the other comes and goes."""
    for name in ("stays", "comes"):
        copied = shutil.copytree(package, tmp_path / name / "1")
        manifest = json.loads((copied / "manifest.json").read_text())
        seal(copied, manifest | {"model": name})
        write_model_config(copied, TritonOptions(threads=1, default_timeout_ms=60_000))
    return tmp_path


def test_a_hundred_loads_under_traffic_leave_memory_as_it_was(two_models):
    config = two_models / "comes" / "config.pbtxt"
    with (
        serving(two_models, "stays", "comes") as served,
        triton.InferenceServerClient(served.grpc) as client,
        Traffic(served.grpc, ["stays", "comes"]) as traffic,
    ):
        warm_bytes = 0
        for number in range(LOADS):
            if number % 2:
                client.unload_model("comes")
            else:  # Changed, so that Triton loads it anew beside the one that is served.
                config.write_text(config.read_text() + f"# {number}\n")
            client.load_model("comes", client_timeout=WAIT_SECONDS)
            if number == WARM_LOADS:
                warm_bytes = served.resident_bytes()
        assert client.is_model_ready("comes")
        until(lambda: traffic.answers["stays", "OK"] > 10)
        end_bytes = served.resident_bytes()
        assert served.process.poll() is None
    grown = end_bytes - warm_bytes
    print(f"{warm_bytes >> 20} MiB, grown by {grown / (1 << 20):.1f} MiB; {dict(traffic.answers)}")
    assert traffic.failures == []
    assert grown <= GROWTH_BYTES
    assert {status for model, status in traffic.answers if model == "stays"} == {"OK"}
    assert traffic.answers["comes", "OK"] > 0
    assert {status for model, status in traffic.answers if model == "comes"} <= {"OK", *GONE}


def test_a_changed_configuration_loads_without_a_request_lost(two_models):
    config = two_models / "comes" / "config.pbtxt"
    with (
        serving(two_models, "comes") as served,
        triton.InferenceServerClient(served.grpc) as client,
        Traffic(served.grpc, ["comes"]) as traffic,
    ):
        for number in range(5):
            config.write_text(config.read_text() + f"# {number}\n")
            client.load_model("comes", client_timeout=WAIT_SECONDS)
    assert traffic.failures == []
    assert set(traffic.answers) == {("comes", "OK")}
    assert sum("successfully loaded 'comes'" in line for line in served.log) == 1 + 5
