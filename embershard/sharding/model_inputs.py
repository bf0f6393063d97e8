from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch.distributed as dist
from torch import Tensor, nn

from embershard.collectives import collective
from embershard.jagged import KeyedJaggedTensor
from embershard.sharding.collection import ShardedCollection
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.incoming import Incoming
from embershard.sharding.input_dist import InputDist

Path: TypeAlias = tuple[str | int, ...]
"""Name of an argument, then attributes, keys and positions inside it."""

DEPTH = 3
"""Most attributes, keys and positions in a path."""


class Exchange:
    """A started exchange of the inputs of a model's collections."""

    def __init__(self, dist: InputDist, inputs: Sequence[tuple[ShardedCollection, object]]) -> None:
        self.dist, self._inputs = dist, inputs

    @contextmanager
    def placed(self, results: Sequence[Incoming]) -> Iterator[None]:
        """Give each collection its exchanged input while the block runs the model."""
        try:
            for (module, features), incoming in zip(self._inputs, results, strict=True):
                module.started = (features, incoming)
            yield
        finally:
            for module, _ in self._inputs:
                module.started = None


class ModelInputs:
    """Exchanges the inputs of all collections in two collectives, before the model runs.

    The first successful call shows where each collection's input is: an argument, or a member of a
    dataclass, mapping, sequence or object. At the start of the next call, the ranks compare these
    places. A collection exchanges its own input if ranks differ on its place, or if it is not
    called exactly once with such an input.
    """

    def __init__(self, model: nn.Module, env: ShardingEnv) -> None:
        self._env = env
        self._modules = {
            path: module
            for path, module in model.named_modules()
            if isinstance(module, ShardedCollection)
        }
        self._observed: dict[str, Path] | None = None
        """Path of a collection -> place of its input, as seen on this rank."""
        self._agreed: dict[str, Path] | None = None
        """Places that are equal on every rank, in the order of the model. None: not compared
        yet."""

    def compare(self) -> bool:
        """Compare the places on all ranks, unless this was done: a collective. Returns False if
        places are unknown, so that the next call must be observed."""
        if self._agreed is None:
            self._agreed = self._compare()
        return self._agreed is not None

    def start(
        self,
        arguments: Mapping[str, Any],
        *,
        failure: Exception | None = None,
        is_end: bool = False,
    ) -> Exchange:
        """Start to exchange inputs with known places, unless they were exchanged before."""
        inputs = [
            (self._modules[path], _resolve(arguments, place))
            for path, place in (self._agreed or {}).items()
            if self._modules[path].started is None
        ]
        requests = [(module.receiver, features) for module, features in inputs]
        return Exchange(InputDist(self._env, requests, failure=failure, is_end=is_end), inputs)

    @contextmanager
    def exchanged(self, arguments: Mapping[str, Any]) -> Iterator[None]:
        """Exchange the inputs of a call that the block makes. Raises InputError if the batch of
        some rank is bad: the same message on every rank."""
        if not self.compare():
            with self.observed(arguments):
                yield
        elif all(self._modules[path].started is not None for path in self._agreed or {}):
            yield
        else:
            exchange = self.start(arguments)
            with exchange.placed(exchange.dist.finish()):
                yield

    @contextmanager
    def observed(self, arguments: Mapping[str, Any]) -> Iterator[None]:
        """Record the places of the inputs while the block runs the model with these arguments."""
        calls = dict[nn.Module, list[list[Path]]]()
        places = list(_places(arguments))

        def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            values = [*args, *kwargs.values()]
            paths = [path for path, kjt in places if any(kjt is value for value in values)]
            calls.setdefault(module, []).append(paths)

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
            if [len(paths) for paths in calls.get(module, [])] == [1]
        }

    def _compare(self) -> dict[str, Path] | None:
        """Places that all ranks saw, or None if some rank saw none yet."""
        places_of_ranks = [self._observed] * self._env.world_size
        with collective(self._env.process_group):
            dist.all_gather_object(places_of_ranks, self._observed, group=self._env.process_group)
        observed = [places for places in places_of_ranks if places is not None]
        if len(observed) < len(places_of_ranks):
            return None
        return {
            path: place
            for path, place in observed[0].items()
            if all(places.get(path) == place for places in observed)
        }


def _places(value: object, place: Path = ()) -> Iterator[tuple[Path, KeyedJaggedTensor]]:
    if isinstance(value, KeyedJaggedTensor):
        yield place, value
    elif len(place) <= DEPTH:
        for name, member in _members(value).items():
            yield from _places(member, (*place, name))


def _resolve(value: object, place: Path) -> object:
    for name in place:
        value = _members(value).get(name)
    return value


def _members(value: object) -> Mapping[Any, object]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, Tensor | nn.Module | type):
        return {}
    slots = [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ())]
    names = [*slots, *getattr(value, "__dict__", ())]
    return {name: getattr(value, name, None) for name in names if not name.startswith("__")}
