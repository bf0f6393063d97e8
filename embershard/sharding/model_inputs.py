"""``ModelInputs``: one exchange for the inputs of all sharded collections of a model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn

from embershard.sharding.embeddingbag import ShardedEmbeddingBagCollection
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.input_dist import InputDist

__all__ = ["ModelInputs"]


class ModelInputs:
    """Exchanges the inputs of all collections in two collectives, before the model runs.

    The first call that succeeds shows which argument of the model's forward each collection looks
    up. At the start of the next call the ranks compare this. A collection on which they differ,
    or that is not called exactly once with an argument, exchanges its input by itself.

    Args:
        model: its collections are sharded.
        env: the ranks.
    """

    def __init__(self, model: nn.Module, env: ShardingEnv) -> None:
        self._env = env
        self._signature = inspect.signature(model.forward)
        self._modules = {
            path: module
            for path, module in model.named_modules()
            if isinstance(module, ShardedEmbeddingBagCollection)
        }
        self._observed: dict[str, str] | None = None
        """Path of a collection -> name of the argument, on this rank."""
        self._agreed: dict[str, str] | None = None
        """The same on every rank, in the order of the model. None: not compared yet."""

    @contextmanager
    def exchanged(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """While the model runs with these arguments.

        Raises:
            InputError: the batch of some rank cannot be looked up: the same message on every rank.
        """
        arguments = self._signature.bind(*args, **kwargs).arguments
        if self._agreed is None:
            self._agreed = self._compare()
        if self._agreed is None:
            with self._observe(arguments):
                yield
            return
        if not self._agreed:
            yield
            return
        modules = [self._modules[path] for path in self._agreed]
        inputs = [arguments.get(name) for name in self._agreed.values()]
        requests = [
            (module.receiver, features) for module, features in zip(modules, inputs, strict=True)
        ]
        found = InputDist(self._env, requests).finish()
        try:
            for module, features, incoming in zip(modules, inputs, found, strict=True):
                module.started = (features, incoming)
            yield
        finally:
            for module in modules:
                module.started = None

    def _compare(self) -> dict[str, str] | None:
        """What all ranks observed; None: some rank observed nothing yet."""
        everyone = [self._observed] * self._env.world_size
        dist.all_gather_object(everyone, self._observed, group=self._env.process_group)
        observed = [each for each in everyone if each is not None]
        if len(observed) < len(everyone):
            return None
        return {
            path: name
            for path, name in observed[0].items()
            if all(each.get(path) == name for each in observed)
        }

    @contextmanager
    def _observe(self, arguments: Mapping[str, Any]) -> Iterator[None]:
        calls = dict[nn.Module, list[list[str]]]()

        def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = [*args, *kwargs.values()]
            names = [name for name, each in arguments.items() if any(each is g for g in given)]
            calls.setdefault(module, []).append(names)

        hooks = [
            module.register_forward_pre_hook(record, with_kwargs=True)
            for module in self._modules.values()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        self._observed = {
            path: calls[module][0][0]
            for path, module in self._modules.items()
            if [len(names) for names in calls.get(module, [])] == [1]
        }
