from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from embershard.collectives import collective
from embershard.errors import InputError
from embershard.modules.in_batch import InBatchSoftmax
from embershard.optim import CombinedOptimizer
from embershard.optim.clipping import tell_shards
from embershard.sharding.collection import ShardedCollection
from embershard.sharding.default_plan import default_plan
from embershard.sharding.devices import checked_device
from embershard.sharding.environment import ShardingEnv, agree
from embershard.sharding.hosted_towers import HostedTowers, connect_towers
from embershard.sharding.model_inputs import ModelInputs
from embershard.sharding.plan_checks import chosen_sharders
from embershard.sharding.sharders import Sharder, get_default_sharders
from embershard.sharding.tables import LookupClock
from embershard.sharding.types import ShardingPlan, tables_of
from embershard.sharding.whole_batch import gather_batch


class DistributedModelParallel(nn.Module):
    """Trains a model on all ranks, with sharded collections and a replicated dense part.

    Build it on every rank with the same model and plan. It replaces the collections of ``module``
    and copies all other weights from rank 0. Each ``backward()`` ends with one all-reduce that
    averages the gradients of replicated parameters. Freeze or unfreeze parameters on every rank
    before the same ``forward()``.

    Args:
        module: model on CPU; collections may be on device meta. The replicated part moves to the
            device.
        env: the ranks. None: torch.distributed's default group.
        device: device of shards and batches: cpu or cuda; cuda with several ranks is experimental.
            None: that of ``env``, by default cpu.
        plan: plan of each collection by its path in ``module``. None: ``EmbeddingShardingPlanner``
            makes one by its defaults, and rank 0 prints its report.
        sharders: sharders of the collections. None: one of each kind, without ``fused_params``.
        seed: seed of new weights of collections on device meta.
        count_accesses: True to count the lookups of each row in training, for ``access_counts()``.

    Raises:
        InputError: an unavailable device; no plan was found; the plan does not fit the model or the
            ranks, or differs between ranks: the same message on every rank, with the rank's number.
    """

    def __init__(
        self,
        module: nn.Module,
        env: ShardingEnv | None = None,
        device: torch.device | str | None = None,
        plan: ShardingPlan | None = None,
        sharders: Sequence[Sharder] | None = None,
        *,
        seed: int = 0,
        count_accesses: bool = False,
    ) -> None:
        super().__init__()
        env = env or ShardingEnv.from_process_group(dist.group.WORLD)
        wanted, ranks = env.device if device is None else device, env.world_size
        plan_lines = ["no plan" if plan is None else "a plan"]
        checked = agree(
            env.process_group, lambda: checked_device(wanted, ranks), lambda _: plan_lines
        )
        env = replace(env, device=checked)
        sharders = get_default_sharders() if sharders is None else sharders
        if plan is None:
            plan = default_plan(module, sharders, env, count_accesses=count_accesses)
        settings = f"seed={seed}, count_accesses={count_accesses}"
        chosen = chosen_sharders(module, plan, sharders, env, settings=settings)
        self._env, self._plan, self._counts_accesses = env, plan, count_accesses
        for path, sharder in chosen.items():
            collection = module.get_submodule(path)
            sharded = sharder.shard(collection, plan.plan[path], env, where=path, seed=seed)
            if not path:
                module = sharded
                continue
            module.set_submodule(path, sharded)
        self.module = module.to(env.device)
        for softmax in self.module.modules():
            if isinstance(softmax, InBatchSoftmax) and env.world_size > 1:
                softmax.gather = partial(gather_batch, group=env.process_group)
        self.towers = connect_towers(module, env)
        """Towers that run only on the ranks of their host."""
        self._gradients = _DenseGradients(
            module, env, self.towers, has_shards=_has_dense_shards(plan)
        )
        self._inputs = ModelInputs(module, env)
        if count_accesses:
            for sharded_collection in self.sharded_modules().values():
                sharded_collection.count_accesses()
        self._signature = inspect.signature(module.forward)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model. Every rank calls it with the same kinds of arguments. Raises InputError
        if the batch of some rank is bad: the same message on every rank."""
        self._gradients.begin()
        with self._inputs.exchanged(self._signature.bind(*args, **kwargs).arguments):
            return self.module(*args, **kwargs)

    @property
    def env(self) -> ShardingEnv:
        return self._env

    @property
    def plan(self) -> ShardingPlan:
        return self._plan

    def sharded_modules(self) -> dict[str, ShardedCollection]:
        return {
            path: module
            for path, module in self.module.named_modules()
            if isinstance(module, ShardedCollection)
        }

    @property
    def fused_optimizer(self) -> CombinedOptimizer:
        """Optimizer of this rank's shards in backward, keyed by weight.

        The next lookup reads ``lr`` of its ``param_groups``, so ``WarmupOptimizer`` and schedulers
        can set it. Combine it with the dense part's optimizer in a ``CombinedOptimizer``.
        """
        modules = self.sharded_modules().items()
        return CombinedOptimizer([(path, sharded.fused_optimizer) for path, sharded in modules])

    def time_lookups(self) -> LookupClock:
        """Measure the CPU time of this rank's lookups and updates in training from now on, of
        all collections together. For kernels made of torch operators, the clock misses a part of
        backward. Raises InputError if the tables are not on CPU."""
        if self._env.device.type != "cpu":
            raise InputError(f"time_lookups: expected tables on cpu, got {self._env.device}")
        clock = LookupClock()
        for module in self.sharded_modules().values():
            module.tables.clock = clock
        return clock

    def access_counts(self) -> dict[str, Tensor]:
        """Lookups of each row in training, summed over all ranks: ``<path>.<table>`` -> int64
        ``(num_embeddings,)`` on CPU, the same on every rank. Every rank calls it. Raises InputError
        if they are not counted."""
        if not self._counts_accesses:
            raise InputError("access_counts: expected a model built with count_accesses, got none")
        counts_of_tables = dict[str, Tensor]()
        for path, module in self.sharded_modules().items():
            replicas = module.replica_accesses()
            for table in tables_of(module):
                counts = torch.zeros(
                    table.num_embeddings, dtype=torch.int64, device=self._env.device
                )
                counts += replicas.get(table.name, 0)
                for local in module.local_shards():
                    # Shards with other columns count the same lookups.
                    if local.shard.table == table.name and local.shard.columns[0] == 0:
                        assert local.accesses is not None
                        counts[slice(*local.shard.rows)] += local.accesses
                with collective(self._env.process_group):
                    dist.all_reduce(counts, group=self._env.process_group)
                counts_of_tables[f"{path}.{table.name}" if path else table.name] = counts.cpu()
        return counts_of_tables

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters of the model under its names, with this rank's shards of the dense kernel.
        Fused shards are not parameters."""
        return self.module.named_parameters(prefix, recurse, remove_duplicate)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """State dict of the model under its names, with all tables on every rank.

        A sharded table is a ``ShardedTensor``, also on ranks without a shard of it. Its local
        shards are the weights in use. torch.distributed.checkpoint saves and loads them under any
        plan, as with TorchRec. If there are ``towers``, every rank must call this.
        """
        for hosted in self.towers:
            hosted.gather()
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(  # type: ignore[override]
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> Any:
        """Copy a state dict with shards of the same plan, or with whole tensors. Raises
        RuntimeError for other names if ``strict``, or for tensors that do not fit."""
        return self.module.load_state_dict(state_dict, strict=strict)


class _DenseGradients:
    """Averages gradients of replicated parameters at the end of each backward pass that reaches one
    or a sharded collection, so that all ranks enter the all-reduce. Gradients of towers are
    averaged over the ranks of their host. Gradients of dense shards are averages already."""

    def __init__(
        self,
        module: nn.Module,
        env: ShardingEnv,
        towers: Sequence[HostedTowers],
        *,
        has_shards: bool,
    ) -> None:
        self._env = env
        collections = [
            collection
            for collection in module.modules()
            if isinstance(collection, ShardedCollection)
        ]
        shards = {
            local.parameter
            for collection in collections
            for local in collection.local_shards()
            if local.parameter is not None
        }
        replicas = [parameter for parameter in module.parameters() if parameter not in shards]
        self._hosted = {parameter for hosted in towers for parameter in hosted.parameters(own=True)}
        others = {parameter for hosted in towers for parameter in hosted.parameters(own=False)}
        if has_shards or towers:
            tell_shards(shards, replicas, env.process_group, env.device)
        if towers:
            # Norms must count each tower once: the cross group has one rank of each host.
            tell_shards([*self._hosted, *others], (), env.cross_group, env.device)
        self._replicas = [parameter for parameter in replicas if parameter not in others]
        self._collections = collections
        self._parameters: list[nn.Parameter] = []
        self._is_queued = False
        with torch.no_grad(), collective(env.process_group):
            for tensor in [*replicas, *module.buffers()]:
                dist.broadcast(tensor, group=env.process_group, group_src=0)
        self._register()

    def begin(self) -> None:
        """Forget a backward pass that failed, whose callback autograd dropped, and register
        parameters that were unfrozen."""
        self._is_queued = False
        self._register()

    def _register(self) -> None:
        """Average the replicas that are trainable now or were before."""
        if self._env.world_size == 1:
            return  # The gradients of one rank are the averages.
        known = set(self._parameters)
        trained = [
            parameter
            for parameter in self._replicas
            if parameter.requires_grad or parameter in known
        ]
        if len(trained) == len(known):
            return
        parameter: Any
        for parameter in trained:
            if parameter not in known:
                parameter.register_post_accumulate_grad_hook(self._queue)
        self._parameters = trained
        for collection in self._collections:
            collection.on_gradient = self._queue

    def _queue(self, _: Tensor) -> None:
        if not self._is_queued:
            self._is_queued = True
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._reduce)

    def _reduce(self) -> None:
        self._is_queued = False
        replicas = [parameter for parameter in self._parameters if parameter not in self._hosted]
        _average(replicas, self._env.process_group, self._env.device)
        if hosted := [parameter for parameter in self._parameters if parameter in self._hosted]:
            _average(hosted, self._env.host_group, self._env.device)


