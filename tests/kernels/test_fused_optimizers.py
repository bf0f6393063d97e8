"""Optimizers of fused tables against dense gradients in plain torch, for every kind of table."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer, build_fused_tables
from tests.cases import cases, refused

CPU = torch.device("cpu")
ROWS, EXAMPLES, RATE, EPS = 7, 3, 0.1, 1e-3
SETTINGS = {
    "sgd": {"name": "sgd"},
    "rowwise_adagrad": {"name": "rowwise_adagrad"},
    "adagrad": {"name": "adagrad"},
    "ema_rowwise_adagrad": {
        "name": "ema_rowwise_adagrad", "ema_interval": 2, "ema_start": 3, "ema_coefficient": 0.25
    },
    "clipped": {"name": "sgd", "max_gradient": 0.3},
    "clipped-adagrad": {"name": "adagrad", "max_gradient": 0.3},
}  # fmt: skip
DIMS = [pytest.param([8, 4], id="fbgemm"), pytest.param([6], id="torch"), [4, 6]]


def tables_of(settings, dims, dtype=torch.float32):
    tables = build_fused_tables(
        [(ROWS, dim) for dim in dims],
        list(range(len(dims))),
        optimizer=FusedOptimizer(learning_rate=RATE, eps=EPS, **settings),
        device=CPU,
        dtype=dtype,
    )
    generator = torch.Generator().manual_seed(0)
    for weight in tables.weights:
        weight.copy_(torch.randn(weight.shape, generator=generator))
    return tables


def batches(dims, steps=6):
    """Rows, offsets, weights, and the gradient of the output, for each step."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        lengths = torch.randint(0, 5, (len(dims) * EXAMPLES,), generator=generator)
        total = int(lengths.sum())
        yield (
            torch.randint(ROWS, (total,), generator=generator),
            torch.cat([torch.zeros(1), lengths.cumsum(0)]).long(),
            torch.rand(total, generator=generator),
            torch.randn(EXAMPLES, sum(dims), generator=generator),
        )


