"""``KeyedOptimizer``, whose state dict is keyed by parameter name, and its wrappers."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from copy import deepcopy
from typing import Any, final

import torch
from torch import Tensor
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.optim import Optimizer

from embershard.errors import InputError


class KeyedOptimizer(Optimizer):
    """An optimizer whose state dict is keyed by parameter name instead of position.

    ``state_dict()`` is ``{"state": {name: {key: value}}}``. Its tensors are those in use, so a
    checkpoint may be read into them. After ``save_param_groups(True)`` it also has
    ``param_groups``.

    Args:
        params: parameters by name.
        state: parameter -> its state, which the optimizer writes in place.
        param_groups: groups as in ``torch.optim.Optimizer``.

    Raises:
        InputError: state of a tensor that is not a parameter.
    """

    params: Mapping[str, Tensor]
    state: Any
    param_groups: Any
    defaults: dict[str, Any]

    def __init__(
        self,
        params: Mapping[str, Tensor],
        state: MutableMapping[Any, Any],
        param_groups: Collection[dict[str, Any]],
    ) -> None:
        self._prepare_hooks()
        self.params, self.state, self.param_groups = params, state, param_groups
        self.defaults = {"_save_param_groups": False}
        known = set(params.values())
        if unknown := [key for key in state if key not in known]:
            raise InputError(
                f"optimizer state: expected a parameter for each entry, got {len(unknown)} entries "
                "without one"
            )

    def _prepare_hooks(self) -> None:
        """Make the attributes that hooks need. ``torch.optim.Optimizer.__init__`` is not called,
        since it would replace state and groups."""
        self._optimizer_step_pre_hooks = OrderedDict()
        self._optimizer_step_post_hooks = OrderedDict()
        self._optimizer_state_dict_pre_hooks = OrderedDict()
        self._optimizer_state_dict_post_hooks = OrderedDict()
        self._optimizer_load_state_dict_pre_hooks = OrderedDict()
        self._optimizer_load_state_dict_post_hooks = OrderedDict()
        self._patch_step_function()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self.params)})"

    def state_dict(self) -> dict[str, Any]:
        """The state dict that the class describes. Hooks may change it."""
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        state_dict = self._own_state()
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    def _own_state(self) -> dict[str, Any]:
        own: dict[str, Any] = {"state": self._named_state()}
        if self.defaults["_save_param_groups"]:
            names = {parameter: name for name, parameter in self.params.items()}
            own["param_groups"] = [_named(group, names) for group in self.param_groups]
        return own

    def _named_state(self) -> dict[str, Any]:
        names = {parameter: name for name, parameter in self.params.items()}
        return {names[parameter]: state for parameter, state in self.state.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Copy a state dict into the tensors in use. If the optimizer makes its state in the first
        step, call ``init_state()`` first. Raises InputError for other parameters, keys, shapes or
        groups. Nothing has changed then."""
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            changed = before(self, dict(state_dict))
            state_dict = state_dict if changed is None else changed
        self.check_state_dict(state_dict)
        for name, states in self._named_state().items():
            for key, value in states.items():
                loaded = state_dict["state"][name][key]
                if isinstance(value, ShardedTensor):
                    pieces = local_pieces(loaded)
                    for offsets, piece in local_pieces(value).items():
                        piece.detach().copy_(pieces[offsets])
                elif isinstance(value, Tensor):
                    value.detach().copy_(loaded)
                else:
                    states[key] = deepcopy(loaded)
        if self.defaults["_save_param_groups"]:
            names = {parameter: name for name, parameter in self.params.items()}
            loaded_groups = {tuple(group["params"]): group for group in state_dict["param_groups"]}
            for group in self.param_groups:
                loaded = loaded_groups[tuple(_named(group, names)["params"])]
                group |= {key: deepcopy(loaded[key]) for key in group if key != "params"}
        self.post_load_state_dict()
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def check_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse a state dict that ``load_state_dict`` cannot copy; raises InputError."""
        own = self._own_state()
        _check_keys("optimizer state", own["state"], state_dict["state"])
        for name, states in own["state"].items():
            loaded = state_dict["state"][name]
            _check_keys(f"optimizer state of {name!r}", states, loaded)
            for key, value in states.items():
                if isinstance(value, Tensor) and _shape(value) != _shape(loaded[key]):
                    raise InputError(
                        f"optimizer state of {name!r}: {key}: expected shape "
                        f"{_shape(value)}, got {_shape(loaded[key])}"
                    )
        if "param_groups" in own:
            groups = [
                {tuple(group["params"]): group for group in groups_of["param_groups"]}
                for groups_of in (own, {"param_groups": [], **state_dict})
            ]
            _check_keys("optimizer param_groups", *groups)
            for names, group in groups[0].items():
                _check_keys(f"optimizer param_groups of {list(names)}", group, groups[1][names])

    def post_load_state_dict(self) -> None:
        """Called after a state dict was copied."""

    def init_state(self, sparse_grad_parameter_names: Collection[str] | None = None) -> None:
        """Make the state that is otherwise made in the first step, by a step of size 0 with
        gradients of 0, which are sparse for the named parameters. Parameters do not change; their
        gradients are None afterwards."""
        rates = [group["lr"] for group in self.param_groups]
        for name, parameter in self.params.items():
            if parameter.requires_grad:
                gradient = torch.zeros_like(parameter)
                is_sparse = name in (sparse_grad_parameter_names or ())
                parameter.grad = gradient.to_sparse() if is_sparse else gradient
        for group in self.param_groups:
            group["lr"] = 0.0
        try:
            self.step()
        finally:
            for group, rate in zip(self.param_groups, rates, strict=True):
                group["lr"] = rate
            for parameter in self.params.values():
                parameter.grad = None

    def save_param_groups(self, save: bool) -> None:
        """Include ``param_groups`` in the state dict, or not."""
        self.defaults["_save_param_groups"] = save

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Not supported: parameters are named when the optimizer is built."""
        raise InputError("add_param_group: expected all parameters when the optimizer is built")


