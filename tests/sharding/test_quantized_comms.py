"""Vectors and gradients that are sent in fewer bits: the number of bytes, and the error against
float32."""

import pytest
import torch
import torch.distributed as dist

from embershard.errors import InputError
from embershard.sharding import (
    CommType,
    EmbeddingBagCollectionSharder,
    QCommsConfig,
    get_qcomm_codecs_registry,
    row_wise,
    table_wise,
)
from embershard.sharding.vector_exchange import VectorBlock, exchange_vectors
from tests.sharding.cases import (
    collection_of,
    count_exchanges,
    features_of,
    plan_of,
    shard,
    values_of,
)
from tests.sharding.reference import LEARNING_RATE, make_case

CASE = make_case(2, sizes=[5, 3], steps=1)
CASES = {"pooled": CASE, "sequences": make_case(2, sizes=[5, 3], steps=1, is_sequence=True)}
WIDTHS = [8, 8, 16, 8, 8]
"""Widths of the lookups: users twice, items, words twice."""

BYTES_OF_VECTOR = {
    CommType.FP32: lambda width: 4 * width,
    CommType.FP16: lambda width: 2 * width,
    CommType.BF16: lambda width: 2 * width,
    CommType.INT8: lambda width: width + 8,
}

HALF_STEP = {CommType.FP32: 0, CommType.FP16: 2**-11, CommType.BF16: 2**-8, CommType.INT8: 1 / 255}
"""Rounding error, as a share of the largest value. Int8 has 255 steps over at most twice that
value."""


def step(env, case, plan, config):
    """Output, gradients of the shards, and bytes of vectors and of gradients that this rank
    received."""
    comms = None if config is None else get_qcomm_codecs_registry(qcomms_config=config)
    module = shard(env, collection_of(case), plan, comms=comms)
    before = [local_shard.weight.clone() for local_shard in module.local_shards()]
    features = features_of(case, case.batches[0][env.rank])
    with count_exchanges(env.output_group) as forward:
        output = values_of(module(features), features)
    with count_exchanges(env.output_group) as backward:
        factors = torch.linspace(0.5, 1.5, output.numel()).view_as(output)
        (output * factors).sum().backward()
    received = [
        sum(call[0].numel() * call[0].element_size() for call in calls)
        for calls in (forward, backward)
    ]
    gradients = [
        (old - local_shard.weight) / LEARNING_RATE
        for old, local_shard in zip(before, module.local_shards(), strict=True)
    ]
    return output.detach(), gradients, received


@pytest.mark.parametrize("precision", list(CommType), ids=str)
def test_bytes_are_those_of_the_precision(workers, precision):
    config = QCommsConfig(forward_precision=precision, backward_precision=precision)
    results = workers.run(2, step, CASE, plan_of(CASE, table_wise(rank=0)), config)
    of_example = sum(BYTES_OF_VECTOR[precision](width) for width in WIDTHS)
    # Vectors of 5 and 3 examples go to their ranks. Gradients of all 8 go to rank 0.
    assert [received for *_, received in results] == [
        [5 * of_example, 8 * of_example],
        [3 * of_example, 0],
    ]


@pytest.mark.parametrize("generator", [table_wise(rank=0), row_wise()], ids=["whole", "cut"])
@pytest.mark.parametrize("precision", list(CommType), ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_vectors_are_within_the_rounding_of_the_precision(workers, case, precision, generator):
    plan = plan_of(case, generator)
    exact = workers.run(2, step, case, plan, None)
    results = workers.run(2, step, case, plan, QCommsConfig(forward_precision=precision))
    largest = max(float(output.abs().max()) for output, *_ in exact)
    parts = len(plan["users"].sharding_spec)
    for (expected, *_), (output, *_) in zip(exact, results, strict=True):
        error = float((output - expected).abs().max())
        assert error <= 2 * parts * HALF_STEP[precision] * largest
        assert (error > 0) == (precision is not CommType.FP32)


@pytest.mark.parametrize("precision", list(CommType), ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gradients_are_within_the_rounding_of_the_precision(workers, case, precision):
    plan = plan_of(case, table_wise(rank=0))
    exact = workers.run(2, step, case, plan, None)[0][1]
    result = workers.run(2, step, case, plan, QCommsConfig(backward_precision=precision))[0][1]
    # A gradient is at most 1.5 / 2 for each use of a row. Each of 8 examples uses a row at most
    # 4 times in each of 2 features.
    errors = [float((a - b).abs().max()) for a, b in zip(exact, result, strict=True)]
    assert max(errors) <= 64 * 0.75 * HALF_STEP[precision]
    assert (max(errors) > 0) == (precision is not CommType.FP32)


def test_a_loss_scale_keeps_small_gradients(workers):
    tiny = 1e-6
    results = [
        workers.run(
            2,
            exchange_value,
            QCommsConfig(backward_precision=CommType.FP16, backward_loss_scale=scale),
            tiny,
        )[0]
        for scale in (None, 2.0**14)
    ]
    unscaled, scaled = (abs(result / tiny - 1) for result in results)
    assert scaled < 2**-10 < unscaled


def exchange_value(env, config, value):
    """Value that arrives after it was sent as a gradient."""
    block = [[VectorBlock(1, (4,))], [VectorBlock(1, (4,))]]
    values = torch.full((8,), value)
    received = exchange_vectors(
        values, block, block, group=env.output_group, comms=config, is_backward=True
    )
    return float(received[0])


def test_int8_vectors_that_are_not_finite_arrive_as_nan(workers):
    results = workers.run(2, exchange_infinite)
    assert all(result.isnan()[:4].all() and result[4:].tolist() == [1.0] * 4 for result in results)


def exchange_infinite(env):
    values = torch.ones(16)
    values[[0, 8]] = float("inf")
    blocks = [[VectorBlock(2, (4,))]] * dist.get_world_size(env.output_group)
    comms = QCommsConfig(forward_precision=CommType.INT8)
    received = exchange_vectors(
        values, blocks, blocks, group=env.output_group, comms=comms, is_backward=False
    )
    return received[:8]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"forward_precision": "fp16"}, "forward_precision: expected a CommType, got 'fp16'"),
        (
            {"backward_loss_scale": 2.0},
            "backward_loss_scale: expected above 0 and with CommType.FP16, got 2.0 with .*FP32",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        QCommsConfig(**settings)


def test_an_unknown_exchange_is_refused():
    with pytest.raises(InputError, match=r"qcomm_codecs_registry: expected some of .*'OTHER'"):
        EmbeddingBagCollectionSharder(qcomm_codecs_registry={"OTHER": QCommsConfig()})