class Reference:
    """Tables in float64 that train by dense gradients."""

    def __init__(self, weights, settings):
        self.weights = [weight.double() for weight in weights]
        self.state = [torch.zeros_like(weight) for weight in self.weights]
        self.settings, self.lookups = settings, 0

    def step(self, rows, offsets, weights, upstream):
        """Updates the tables and returns the output from before the update."""
        self.lookups += 1
        self._average()
        leaves = [weight.clone().requires_grad_() for weight in self.weights]
        bags = [
            (weights[first:end, None] * leaves[place // EXAMPLES][rows[first:end]]).sum(0)
            for place, (first, end) in enumerate(pairwise(offsets))
        ]
        columns = [torch.stack(bags[at : at + EXAMPLES]) for at in range(0, len(bags), EXAMPLES)]
        output = torch.cat(columns, dim=1)
        most = self.settings.get("max_gradient", torch.inf)
        output.backward(upstream.double().clamp(-most, most))
        for leaf, weight, state in zip(leaves, self.weights, self.state, strict=True):
            self._update(weight, leaf.grad, state)
        return output.detach()

    def _average(self):
        start, interval = self.settings.get("ema_start", 1 << 30), self.settings.get("ema_interval")
        if self.lookups >= start and self.lookups % interval == 0:
            for weight in self.weights:
                half = weight.shape[1] // 2
                difference = weight[:, :half] - weight[:, half:]
                weight[:, half:] += self.settings["ema_coefficient"] * difference

    def _update(self, weight, gradient, state):
        if self.settings["name"] == "sgd":
            weight -= RATE * gradient
            return
        squares = gradient.square()
        if self.settings["name"] != "adagrad":
            squares = squares.mean(1, keepdim=True).expand_as(squares)
        state += squares
        weight -= RATE * gradient / (state.sqrt() + EPS)


@pytest.mark.parametrize("dims", DIMS)
@cases("settings", SETTINGS)
def test_six_steps_equal_plain_torch(settings, dims):
    tables = tables_of(settings, dims)
    reference = Reference(tables.weights, settings)
    for rows, offsets, weights, upstream in batches(dims):
        with torch.no_grad():  # A lookup without gradients changes nothing.
            tables.lookup(rows, offsets, weights)
        output = tables.lookup(rows, offsets, weights)
        output.backward(upstream)
        expected = reference.step(rows, offsets, weights, upstream)
        assert_close(output.detach().double(), expected, rtol=1e-5, atol=1e-5)
    for table, weight in enumerate(tables.weights):
        assert_close(weight.double(), reference.weights[table], rtol=1e-5, atol=1e-5)
        momentum = tables.states[table].get("momentum1")
        if momentum is not None:
            by_row = momentum.ndim == 1
            state = reference.state[table][:, 0] if by_row else reference.state[table]
            assert_close(momentum.double(), state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("name", ["sgd", "rowwise_adagrad", "adagrad"])
def test_fp16_weights_are_the_fp32_step_rounded(name, dims):
    tables = tables_of({"name": name}, dims, torch.float16)
    for rows, offsets, weights, upstream in batches(dims):
        reference = Reference(tables.weights, {"name": name})
        for table, states in enumerate(tables.states):
            if states:
                by_row = states["momentum1"].ndim == 1
                momentum = states["momentum1"][:, None] if by_row else states["momentum1"]
                reference.state[table] += momentum
        output = tables.lookup(rows, offsets, weights)
        assert output.dtype == torch.float32
        output.backward(upstream)
        expected = reference.step(rows, offsets, weights, upstream)
        assert_close(output.detach().double(), expected, rtol=1e-5, atol=1e-5)
        for table, weight in enumerate(tables.weights):
            assert weight.dtype == torch.float16
            # Gradients are rounded to fp16, too: hence the absolute tolerance.
            assert_close(weight.double(), reference.weights[table], rtol=2**-10, atol=1e-4)


def test_the_step_count_is_state_that_can_be_written():
    settings = {"name": "ema_rowwise_adagrad", "ema_interval": 3}
    tables = tables_of(settings, [4, 6])
    assert [states["steps"].tolist() for states in tables.states] == [[0], [0]]
    before = [weight.clone() for weight in tables.weights]
    for states in tables.states:
        states["steps"].fill_(2)
    tables.lookup(torch.tensor([0]), torch.tensor([0, 1, 1, 1, 1, 1, 1]), None)
    for weight, old in zip(tables.weights, before, strict=True):
        assert not torch.equal(weight, old)


@pytest.mark.parametrize("dims", DIMS)
@cases(
    ("settings", "parts"),
    {
        "adam": ({"name": "adam"}, ["on cpu", "got 'adam'"]),
        "lamb": ({"name": "lamb"}, ["on cpu", "got 'lamb'"]),
        "partial": ({"name": "partial_rowwise_adam"}, ["on cpu", "got 'partial_rowwise_adam'"]),
        "decay": ({"weight_decay": 0.1}, ["weight_decay", "on cpu", "got 0.1"]),
    },
)
def test_what_no_cpu_kernel_does_is_refused_by_name(settings, parts, dims):
    with refused(InputError, *parts):
        tables_of(settings, dims)


def test_an_average_of_an_odd_dim_is_refused():
    with refused(InputError, "ema_rowwise_adagrad", "got [5]"):
        tables_of({"name": "ema_rowwise_adagrad"}, [5])


@pytest.mark.needs_gpu
@pytest.mark.parametrize("kernel", ["fused", "fused_uvm", "fused_uvm_caching"])
@pytest.mark.parametrize("name", ["sgd", "rowwise_adagrad", "adagrad", "adam"])
def test_kernels_of_cuda_place_weights_and_train_alike(kernel, name):
    results = []
    for compute_kernel in ("fused", kernel):
        tables = build_fused_tables(
            [(ROWS, 8)],
            [0],
            optimizer=FusedOptimizer(name=name, learning_rate=RATE, eps=EPS),
            device=torch.device("cuda"),
            compute_kernel=compute_kernel,
        )
        for rows, offsets, weights, upstream in batches([8]):
            *arguments, gradient = (tensor.cuda() for tensor in (rows, offsets, weights, upstream))
            tables.lookup(*arguments).backward(gradient)
        tables.flush()
        results.append(tables.weights[0].cpu())
    assert results[0].any()
    assert_close(results[1], results[0])
