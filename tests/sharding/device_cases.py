"""Cases that worker processes run on devices; see workers.py."""

from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from sys import modules

import pytest
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from embershard.errors import InputError
from embershard.modules import FusedEmbeddingBagCollection
from embershard.optim import CombinedOptimizer, KeyedOptimizerWrapper
from embershard.sharding import TrainPipelineSparseDist, load_state, save_state
from tests.sharding import processor_cases
from tests.sharding.cases import (
    collection_of,
    features_of,
    load_and_read,
    on_device,
    save_and_read,
    sharded,
    train,
)
from tests.sharding.elsewhere import elsewhere, host_reads, to_cpu
from tests.sharding.pipeline_cases import (
    CPU,
    Batch,
    Model,
    batches_of,
    build,
    drain,
    state_of,
)
from tests.sharding.reference import EPS, LEARNING_RATE, loss_of

CAPTURABLE_ON = "_get_capturable_supported_devices"
"""Name of torch's function that lists devices with capturable optimizers."""


def _on_cuda(env, backend):
    """The ranks with one GPU each for NCCL, or all on the first GPU for gloo."""
    torch.cuda.set_device(0 if backend == "gloo" else env.rank)
    return _ranks_on_cuda(env, backend)


@cache
def _ranks_on_cuda(env, backend):
    if backend == "gloo":
        return replace(env, device=torch.device("cuda", 0))
    ranks = list(range(env.world_size))
    groups = [
        dist.new_group(ranks, backend="nccl", use_local_synchronization=True) for _ in range(3)
    ]
    return replace(
        env,
        process_group=groups[0],
        input_group=groups[1],
        output_group=groups[2],
        device=torch.device("cuda", env.rank),
    )


def _on_cpu(result):
    return tree_map_only(torch.Tensor, lambda value: value.detach().cpu(), result)


def train_on_cuda(env, case, plan, backend):
    return _on_cpu(train(_on_cuda(env, backend), case, plan))


def train_elsewhere(env, case, plan):
    with elsewhere(env) as ranks:
        return to_cpu(train(ranks, case, plan))


def train_with_default_meta(env, case, plan):
    """Trains while torch's default device is meta."""
    with torch.device("meta"):
        return train(env, case, plan)


def load_capturable_elsewhere(env, case, plan, folder):
    """Loads state that Adam saved on CPU into two Adams elsewhere: a capturable one, and a plain
    one for the last parameter. Returns the messages of loading, and the devices of each parameter's
    state."""
    parallel = sharded(env, case, plan)
    adam = two_adams(parallel)
    for parameter in parallel.parameters():
        parameter.grad = torch.ones_like(parameter)
    adam.step()
    save_state(parallel, folder, optimizer=adam, group=env.process_group)
    with elsewhere(env) as ranks, pytest.MonkeyPatch.context() as patch:
        patch.setattr(modules["torch.optim.adam"], CAPTURABLE_ON, lambda: ["lazy"])
        parallel = sharded(ranks, case, plan)
        adam = two_adams(parallel, capturable=True)
        messages = load_state(parallel, folder, optimizer=adam)
        *first, last = (adam.state[parameter] for parameter in parallel.parameters())
        return messages, [
            {key: str(tensor.device) for key, tensor in state.items()} for state in (*first, last)
        ]


def two_adams(parallel, **settings):
    *first, last = parallel.named_parameters()
    return CombinedOptimizer(
        [
            KeyedOptimizerWrapper(
                dict(first), lambda params: torch.optim.Adam(params, foreach=False, **settings)
            ),
            KeyedOptimizerWrapper(dict([last]), torch.optim.Adam),
        ]
    )


def pipeline_of_another_device(env, case, plan):
    with elsewhere(env) as ranks, pytest.raises(InputError) as raised:
        TrainPipelineSparseDist(sharded(ranks, case, plan), None, torch.device("lazy", 1))
    return str(raised.value)


def train_positions_elsewhere(env, case, plan):
    """Results of training with position weights, elsewhere and on CPU."""
    with elsewhere(env) as ranks:
        result = to_cpu(processor_cases.train(ranks, case, plan, is_dict=False))
    return result, processor_cases.train(env, case, plan, is_dict=False)


