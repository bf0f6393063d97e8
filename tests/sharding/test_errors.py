"""Bad input ends on every rank with one message that names the rank, and no rank hangs."""

import re
from enum import Enum

import pytest
import torch

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.kernels import FusedOptimizer
from embershard.modules import EmbeddingBagCollection
from embershard.sharding import (
    CommType,
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    QCommsConfig,
    RowWiseAdagrad,
    ShardingPlan,
    apply_optimizer_in_backward,
    column_wise,
    data_parallel,
    row_wise,
    table_wise,
)
from embershard.sharding.optimizers import (
    optimizer_of,
    optimizer_of_params,
    warn_default_optimizer,
)
from tests.cases import cases
from tests.sharding.cases import collection_of, plan_of
from tests.sharding.error_cases import (
    bad_batch,
    bad_local_size,
    bad_model,
    bad_plan,
    bad_sharder,
    build_with,
    too_many_rows,
)
from tests.sharding.reference import make_case

NAMES = ["u", "v", "i", "v2"]
CASE = make_case(2, sizes=[3, 3], steps=1)


@cases(
    ("batch", "message"),
    {
        "missing-feature": (
            KeyedJaggedTensor(["u"], torch.tensor([1]), lengths=torch.tensor([1])),
            "rank 1: feature 'v' of table 'users': expected it in the input, got ['u']",
        ),
        "row-outside": (
            KeyedJaggedTensor(
                ["u", "v", "i", "v2"],
                torch.tensor([1, 1, 0, 50, 0, 0, 0, 0]),
                lengths=torch.ones(8).long(),
            ),
            "rank 1: feature 'v', table 'users': row 50 at value 1 is not in 0..49, nor -1 for a "
            "zero vector",
        ),
        "negative-length": (
            KeyedJaggedTensor(
                ["u", "v", "i", "v2"], torch.tensor([1]), lengths=torch.tensor([1, 1, -1, 0])
            ),
            "rank 1: feature 'i', example 0: expected a length of at least 0, got -1",
        ),
        "ids-that-are-no-integers": (
            KeyedJaggedTensor(NAMES, torch.ones(4), lengths=torch.ones(4).long()),
            f"rank 1: features {NAMES}: values: expected integers of shape [total], got "
            "torch.float32 of shape [4]",
        ),
        "another-device": (
            KeyedJaggedTensor(
                NAMES, torch.ones(4, device="meta").long(), lengths=torch.ones(4).long()
            ),
            "rank 1: features: values: expected a tensor on cpu, got meta",
        ),
        "inverse-indices-of-one-dimension": (
            KeyedJaggedTensor(
                NAMES,
                torch.ones(5).long(),
                lengths=torch.ones(5).long(),
                stride_per_key_per_rank=[[1], [2], [1], [1]],
                inverse_indices=(NAMES, torch.zeros(4).long()),
            ),
            "rank 1: inverse_indices: expected int64 of 2 dimensions, got torch.int64 of 1",
        ),
    },
)
def test_a_bad_batch_on_one_rank_is_one_message_on_all(workers, batch, message):
    results = workers.run(2, bad_batch, CASE, plan_of(CASE, row_wise()), batch)
    assert results == [message, message]


def test_weights_of_ids_that_require_a_gradient_are_refused(workers):
    case = make_case(2, sizes=[3, 3], steps=1, is_weighted=True)
    ids, weights = torch.ones(4).long(), torch.ones(4, requires_grad=True)
    batch = KeyedJaggedTensor(NAMES, ids, weights, lengths=torch.ones(4).long())
    message = (
        "rank 1: weights: expected weights that require no gradient, which sharded training does "
        "not compute; FeatureProcessedEmbeddingBagCollection trains position weights"
    )
    assert workers.run(2, bad_batch, case, plan_of(case, row_wise()), batch) == [message, message]


def test_ranks_with_different_plans_are_refused(workers):
    plans = [plan_of(CASE, table_wise(0)), plan_of(CASE, table_wise(1))]
    results = workers.run(2, bad_plan, CASE, plans)
    assert results[0] == results[1]
    assert results[0].startswith(
        "rank 1: expected the plan and tables of rank 0: module 'sparse': table 'users': "
    )
    first, second = results[0].split(", got module 'sparse': table 'users': ")
    assert first.endswith('"devices":[0]}')
    assert second.endswith('"devices":[1]}')


