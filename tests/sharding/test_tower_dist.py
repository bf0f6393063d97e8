"""Towers on hosts of two ranks each train as in one process."""

import torch
from torch.testing import assert_close

from embershard.sharding import load_state, save_state
from tests.cases import cases
from tests.sharding import tower_cases
from tests.sharding.tower_cases import (
    DIM,
    LOCAL,
    RANKS,
    SIZES,
    adagrad_of,
    batches,
    joined,
    model_of,
    step,
)

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def trained_alone(*, clip=None, variable=False):
    """Trains the same batches in one process. Returns the model, its optimizer, and logits of each
    step."""
    model = model_of(fused=True)
    optimizer = adagrad_of(model, clip)
    logits = [step(model, optimizer, joined(parts), ranks=1) for parts in batches(variable)]
    return model, optimizer, logits


@cases(
    ("kind", "settings"),
    {
        "hosts": ("hosts", {}),
        "requests": ("hosts", {"variable": True}),
        "clipped": ("hosts", {"clip": 0.02}),
        "host-without-towers": ("empty-host", {}),
        "tower-on-two-hosts": ("ranks", {}),
    },
)
def test_towers_train_as_in_one_process(workers, tmp_path, kind, settings):
    alone, optimizer, expected = trained_alone(**settings)
    results = workers.run(RANKS, tower_cases.train, kind, str(tmp_path / "state"), settings)

    for place, logits in enumerate(expected):
        assert_close(torch.cat([steps[place] for steps, *_ in results]), logits, **CLOSE)
    weights = {name: value for name, value in alone.state_dict().items() if "towers." in name}
    for _, towers, hosted in results:
        assert_close(towers, weights, **CLOSE)
        assert hosted == (kind != "ranks")
    loaded = model_of(fused=True)
    loaded_optimizer = adagrad_of(loaded, settings.get("clip"))
    load_state(loaded, tmp_path / "state", optimizer=loaded_optimizer)
    assert_close(dict(loaded.state_dict()), dict(alone.state_dict()), **CLOSE)
    batch = joined(batches()[0])
    for _ in range(2):
        logits = step(loaded, loaded_optimizer, batch, 1)
        assert_close(logits, step(alone, optimizer, batch, 1), **CLOSE)


def test_ranks_train_on_from_the_state_of_one_process(workers, tmp_path):
    alone, optimizer, _ = trained_alone()
    save_state(alone, tmp_path / "state", optimizer=optimizer)
    results = workers.run(RANKS, tower_cases.resume, str(tmp_path / "state"))
    for place, parts in enumerate(batches()[:2]):
        expected = step(alone, optimizer, joined(parts), ranks=1)
        assert_close(torch.cat([steps[place] for steps in results]), expected, **CLOSE)


def test_only_outputs_of_towers_cross_hosts(workers):
    towers, ordinary = (
        sum(workers.run(RANKS, tower_cases.bytes_between_hosts, is_ordinary))
        for is_ordinary in (False, True)
    )
    on_host_0, on_host_1 = sum(SIZES[:LOCAL]), sum(SIZES[LOCAL:])
    # For each example, the other host's tower sends 2 vectors and receives their gradients. It also
    # receives the lengths of features with mean pooling: history and genre, or item.
    lengths = 2 * on_host_0 + on_host_1
    assert towers == 4 * (2 * 2 * DIM * (on_host_0 + on_host_1) + lengths)
    # A vector for each feature of the other host's tower, 3 or 2, and its gradient.
    assert ordinary == 4 * 2 * DIM * (3 * on_host_0 + 2 * on_host_1)
    assert towers < ordinary
