"""A workload with request scope off has the same model and the same scores."""

import numpy as np

from benchmarks.workers.local import scores_of
from embershard.export import export_model
from embershard.serving import LocalPredictor
from tests.benchmarks.test_workload_requests import TINY


def test_scores_are_the_same_with_request_scope_off(tmp_path):
    request = TINY.request(np.random.default_rng(0))
    off = TINY.without_scope()
    results = []
    for requests, sent in ((TINY, request), (off, TINY.request_without_scope(request))):
        folder = export_model(requests.model(), requests.schema(), tmp_path / requests.name / "1")
        results.append(scores_of(LocalPredictor(folder, threads=1), sent))

    assert len({feature.scope for feature in off.sparse}) == 1
    assert len(set(results[0].tolist())) == 3
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
