"""The backward pass of fused tables on CPU against plain torch, and its errors."""

import gc
import importlib.util
import weakref

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer, FusedTables, build_fused_tables
from embershard.kernels.fused_torch import TorchFusedTables
from embershard.kernels.row_update import _load_operators
from tests.cases import cases, refused

CPU = torch.device("cpu")
POOLED = [(100, 16), (7, 20), (5000, 64), (50, 8)]
SEQUENCES = [(100, 16), (7, 16), (5000, 16), (50, 16)]
LOOKUPS = [0, 0, 1, 2, 2, 3]
EXAMPLES = 37


def random_batch(seed, most_ids=5):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, most_ids, (len(LOOKUPS), EXAMPLES), generator=generator)
    rows = [
        torch.randint(0, POOLED[table][0], (int(lengths[lookup].sum()),), generator=generator)
        for lookup, table in enumerate(LOOKUPS)
    ]
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.flatten().cumsum(0)])
    return torch.cat(rows), offsets, generator


def train(tables, *, pooled, weighted, steps=3, most_ids=5):
    """Outputs, and gradients of the ids' weights, of each step."""
    generator = torch.Generator().manual_seed(1)
    for weight in tables.weights:
        weight.copy_(torch.randn(weight.shape, generator=generator))
    tensors = []
    for seed in range(steps):
        rows, offsets, generator = random_batch(seed, most_ids)
        weights = torch.rand(len(rows), generator=generator).requires_grad_() if weighted else None
        output = tables.lookup(rows, offsets, weights) if pooled else tables.gather(rows, offsets)
        output.backward(torch.randn(output.shape, generator=generator))
        tensors += [output.detach(), *([] if weights is None else [weights.grad])]
    return tensors


@cases(
    ("name", "dtype"),
    {
        f"{name}, {dtype}".replace("torch.", ""): (name, dtype)
        for name in ("sgd", "rowwise_adagrad", "adagrad", "ema_rowwise_adagrad")
        for dtype in (torch.float32, torch.float16)
    },
)
@cases(
    ("pooled", "weighted"),
    {"sums": (True, False), "weighted sums": (True, True), "rows": (False, False)},
)
@pytest.mark.parametrize("max_gradient", [None, 0.5])
def test_a_step_is_that_of_plain_torch(name, dtype, pooled, weighted, max_gradient):
    optimizer = FusedOptimizer(
        name=name, learning_rate=0.1, max_gradient=max_gradient, ema_interval=2
    )
    shapes = POOLED if pooled else SEQUENCES
    fused = FusedTables(
        shapes, LOOKUPS, optimizer=optimizer, device=CPU, pooled=pooled, dtype=dtype
    )
    plain = TorchFusedTables(shapes, LOOKUPS, optimizer=optimizer, device=CPU, dtype=dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    trained = train(fused, pooled=pooled, weighted=weighted)
    expected = train(plain, pooled=pooled, weighted=weighted)
    assert_close(trained, expected, rtol=tolerance, atol=tolerance)
    assert_close(fused.weights, plain.weights, rtol=tolerance, atol=tolerance)
    assert_close(fused.states, plain.states, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["sgd", "rowwise_adagrad", "adagrad"])
def test_threads_do_not_change_a_bit(name):
    before = torch.get_num_threads()
    trained = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            tables = FusedTables(POOLED, LOOKUPS, optimizer=FusedOptimizer(name=name), device=CPU)
            train(tables, pooled=True, weighted=False, most_ids=300)
            trained.append([*tables.weights, *(state.get("momentum1") for state in tables.states)])
    finally:
        torch.set_num_threads(before)
    for expected, *others in zip(*trained, strict=True):
        assert all(expected is None or torch.equal(expected, other) for other in others)


def test_a_table_of_too_many_rows_takes_no_memory():
    with refused(InputError, "4294967295 rows", "4294967296"):
        build_fused_tables([(2**32, 4)], [0], optimizer=FusedOptimizer(), device=CPU)


def test_a_build_without_the_operators_says_what_builds_them(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused(ImportError, "_row_update"):
        _load_operators.__wrapped__()


def test_memory_of_tables_is_free_once_nothing_uses_them():
    tables = FusedTables(POOLED, LOOKUPS, optimizer=FusedOptimizer(name="sgd"), device=CPU)
    weights = weakref.ref(tables._kernel)
    train(tables, pooled=True, weighted=False, steps=1)
    gc.disable()
    try:
        del tables
        assert weights() is None
    finally:
        gc.enable()
