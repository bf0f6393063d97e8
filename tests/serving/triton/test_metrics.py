"""Triton's own metrics: they count the backend's requests, and no other are there."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.serving.asking import random_request
from tests.serving.failures.busy import until
from tests.serving.triton.asking import inputs_of

pytestmark = pytest.mark.needs_triton

MODEL = {"model": "ranker", "version": "1"}


def families(served):
    with urllib.request.urlopen(f"http://{served.metrics}/metrics", timeout=60) as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def of_the_model(served) -> dict[str, float]:
    """Samples of the ranker, those of one name added up."""
    results: dict[str, float] = {}
    for family in families(served):
        for sample in family.samples:
            if MODEL.items() <= sample.labels.items():
                results[sample.name] = results.get(sample.name, 0) + sample.value
    return results


def test_requests_and_batches_are_counted(served, triton_client):
    before = of_the_model(served)
    for examples in (1, 5, 30):
        triton_client.infer("ranker", inputs_of(random_request(examples)))

    def grown():
        after = of_the_model(served)
        return {name: after[name] - before.get(name, 0) for name in after}

    # Counted after the requests of a batch.
    until(lambda: grown()["nv_inference_exec_count_total"] == 3)
    assert grown()["nv_inference_request_success_total"] == 3
    assert grown()["nv_inference_count_total"] == 3  # Triton sums up first dimensions.
    assert grown()["nv_inference_request_failure_total"] == 0
    for kind in ("request", "queue", "compute_infer"):
        assert grown()[f"nv_inference_{kind}_duration_us_total"] >= 0


def test_only_tritons_own_metrics_are_there(served):
    assert {family.name.split("_")[0] for family in families(served)} == {"nv"}