@torch.no_grad()
def _average(parameters: Sequence[nn.Parameter], group: Any, device: torch.device) -> None:
    # Flags mark parameters with a gradient, so that one without on every rank keeps none.
    has = [parameter.grad is not None for parameter in parameters]
    gradients = [
        torch.zeros(parameter.numel(), device=device)
        if parameter.grad is None
        else parameter.grad.flatten()
        for parameter in parameters
    ]
    flat = torch.cat([torch.tensor(has, dtype=torch.float32, device=device), *gradients])
    with collective(group):
        dist.all_reduce(flat, group=group)
    flags, values = flat[: len(has)], flat[len(has) :] / dist.get_world_size(group)
    parts = torch.split(values, [parameter.numel() for parameter in parameters])
    # A rank with all gradients needs no flags, and so need not wait for the device.
    flags_here = has if all(has) else flags.cpu().tolist()
    for parameter, part, flag in zip(parameters, parts, flags_here, strict=True):
        if flag:
            parameter.grad = part.view_as(parameter).to(parameter.dtype)


def _has_dense_shards(plan: ShardingPlan) -> bool:
    return any(
        sharding.compute_kernel == "dense" and sharding.sharding_type != "data_parallel"
        for tables in plan.plan.values()
        for sharding in tables.values()
    )