def reads_of_steps(env, case, plan):
    """Number of host reads in forward and in backward, for each step of a collection."""
    with elsewhere(env) as ranks:
        module = sharded(ranks, case, plan).module["sparse"]
        results = []
        for step in case.batches:
            features = on_device(ranks, features_of(case, step[env.rank]))
            host_reads.clear()
            output = module(features).values()
            forward = len(host_reads)
            output.sum().backward()
            results.append((forward, len(host_reads) - forward))
        return results


def time_elsewhere(env, case, plan):
    with elsewhere(env) as ranks, pytest.raises(InputError) as raised:
        sharded(ranks, case, plan).time_lookups()
    return str(raised.value)


def save_elsewhere(env, case, plan, folder):
    with elsewhere(env) as ranks:
        return to_cpu(save_and_read(ranks, case, plan, folder))


def load_elsewhere(env, case, plan, folder):
    with elsewhere(env) as ranks:
        return to_cpu(load_and_read(ranks, case, plan, folder))


def streams_of_pipeline(env, case, plans):
    """Order of a pipeline's fetches and calls of the model. Checks that only fetches run in the
    stream of inputs."""
    log, inside = [], []

    class Recorded:
        def __init__(self, device):
            assert device == env.device

        @contextmanager
        def entered(self, *, after_model):
            assert after_model == (log.count("model") < 2)  # The queue is empty until then.
            inside.append(True)
            try:
                yield
            finally:
                inside.pop()

        def moved(self, batch):
            assert inside
            log.append("fetch")
            return batch

        def mark(self):
            assert inside
            log.append("mark")

        def leave(self, batch, tensors):
            assert not inside
            assert bool(tensors) == (
                log.count("model") > 0
            )  # The first step exchanges inputs in the model.
            log.append("leave")

    parallel = build(env, case, plans)

    def forward(batch):
        log.append("model")
        return parallel(batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embershard.sharding.pipelines.InputStream", Recorded)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
        pipeline = TrainPipelineSparseDist(parallel, optimizer, CPU, custom_model_fwd=forward)
    drain(pipeline, batches_of(env, case))
    return log


class OfTuples(Model):
    """A model whose batches are tuples, which pipelines copy to a device."""

    def forward(self, batch):
        features, factor = batch
        return super().forward(Batch({"ids": features}, factor))


def piped_and_plain(env, case, plans, backend=None):
    """Outputs and state of a pipeline over batches on the host, and of a plain loop."""
    env = env if backend is None else _on_cuda(env, backend)
    results = []
    for is_piped in (True, False):
        parallel = build(env, case, plans, OfTuples)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
        batches = ((batch.sparse["ids"], batch.factor) for batch in batches_of(env, case))
        if is_piped:
            outputs = drain(TrainPipelineSparseDist(parallel, optimizer, env.device), batches)
        else:
            outputs = []
            for features, factor in batches:
                loss, output = parallel((on_device(env, features), factor))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                outputs.append(output)
        results.append(_on_cpu((outputs, state_of(parallel))))
    return results


def save_on_cuda(env, case, plan, folder, backend):
    return _on_cpu(save_and_read(_on_cuda(env, backend), case, plan, folder))


def sharded_and_whole_on_cuda(env, case, plan, optimizer):
    """Outputs of each step, sharded and whole, for an optimizer that CPU does not have."""
    env = _on_cuda(env, "nccl")
    settings = {"optimizer": optimizer, "learning_rate": LEARNING_RATE, "eps": EPS}
    module = sharded(env, case, plan, settings).module["sparse"]
    whole = FusedEmbeddingBagCollection(
        collection_of(case, "meta").embedding_bag_configs(), **settings, device=env.device
    )
    whole.load_state_dict(collection_of(case).state_dict())
    results = []
    for step, ranks in enumerate(case.batches):
        features = on_device(env, features_of(case, ranks[env.rank]))
        outputs = [collection(features).values() for collection in (module, whole)]
        for output in outputs:
            loss_of(output, step).backward()
        results.append(_on_cpu(outputs))
    return results
