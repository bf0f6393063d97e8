"""Cases with pipelines that worker processes run; see workers.py."""

from dataclasses import dataclass

import torch
from torch import nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    EvalPipelineSparseDist,
    ShardingPlan,
    TrainPipelineBase,
    TrainPipelineSparseDist,
)
from tests.sharding.cases import collection_of, count_exchanges, features_of

CPU = torch.device("cpu")
PIPELINES = {
    "base": TrainPipelineBase,
    "sparse": TrainPipelineSparseDist,
    "eval": EvalPipelineSparseDist,
}


@dataclass
class Batch:
    sparse: dict
    factor: float


class Model(nn.Module):
    """Two collections with the same input. Returns loss and output."""

    def __init__(self, case):
        super().__init__()
        self.first, self.second = collection_of(case), collection_of(case)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, batch):
        features = batch.sparse["ids"]
        output = (self.first(features).values() + self.second(features).values()) * self.scale
        return (output**2).sum() * batch.factor, output.detach()


class ComputedInput(Model):
    """A model that computes the input of its first collection, so that it is exchanged in the
    step."""

    def forward(self, batch):
        features = batch.sparse["ids"]
        copy = KeyedJaggedTensor(features.keys(), features.values(), lengths=features.lengths())
        output = (self.first(copy).values() + self.second(features).values()) * self.scale
        return (output**2).sum() * batch.factor, output.detach()


class Scores(Model):
    """Returns only scores, one for each example."""

    def forward(self, batch):
        return super().forward(batch)[1].sum(dim=1).requires_grad_()


class Attached(Model):
    """Returns an output that is not detached."""

    def forward(self, batch):
        loss, _ = super().forward(batch)
        return loss, loss


class Triple(Model):
    """Returns more than the loss and the output."""

    def forward(self, batch):
        return [*super().forward(batch), None]


def build(env, case, plans, kind=Model, *, count_accesses=False, **settings):
    settings = {"optimizer": "rowwise_adagrad", "learning_rate": 0.1, **settings}
    return DistributedModelParallel(
        kind(case),
        env,
        plan=ShardingPlan(dict(zip(["first", "second"], plans, strict=True))),
        sharders=[EmbeddingBagCollectionSharder(fused_params=settings)],
        count_accesses=count_accesses,
    )


def batches_of(env, case):
    for step, ranks in enumerate(case.batches):
        yield Batch({"ids": features_of(case, ranks[env.rank])}, 1 / (step + 1))


def state_of(parallel):
    shards = [
        tensor
        for module in parallel.sharded_modules().values()
        for shard in module.local_shards()
        for tensor in (shard.weight, shard.state["momentum1"])
    ]
    return [*shards, parallel.module.scale.detach()]


def drain(pipeline, batches):
    """Outputs of all batches until the data ends."""
    outputs = []
    while True:
        try:
            outputs.append(pipeline.progress(batches))
        except StopIteration:
            return outputs


def train_two_epochs(env, case, plans, name, kind=Model):
    """Outputs of two epochs and of an evaluation between them, and the final state."""
    parallel = build(env, case, plans, kind)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    outputs = []
    if name == "plain":
        for epoch in range(2):
            for batch in batches_of(env, case):
                optimizer.zero_grad()
                loss, output = parallel(batch)
                loss.backward()
                optimizer.step()
                outputs.append(output)
            if epoch == 0:
                with torch.no_grad():
                    outputs += [parallel(batch)[1] for batch in batches_of(env, case)]
        return outputs, state_of(parallel)
    pipeline = PIPELINES[name](parallel, optimizer, CPU)
    outputs += drain(pipeline, batches_of(env, case))
    outputs += drain(EvalPipelineSparseDist(parallel, optimizer, CPU), batches_of(env, case))
    outputs += drain(pipeline, batches_of(env, case))
    return outputs, state_of(parallel)


def train_detached(env, case, plans, is_detached):
    """Outputs of a pipeline. If ``is_detached``, the model is called by itself after the second
    batch."""
    parallel = build(env, case, plans)
    pipeline = TrainPipelineSparseDist(
        parallel, torch.optim.SGD(parallel.parameters(), lr=0.01), CPU
    )
    source = batches_of(env, case)
    outputs = [pipeline.progress(source) for _ in range(2)]
    if is_detached:
        model = pipeline.detach()
        assert model is parallel
        with torch.no_grad():
            model(next(batches_of(env, case)))
        pipeline.attach(model)
        pipeline.attach()
    return outputs + drain(pipeline, source)


def exchanges_begun(env, case, plans):
    """Number of exchanges of inputs that have begun when each batch is computed."""
    parallel = build(env, case, plans)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    begun = []
    with count_exchanges(env.input_group) as counted:

        def forward(batch):
            begun.append(len(counted))
            return parallel(batch)

        pipeline = TrainPipelineSparseDist(parallel, optimizer, CPU, custom_model_fwd=forward)
        drain(pipeline, batches_of(env, case))
    return begun


def progress_with_fault(env, case, plans, name, fault, at):
    """Message of each call, "" for a step that succeeds. The data of rank 1 has a fault."""
    parallel = build(env, case, plans)
    pipeline = PIPELINES[name](parallel, torch.optim.SGD(parallel.parameters(), lr=0.01), CPU)

    def batches():
        for step, batch in enumerate(batches_of(env, case)):
            if (env.rank, step) == (1, at):
                if fault == "ends":
                    return
                if fault == "raises":
                    raise OSError("disk is gone")
                batch.sparse["ids"].values()[0] = 10**6
            yield batch

    source, messages = batches(), []
    while len(messages) < 2 * len(case.batches):
        try:
            pipeline.progress(source)
            messages.append("")
        except InputError as error:
            messages.append(str(error))
        except StopIteration:
            break
    return messages


def refused_output(env, case, plans, name, kind):
    """Message of a pipeline whose model returns an unusable output."""
    parallel = build(env, case, plans, kind)
    pipeline = PIPELINES[name](parallel, torch.optim.SGD(parallel.parameters(), lr=0.01), CPU)
    try:
        pipeline.progress(batches_of(env, case))
    except InputError as error:
        return str(error)


def evaluate(env, case, plans, name):
    """Runs steps in eval mode. Returns requires_grad of each output, and weights, access counts and
    state of the tables before and after the steps."""
    settings = {"optimizer": "ema_rowwise_adagrad", "ema_interval": 1}
    parallel = build(env, case, plans, kind=Attached, count_accesses=True, **settings)
    parallel.eval()
    pipeline = PIPELINES[name](parallel, torch.optim.SGD(parallel.parameters(), lr=0.01), CPU)
    before = [tensor.clone() for tensor in counted_state_of(parallel)]
    outputs = drain(pipeline, batches_of(env, case))
    return [output.requires_grad for output in outputs], before, counted_state_of(parallel)


def counted_state_of(parallel):
    return [
        tensor
        for module in parallel.sharded_modules().values()
        for shard in module.local_shards()
        for tensor in (shard.weight, shard.accesses, *shard.state.values())
    ]


def train_in_turns(env, case, plans, execute_all_batches):
    """Batches that were computed by the end of the first source, and by the end of the second."""
    parallel = build(env, case, plans)
    computed = []

    def forward(batch):
        computed.append(round(1 / batch.factor) - 1)
        return parallel(batch)

    pipeline = TrainPipelineSparseDist(
        parallel,
        torch.optim.SGD(parallel.parameters(), lr=0.01),
        CPU,
        execute_all_batches,
        custom_model_fwd=forward,
    )
    counts = []
    for _ in range(2):
        drain(pipeline, batches_of(env, case))
        counts.append(list(computed))
    return counts
