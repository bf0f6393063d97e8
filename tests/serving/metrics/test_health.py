"""/healthz says whether to send requests."""

import urllib.error
import urllib.request

import pytest

from embershard.serving.metrics import MetricsPort
from tests.serving.metrics.figures import FakeServer


def asked(metrics):
    """Status and words."""
    try:
        with urllib.request.urlopen(f"{metrics.url}healthz", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


@pytest.mark.parametrize(
    ("state", "status"), [("serving", 200), ("failed", 503), ("draining", 503), ("stopped", 503)]
)
def test_health_is_good_while_the_server_serves(state, status):
    with MetricsPort(port=0) as metrics:
        metrics.show(FakeServer(state=state))
        assert asked(metrics) == (status, f"{state}\n")
