"""The demo's run on real ratings, with five seeds."""

from pathlib import Path
from statistics import median

import pytest

from embershard.data import DEFAULT_CACHE, load_movielens
from embershard.training import area_under_curve, read_config, train

CONFIG = Path(__file__).parents[2] / "examples/movielens/movielens.toml"
FOLDER = DEFAULT_CACHE.expanduser() / "movielens-100k"
SEEDS = range(5)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_median_of_five_seeds_is_above_the_baseline(tmp_path):
    assert FOLDER.is_dir(), f"needs MovieLens-100K in {FOLDER}: run `make data`, or `make test`"
    movielens = load_movielens(FOLDER)
    config = read_config(CONFIG)

    results = []
    for seed in SEEDS:
        training = config.training.model_copy(update={"seed": seed})
        checkpoint = config.checkpoint.model_copy(update={"folder": str(tmp_path / str(seed))})
        run = config.model_copy(update={"training": training, "checkpoint": checkpoint})
        results.append(train(run, movielens.dataset).test.auc)

    baseline = area_under_curve(movielens.test_baseline, movielens.test.labels)
    print(f"\nmovielens: test AUC {sorted(results)}, median {median(results)}, baseline {baseline}")
    assert baseline == pytest.approx(0.740, abs=0.001)
    assert median(results) >= baseline + 0.002
