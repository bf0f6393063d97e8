"""A workload with request scope off: the same model, the same scores."""

import numpy as np

from benchmarks.workers.local import scores_of
from embershard.export import export_model
from embershard.serving import LocalPredictor
from tests.benchmarks.test_workload_requests import TINY


def test_scores_are_the_same_with_request_scope_off(tmp_path):
    request = TINY.request(np.random.default_rng(0))
    off = TINY.without_scope()
    found = []
    for asked, sent in ((TINY, request), (off, TINY.request_without_scope(request))):
        folder = export_model(asked.model(), asked.schema(), tmp_path / asked.name / "1")
        found.append(scores_of(LocalPredictor(folder, threads=1), sent))

    assert len({each.scope for each in off.sparse}) == 1
    assert len(set(found[0].tolist())) == 3
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
