"""Many clients at once: their requests are merged, and Triton counts what was in them."""

import shutil
import threading

import numpy as np
import pytest
import tritonclient.grpc as triton

from embershard.serving.triton import TritonOptions, write_model_config
from tests.serving.asking import named, random_request
from tests.serving.asking import outputs_of as our_outputs_of
from tests.serving.failures.busy import until
from tests.serving.triton.asking import inputs_of, outputs_of
from tests.serving.triton.running import serving

pytestmark = [pytest.mark.needs_triton, pytest.mark.slow, pytest.mark.timeout(600)]

CLIENTS = 64
ROUNDS = 25
SIZES = [1 + seed % 20 for seed in range(100)]
TOLERANCE = 1e-6
WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def gathering(triton_repository, tmp_path_factory):
    """The ranker, which waits for others even where nothing runs."""
    repository = tmp_path_factory.mktemp("gathering")
    package = shutil.copytree(triton_repository / "ranker" / "1", repository / "ranker" / "1")
    write_model_config(
        package, TritonOptions(threads=1, max_queue_delay_us=20_000, default_timeout_ms=60_000)
    )
    with serving(repository, "ranker") as running:
        yield running


@pytest.fixture(scope="module")
def requests(local):
    """Ragged requests as Triton takes them, and the model's answers to each of them alone."""
    requests = [random_request(size, seed=seed) for seed, size in enumerate(SIZES)]
    expected = [
        our_outputs_of(local.answers([named(request).SerializeToString()])[0])
        for request in requests
    ]
    return [inputs_of(request, is_packed=True) for request in requests], expected


def counted(client):
    (statistics,) = client.get_inference_statistics("ranker", "1").model_stats
    return statistics


def examples_in(statistics):
    """Counts examples. The backend reports them as the size of each batch; Triton's own sum is
    of the requests' first dimensions, which are 1."""
    return sum(
        batch_stat.batch_size * batch_stat.compute_infer.count
        for batch_stat in statistics.batch_stats
    )


def test_64_clients_are_merged_and_counted(gathering, requests):
    inputs, expected = requests
    failures, sent = [], []
    start = threading.Barrier(CLIENTS)

    def ask(first):
        try:
            with triton.InferenceServerClient(gathering.grpc) as client:
                start.wait(WAIT_SECONDS)
                for round_ in range(ROUNDS):
                    place = (first + 7 * round_) % len(inputs)
                    answer = client.infer("ranker", inputs[place], client_timeout=WAIT_SECONDS)
                    sent.append(SIZES[place])
                    got = outputs_of(answer)
                    assert got.keys() == expected[place].keys()
                    for name, values in expected[place].items():
                        np.testing.assert_allclose(
                            got[name], values, rtol=0, atol=TOLERANCE, strict=True
                        )
        except Exception as error:  # Whatever it is, the test must hear of it.
            failures.append(error)

    with triton.InferenceServerClient(gathering.grpc) as client:
        before = counted(client)
        threads = [threading.Thread(target=ask, args=(first,)) for first in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not failures:  # Triton counts a batch after it has sent the answers.
            until(lambda: examples_in(counted(client)) - examples_in(before) == sum(sent))
        after = counted(client)
    assert failures == []
    requests_sent = CLIENTS * ROUNDS
    assert len(sent) == requests_sent
    successes = after.inference_stats.success.count - before.inference_stats.success.count
    batches = after.execution_count - before.execution_count
    assert successes == requests_sent
    assert after.inference_count - before.inference_count == requests_sent
    assert batches <= successes / 4, f"{successes} requests in {batches} batches"
    print(f"{successes} requests of {sum(sent)} examples in {batches} batches")
