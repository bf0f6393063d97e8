from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from embershard.collectives import collective
from embershard.jagged import KeyedTensor
from embershard.modules.towers import Towers
from embershard.sharding.embeddingbag import ShardedEmbeddingBagCollection
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.host_exchange import HostExchange
from embershard.sharding.tower_dist import host_columns
from embershard.sharding.vector_exchange import distribute

_NO_OPTIMIZERS: Mapping[int, torch.optim.Optimizer] = MappingProxyType({})


class HostedTowers:
    """Runs each tower only on the host of its tables, where its vectors stay. Every rank holds all
    towers and trains those of its host. ``gather`` updates the others."""

    def __init__(
        self,
        towers: Towers,
        collection: ShardedEmbeddingBagCollection,
        env: ShardingEnv,
        hosts: Sequence[int],
    ) -> None:
        assert env.local_size is not None
        self._env, self._local_size = env, env.local_size
        self._towers, self._hosts, own = list(towers), hosts, env.rank // env.local_size
        self._own = [tower for tower, host in zip(towers, hosts, strict=True) if host == own]
        self._vector_dist = collection.stay_on_host()
        columns = host_columns(hosts, env, towers.vectors * towers.dim)
        self._output_dist = HostExchange(env, collection.comms, columns)
        towers.exchange = self._run

    def parameters(self, *, own: bool) -> list[nn.Parameter]:
        return [
            parameter
            for tower in self._towers
            if (tower in self._own) is own
            for parameter in tower.parameters()
        ]

    def gather(self, optimizers: Mapping[int, torch.optim.Optimizer] = _NO_OPTIMIZERS) -> None:
        """Copy the weights of each tower, and their state in ``optimizers`` (by the weights' ids),
        from its host to all ranks. Every rank calls this."""
        for tower, host in zip(self._towers, self._hosts, strict=True):
            trained = [(weight, optimizers.get(id(weight))) for weight in tower.parameters()]
            states = [
                (weight.detach(), inner and inner.state.get(weight)) for weight, inner in trained
            ]
            box = [_to(states, "cpu")]
            with collective(self._env.process_group):
                source = host * self._local_size
                dist.broadcast_object_list(box, group=self._env.process_group, group_src=source)
            if tower in self._own:
                continue
            for (parameter, inner), (weight, state) in zip(trained, box[0], strict=True):
                parameter.detach().copy_(weight)
                if inner is not None and state is not None:
                    inner.state[parameter] = _to(state, parameter.device)

    def _run(self, pooled: KeyedTensor) -> Tensor:
        """Outputs of all towers for this rank's batch; see ``Towers.forward``."""
        examples = self._vector_dist.examples
        # The first part has no columns. With it, ranks without a tower also enter backward's
        # collective.
        outputs = [pooled.values()[:, :0], *(tower(pooled).flatten(1) for tower in self._own)]
        return distribute(torch.cat(outputs, dim=1), self._output_dist, examples)


def connect_towers(module: nn.Module, env: ShardingEnv) -> list[HostedTowers]:
    """Keep towers' vectors on their hosts, if there are several hosts and each tower has all its
    tables on one of them."""
    hosted = list[HostedTowers]()
    for path, towers in module.named_modules():
        if env.local_size is None or not isinstance(towers, Towers):
            continue
        for collection in module.get_submodule(path.rpartition(".")[0]).children():
            if not isinstance(collection, ShardedEmbeddingBagCollection):
                continue
            hosts = _hosts_of(towers, collection, env.local_size)
            if hosts is not None:
                hosted.append(HostedTowers(towers, collection, env, hosts))
    return hosted


def _hosts_of(
    towers: Towers, collection: ShardedEmbeddingBagCollection, local_size: int
) -> list[int] | None:
    """Host of each tower, or None if some tower has tables on several hosts."""
    hosts_of_key, names = dict[str, set[int]](), iter(collection.embedding_names())
    for table in collection.embedding_bag_configs():
        hosts = {rank // local_size for rank in collection.plan[table.name].ranks}
        for _ in table.feature_names:
            hosts_of_key[next(names)] = hosts
    keys_of_towers: list[list[str]] = [tower.keys for tower in list[Any](towers)]
    every = [set[int]().union(*(hosts_of_key[key] for key in keys)) for keys in keys_of_towers]
    return [hosts.pop() for hosts in every] if all(len(hosts) == 1 for hosts in every) else None


def _to(value: Any, device: torch.device | str) -> Any:
    """Copy tensors in lists and dictionaries to a device, except step counts without dimensions."""
    return tree_map(lambda x: x.to(device) if isinstance(x, Tensor) and x.dim() else x, value)