class KeyedOptimizerWrapper(KeyedOptimizer):
    """Makes a ``KeyedOptimizer`` of a torch optimizer.

    Args:
        params: parameters by name.
        optim_factory: makes the torch optimizer from a list of parameters.
    """

    def __init__(
        self, params: Mapping[str, Tensor], optim_factory: Callable[[list[Tensor]], Optimizer]
    ) -> None:
        self._optimizer = optim_factory(list(params.values()))
        super().__init__(params, self._optimizer.state, self._optimizer.param_groups)

    @property
    def optimizer(self) -> Optimizer:
        return self._optimizer

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Any = None) -> Any:
        return self._optimizer.step(closure)


class OptimizerWrapper(KeyedOptimizer):
    """Base class of optimizers that extend another ``KeyedOptimizer``. Forwards every call. Raises
    InputError if that one is not keyed."""

    def __init__(self, optimizer: KeyedOptimizer) -> None:
        if not isinstance(optimizer, KeyedOptimizer):
            raise InputError(
                f"{type(self).__name__}: expected a KeyedOptimizer (KeyedOptimizerWrapper makes "
                f"one of a torch optimizer), got {type(optimizer).__name__}"
            )
        self._prepare_hooks()
        self._optimizer = optimizer
        self.defaults = optimizer.defaults

    @property
    def optimizer(self) -> KeyedOptimizer:
        return self._optimizer

    @property
    def params(self) -> Mapping[str, Tensor]:  # type: ignore[override]
        return self._optimizer.params

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self._optimizer.state

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        return self._optimizer.param_groups

    def _named_state(self) -> dict[str, Any]:
        return self._optimizer._named_state()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Any = None) -> Any:
        return self._optimizer.step(closure)

    def post_load_state_dict(self) -> None:
        self._optimizer.post_load_state_dict()

    def init_state(self, sparse_grad_parameter_names: Collection[str] | None = None) -> None:
        self._optimizer.init_state(sparse_grad_parameter_names)

    def save_param_groups(self, save: bool) -> None:
        self._optimizer.save_param_groups(save)


