"""A workload with its user side repeated: the same model, asked the same."""

import numpy as np

from benchmarks.packages import message
from benchmarks.repeated import drop_user, repeat_request, repeat_user
from benchmarks.rows.offline import score_of
from embershard.export import export_model
from embershard.package import Package
from embershard.serving import LocalPredictor
from tests.benchmarks.test_workload_requests import TINY


def test_scores_are_those_of_the_request_with_the_user_side_once(tmp_path):
    request = TINY.request(np.random.default_rng(0))
    repeated = repeat_user(TINY)
    found = []
    for asked, sent in ((TINY, request), (repeated, repeat_request(TINY, request))):
        folder = export_model(asked.model(), asked.schema(), tmp_path / asked.name / "1")
        fingerprint = int(Package.open(folder).manifest.fingerprint, 16)
        found.append(score_of(LocalPredictor(folder, threads=1), [message(sent, fingerprint)]))

    assert len({each.scope for each in repeated.sparse}) == 1
    assert len(set(found[0].tolist())) == 3
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_without_a_users_ids_the_candidates_keep_theirs():
    request = TINY.request(np.random.default_rng(0))
    dropped = drop_user(TINY, request)
    kept, start, at = [], 0, 0
    for each in TINY.sparse:
        lists = request.num_examples if each.scope == "example" else 1
        expected = each.ids if each.scope == "example" else 0
        assert (dropped.lengths[at : at + lists] == expected).all()
        if each.scope == "example":
            kept.append(request.values[start : start + lists * each.ids])
        start += lists * each.ids
        at += lists
    assert at == len(dropped.lengths)
    assert (dropped.values == np.concatenate(kept)).all()
    assert len(dropped.values) < len(request.values)
