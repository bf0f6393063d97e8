"""Two simulated hosts of two ranks each."""

import pytest

from tests.sharding.test_embeddingbag import check_equal, plan_of
from tests.sharding.two_hosts import LOCAL, RANKS, SETTINGS, case_of, results_of_hosts

HOSTS = RANKS // LOCAL


@pytest.fixture(scope="module")
def results(workers):
    """Results of all cases, for each rank."""
    return workers.run(RANKS, results_of_hosts)


def test_hosts_are_those_of_torchrun(results):
    assert [result["local_sizes"] for result in results] == [(LOCAL, None)] * RANKS


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "-".join(map(str, setting)))
def test_training_on_two_hosts_equals_that_of_whole_tables(results, setting):
    kind, *arguments = setting
    case = case_of(*arguments)
    check_equal(case, plan_of(case, kind, RANKS), [result[setting] for result in results])


@pytest.mark.parametrize("direction", [0, 1], ids=["vectors", "gradients"])
def test_one_sum_of_a_host_crosses_in_place_of_one_a_rank(results, direction):
    crossed = {
        name: sum(result[name][direction] for result in results)
        for name in ("reduced", "unreduced", "flat row_wise")
    }
    # 4 examples a rank and 48 columns of float32 go to the 2 ranks of the other host.
    assert crossed["reduced"] == 4 * 48 * 4 * 2
    assert crossed["reduced"] <= 1.05 / LOCAL * crossed["unreduced"]
    assert crossed["reduced"] <= 1.05 / (HOSTS * LOCAL) * crossed["flat row_wise"]