@cases(
    ("settings", "message"),
    {
        "optimizer": (
            [{"optimizer": "sgd"}, {"optimizer": "adagrad"}],
            "table 'users': optimizer: name sgd, got module 'sparse': table 'users': "
            "optimizer: name adagrad",
        ),
        "its-field": (
            [{"optimizer": "adagrad", "eps": eps} for eps in (1e-8, 1e-6)],
            "table 'users': optimizer: eps 1e-08, got module 'sparse': table 'users': "
            "optimizer: eps 1e-06",
        ),
        "comms": (
            [QCommsConfig(), QCommsConfig(backward_precision=CommType.FP16)],
            "EmbeddingBagCollection: POOLED_EMBEDDINGS_ALL_TO_ALL: backward_precision "
            "CommType.FP32, got module 'sparse': EmbeddingBagCollection: "
            "POOLED_EMBEDDINGS_ALL_TO_ALL: backward_precision CommType.FP16",
        ),
    },
)
def test_sharders_that_differ_by_rank_are_refused_by_the_field(workers, settings, message):
    results = workers.run(2, bad_sharder, CASE, plan_of(CASE, row_wise()), settings)
    expected = f"rank 1: expected the plan and tables of rank 0: module 'sparse': {message}"
    assert results == [expected, expected]


def test_replicas_on_one_rank_only_are_refused_by_the_type(workers):
    plans = [plan_of(CASE, data_parallel()), plan_of(CASE, table_wise(1))]
    message = (
        "rank 1: expected the plan and tables of rank 0: module 'sparse': table 'users': "
        "data_parallel, dense kernel, got module 'sparse': table 'users': table_wise, fused kernel"
    )
    assert workers.run(2, bad_plan, CASE, plans) == [message, message]


def test_a_plan_for_fewer_ranks_is_one_message_on_all(workers):
    plan = plan_of(CASE, table_wise(0), world_size=1)
    message = (
        "rank 0: plan: module 'sparse': expected a plan for world size 2, got one for world size 1"
    )
    assert workers.run(2, bad_plan, CASE, [plan, plan]) == [message, message]


@cases(
    ("plan", "message"),
    {
        "none": (None, "expected the plan and tables of rank 0: a plan, got no plan"),
        "text": ("plan.json", "plan: expected a ShardingPlan, such as .*, got str"),
        "of-a-list": (
            ShardingPlan([{"sparse": {}}]),
            r"plan: expected ShardingPlan\({path of a collection: plan of its tables}\), got list",
        ),
        "of-a-module": (
            ShardingPlan({"sparse": None}),
            "plan: module 'sparse': expected a mapping of .* to ParameterSharding, got NoneType",
        ),
        "of-a-table": (
            ShardingPlan({"sparse": {"users": 5, "items": 5, "words": 5}}),
            "plan: module 'sparse': table 'users': expected a ParameterSharding, got int",
        ),
        "of-no-module": (
            ShardingPlan({"dense": {}}),
            "plan: module 'dense': expected a module of ModuleDict, got none",
        ),
        "of-no-collection": (
            ShardingPlan({"": {}}),
            "plan: module '': expected a module that a sharder can shard, got ModuleDict",
        ),
        "of-nothing": (
            ShardingPlan({}),
            "plan: module 'sparse': expected a plan of its tables, got none",
        ),
    },
)
def test_another_plan_on_one_rank_is_one_message_on_all(workers, plan, message):
    good = ShardingPlan({"sparse": plan_of(CASE, data_parallel())})
    results = workers.run(2, build_with, CASE, [good, plan])
    assert results[0] == results[1]
    assert re.fullmatch(f"rank 1: {message}", results[0])


@cases(
    ("sizes", "message"),
    {
        "differ": ([4, 2, 4, 4], "rank 1: expected the ShardingEnv of rank 0: .* 4, got .* 2"),
        "no-divisor": ([4, 4, 3, 4], "rank 2: local_size: expected a divisor of .* 4, got 3"),
        "on-one-rank": ([None, None, None, 4], "rank 3: expected the .* None, got local_size 4"),
    },
)
def test_a_local_size_of_one_rank_is_one_message_on_all(workers, sizes, message):
    results = workers.run(4, bad_local_size, sizes)
    assert results == [results[0]] * 4
    assert re.fullmatch(message, results[0])