class CombinedOptimizer(KeyedOptimizer):
    """Combines several optimizers into one.

    Args:
        optims: optimizers, each with an optional prefix. Parameter ``w`` of ``("dense",
            optimizer)`` is named ``dense.w``.

    Raises:
        InputError: two parameters with the same name, or one parameter in two optimizers.
    """

    def __init__(self, optims: Sequence[KeyedOptimizer | tuple[str, KeyedOptimizer]]) -> None:
        self._optims = [
            ("", optim) if isinstance(optim, KeyedOptimizer) else optim for optim in optims
        ]
        self._prepare_hooks()
        self.defaults = {}
        names = [_prefixed(prefix, name) for prefix, optim in self._optims for name in optim.params]
        for name, count in Counter(names).items():
            if count > 1:
                raise InputError(f"optimizers: expected distinct names, got {name!r} {count} times")
        first = dict[Tensor, str]()
        for name, parameter in self.params.items():
            if first.setdefault(parameter, name) != name:
                raise InputError(
                    f"optimizers: expected each parameter in one optimizer, got the same parameter "
                    f"as {first[parameter]!r} and as {name!r}"
                )
        self.save_param_groups(False)

    @property
    def optimizers(self) -> list[tuple[str, KeyedOptimizer]]:
        return self._optims

    @property
    def params(self) -> Mapping[str, Tensor]:  # type: ignore[override]
        return {
            _prefixed(prefix, name): parameter
            for prefix, optim in self._optims
            for name, parameter in optim.params.items()
        }

    @property
    def state(self) -> Any:  # type: ignore[override]
        """State of all optimizers: a new dict of the values in use."""
        return {key: value for _, optim in self._optims for key, value in optim.state.items()}

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        """Groups of all optimizers: a new list of the groups in use."""
        return [group for _, optim in self._optims for group in optim.param_groups]

    def _named_state(self) -> dict[str, Any]:
        return {
            _prefixed(prefix, name): state
            for prefix, optimizer in self._optims
            for name, state in optimizer._named_state().items()
        }

    def zero_grad(self, set_to_none: bool = True) -> None:
        for _, optim in self._optims:
            optim.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Any = None) -> Any:
        """Step all optimizers, in order. Raises InputError for a closure, which would run several
        times."""
        if closure is not None:
            raise InputError("step: expected no closure with several optimizers, got one")
        for _, optim in self._optims:
            optim.step(closure)

    def post_load_state_dict(self) -> None:
        for _, optim in self._optims:
            optim.post_load_state_dict()

    def init_state(self, sparse_grad_parameter_names: Collection[str] | None = None) -> None:
        """Make the state of each optimizer. ``sparse_grad_parameter_names`` have prefixes. Learning
        rate schedules do not advance."""
        sparse = set(sparse_grad_parameter_names or ())
        for prefix, optim in self._optims:
            optim.init_state([name for name in optim.params if _prefixed(prefix, name) in sparse])

    def save_param_groups(self, save: bool) -> None:
        self.defaults["_save_param_groups"] = save
        for _, optim in self._optims:
            optim.save_param_groups(save)


@final
class FusedKeyedOptimizer(KeyedOptimizer):
    """Represents the optimizers that update tables in backward.

    ``step()`` updates no table. The next lookup reads ``param_groups``, so that schedulers and
    ``WarmupOptimizer`` also set the learning rate of tables.

    Args:
        params: weights by name.
        state: table weights -> state that the kernels keep, by name.
        param_groups: groups with ``lr``, ``eps`` and ``max_gradient``, the bound by which the
            kernel clips gradients, or None.
        apply: passes the groups' learning rates to the kernels.
        named_state: makes the state dict's tensors by names of whole tables, as ``ShardedTensor``s.
            None: use ``state``.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        state: MutableMapping[Any, Any],
        param_groups: Collection[dict[str, Any]],
        apply: Callable[[], None],
        named_state: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(params, state, param_groups)
        self._apply, self._make_named_state = apply, named_state

    def _named_state(self) -> dict[str, Any]:
        make = self._make_named_state
        return super()._named_state() if make is None else make()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._apply()

    def step(self, closure: Any = None) -> Any:
        """Pass the learning rates on. ``closure`` is not called: backward updates the tables."""
        self._apply()

    def init_state(self, sparse_grad_parameter_names: Collection[str] | None = None) -> None:
        """Does nothing, since state exists from the beginning."""

    def post_load_state_dict(self) -> None:
        self._apply()


def _named(group: Mapping[str, Any], names: Mapping[Tensor, str]) -> dict[str, Any]:
    """A copy of a group with names in place of parameters."""
    settings = {key: deepcopy(value) for key, value in group.items() if key != "params"}
    return {"params": sorted(names[parameter] for parameter in group["params"]), **settings}


def local_pieces(tensor: ShardedTensor) -> dict[tuple[int, ...], Tensor]:
    """Local shards of a tensor by their offsets."""
    return {tuple(shard.metadata.shard_offsets): shard.tensor for shard in tensor.local_shards()}


def _shape(tensor: Tensor) -> tuple[int, ...] | dict[tuple[int, ...], tuple[int, ...]]:
    """Shape of a plain tensor, or shapes of the local shards by offset."""
    if isinstance(tensor, ShardedTensor):
        return {offsets: tuple(piece.shape) for offsets, piece in local_pieces(tensor).items()}
    return tuple(tensor.shape)


def _check_keys(where: str, expected: Mapping[Any, Any], loaded: Mapping[Any, Any]) -> None:
    if expected.keys() != loaded.keys():
        raise InputError(f"{where}: expected {sorted(expected)}, got {sorted(loaded)}")


def _prefixed(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