def test_a_model_that_differs_on_one_rank_is_refused(workers):
    results = workers.run(2, bad_model, CASE, plan_of(CASE, table_wise(0)))
    message = (
        "rank 1: expected the plan and tables of rank 0: norm: torch.float32 (2,), "
        "requires_grad=False, got norm: torch.float32 (3,), requires_grad=False"
    )
    assert results == [message, message]


@cases(
    ("rank", "message"),
    {
        "negative": (-1, r"shards\.0\.ranks\.0: expected 0 \.\. 1, got -1"),
        "of-more-ranks": (
            2,
            "^plan: table 'users': expected a plan for world size 2, got a shard on rank 2$",
        ),
    },
)
def test_a_plan_names_ranks_that_there_are(rank, message):
    with pytest.raises(InputError, match=message):
        plan_of(CASE, table_wise(rank))


def test_a_plan_that_does_not_fit_on_one_rank_is_refused_on_all(workers):
    broken = plan_of(CASE, table_wise(0))
    del broken["items"]
    results = workers.run(2, bad_plan, CASE, [plan_of(CASE, table_wise(0)), broken])
    message = "rank 1: plan: module 'sparse': table 'items': expected a sharding, got none"
    assert results == [message, message]


@cases(
    ("settings", "message"),
    {
        "adam": ({"optimizer": "adam"}, "optimizer: expected one of .* on cpu; got 'adam'"),
        "lamb": ({"optimizer": "lamb"}, "optimizer: expected one of .* on cpu; got 'lamb'"),
        "weight-decay": ({"weight_decay": 0.1}, "weight_decay: expected 0 on cpu"),
    },
)
def test_what_has_no_cpu_kernel_is_refused_on_cpu_with_its_table(settings, message):
    sharder = EmbeddingBagCollectionSharder(fused_params=settings)
    module, plan = collection_of(CASE), plan_of(CASE, row_wise())
    with pytest.raises(InputError, match=f"here: table 'users': {message}"):
        sharder.optimizers(module, plan, where="here", device="cpu")
    optimizers = sharder.optimizers(module, plan, where="here", device="cuda")
    assert set(optimizers.values()) == {optimizer_of_params(settings)}


@cases(
    ("settings", "kernel", "setting"),
    {
        "adam": ({"optimizer": "adam"}, "fused", "optimizer 'adam'"),
        "weight-decay": ({"weight_decay": 0.1}, "fused", "weight_decay 0.1"),
        "unified-memory": ({}, "fused_uvm", "compute_kernel 'fused_uvm'"),
    },
)
def test_shards_of_dims_that_only_torch_trains_are_refused(settings, kernel, setting):
    """A table of dim 8 in column shards of 6 and 2."""
    module = collection_of(CASE)
    cut = plan_of(CASE, table_wise(rank=0), users=column_wise(ranks=[0, 1]))["users"]
    odd = [
        shard.model_copy(update={"columns": columns})
        for shard, columns in zip(cut.sharding_spec, [(0, 6), (6, 8)], strict=True)
    ]
    plan = {"users": cut.model_copy(update={"compute_kernel": kernel, "sharding_spec": (*odd,)})}
    sharder = EmbeddingBagCollectionSharder(fused_params=settings)
    with pytest.raises(InputError) as raised:
        sharder.optimizers(module, plan, where="here", device="cuda")
    assert str(raised.value) == (
        f"here: table 'users': {setting}: expected dims that are a multiple of 4, got [2, 6]"
    )


def test_a_shard_of_too_many_rows_on_one_rank_is_refused_on_all(workers):
    message = (
        "rank 0: plan: module 'sparse': table 't': fused tables on cpu: expected at most "
        "4294967295 rows, got a table of 4294967296; shard it by rows"
    )
    assert workers.run(2, too_many_rows) == [message, message]


def test_an_unknown_optimizer_in_backward_is_refused():
    with pytest.raises(InputError) as raised:
        apply_optimizer_in_backward(torch.optim.RMSprop, [], {"lr": 0.1})
    assert str(raised.value) == (
        "optimizer in backward: expected one of SGD, Adagrad, RowWiseAdagrad (on CUDA: Adam, "
        "PartialRowWiseAdam, LAMB); got RMSprop"
    )
    with pytest.raises(InputError) as raised:
        EmbeddingBagCollectionSharder(fused_params={"optimizer": "rmsprop"})
    assert str(raised.value) == (
        "optimizer in backward: expected one of rowwise_adagrad, adagrad, sgd, ema_rowwise_adagrad "
        "(on CUDA: adam, partial_rowwise_adam, lamb); got 'rmsprop'"
    )


@cases(
    ("settings", "message"),
    {
        "other": ({"momentum": 0.9}, r"sgd: expected settings of .*\['momentum'\]"),
        "unused": ({"beta1": 0.9}, r"sgd: expected settings of .*\['beta1'\]"),
        "negative": ({"lr": -1.0}, "learning_rate: .*at least 0, got -1"),
    },
)
def test_unused_optimizer_settings_are_refused_by_name(settings, message):
    with pytest.raises(InputError, match=message):
        EmbeddingBagCollectionSharder(fused_params={"optimizer": "sgd", **settings})


class _FbgemmName(Enum):
    ROWWISE = "exact_row_wise_adagrad"
    EMA = "ema_in_place_row_wise_adagrad"


def test_fused_params_take_the_names_and_settings_of_fbgemm():
    optimizer = optimizer_of_params({"optimizer": _FbgemmName.ROWWISE, "gradient_clipping": True})
    assert optimizer == FusedOptimizer(name="rowwise_adagrad", max_gradient=1.0)
    unclipped = {"optimizer": "exact_sgd", "gradient_clipping": False, "max_gradient": 2.0}
    assert optimizer_of_params(unclipped) == FusedOptimizer(name="sgd")
    average = optimizer_of_params({"optimizer": _FbgemmName.EMA, "ema_interval": 5})
    assert average == FusedOptimizer(name="ema_rowwise_adagrad", ema_interval=5)


def test_fused_params_without_optimizer_are_sgd_and_say_so_once(caplog):
    warn_default_optimizer.cache_clear()
    assert optimizer_of_params({}) == FusedOptimizer(name="sgd")
    optimizer = optimizer_of_params({"learning_rate": 0.5})
    assert optimizer == FusedOptimizer(name="sgd", learning_rate=0.5)
    assert caplog.messages == [
        "fused_params: got no optimizer: tables train by sgd, as in TorchRec; "
        "write optimizer='sgd', or another one such as 'rowwise_adagrad'"
    ]
    optimizer_of_params({"optimizer": "sgd"})
    assert len(caplog.messages) == 1


def test_eps_of_adagrad_in_backward_is_fbgemms_unless_given():
    assert optimizer_of_params({"optimizer": "exact_adagrad"}).eps == 1e-8
    weight = torch.nn.Parameter(torch.ones(1, 4))
    apply_optimizer_in_backward(torch.optim.Adagrad, [weight], {"lr": 0.1})
    assert optimizer_of(weight).eps == 1e-8


def test_a_table_without_an_optimizer_is_refused():
    with pytest.raises(InputError, match="here: table 'users': expected an optimizer in backward"):
        EmbeddingBagCollectionSharder().optimizers(
            collection_of(CASE), plan_of(CASE, row_wise()), where="here", device="cpu"
        )


def test_optimizers_in_backward_are_those_of_the_parameters():
    module: EmbeddingBagCollection = collection_of(CASE)
    weight = module.embedding_bags["users"].weight
    apply_optimizer_in_backward(RowWiseAdagrad, [weight], {"lr": 0.5, "eps": 1e-3})
    expected = FusedOptimizer(name="rowwise_adagrad", learning_rate=0.5, eps=1e-3)
    assert optimizer_of(weight) == expected
    sharder = EmbeddingBagCollectionSharder(fused_params={"optimizer": "sgd", "learning_rate": 0.1})
    optimizers = sharder.optimizers(module, plan_of(CASE, row_wise()), where="here", device="cpu")
    assert optimizers["users"] == expected
    assert optimizers["items"] == FusedOptimizer(name="sgd", learning_rate=0.1)


def test_missing_weights_name_a_feature_that_needs_them(workers):
    case = make_case(2, sizes=[3, 3], steps=1, is_weighted=True)
    batch = KeyedJaggedTensor(NAMES, torch.ones(4).long(), lengths=torch.ones(4).long())
    message = "rank 1: feature 'u': expected weights, got none"
    results = workers.run(2, bad_batch, case, plan_of(case, row_wise()), batch)
    assert results == [message, message]


def test_training_without_a_process_group_is_refused():
    with pytest.raises(InputError) as raised:
        DistributedModelParallel(torch.nn.Linear(1, 1), plan=ShardingPlan())
    assert str(raised.value) == (
        "ShardingEnv: expected an initialized process group, got none; call "
        "torch.distributed.init_process_group('gloo') first, under torchrun"
    )
