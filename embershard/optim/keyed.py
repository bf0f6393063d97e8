"""``KeyedOptimizer``: an optimizer whose state dict goes by the parameters' names; what wraps and
joins them."""

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
    """An optimizer whose state dict has the parameters' names instead of their positions.

    ``state_dict()`` is ``{"state": {name: {key: value}}}``; its tensors are those in use, so a
    checkpoint may be read into them. ``param_groups`` are part of it after
    ``save_param_groups(True)``.

    Args:
        params: by name.
        state: of parameters: what the optimizer keeps, written in place.
        param_groups: as of ``torch.optim.Optimizer``.

    Raises:
        InputError: state of a tensor that is no parameter.
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
        if strangers := [key for key in state if key not in known]:
            raise InputError(
                f"optimizer state: expected that of parameters only, got {len(strangers)} others"
            )

    def _prepare_hooks(self) -> None:
        """What ``torch.optim.Optimizer.__init__`` makes for hooks. That is not called: it makes
        state and groups of its own."""
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
        """By name; see the class. Hooks may change it."""
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        found = self._own_state()
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, found)
            found = found if changed is None else changed
        return found

    def _own_state(self) -> dict[str, Any]:
        """The state dict without hooks."""
        own: dict[str, Any] = {"state": self._named_state()}
        if self.defaults["_save_param_groups"]:
            names = {parameter: name for name, parameter in self.params.items()}
            own["param_groups"] = [_named(group, names) for group in self.param_groups]
        return own

    def _named_state(self) -> dict[str, Any]:
        """The state by parameter name."""
        names = {parameter: name for name, parameter in self.params.items()}
        return {names[parameter]: state for parameter, state in self.state.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Copy a state dict into the tensors in use.

        Call ``init_state()`` first if the optimizer makes its state in the first step.

        Raises:
            InputError: other parameters, keys, shapes or groups. Nothing has changed then.
        """
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            changed = before(self, dict(state_dict))
            state_dict = state_dict if changed is None else changed
        self.check_state_dict(state_dict)
        for name, states in self._named_state().items():
            for key, value in states.items():
                given = state_dict["state"][name][key]
                if isinstance(value, ShardedTensor):
                    pieces = local_pieces(given)
                    for offsets, piece in local_pieces(value).items():
                        piece.detach().copy_(pieces[offsets])
                elif isinstance(value, Tensor):
                    value.detach().copy_(given)
                else:
                    states[key] = deepcopy(given)
        if self.defaults["_save_param_groups"]:
            names = {parameter: name for name, parameter in self.params.items()}
            given_groups = {tuple(each["params"]): each for each in state_dict["param_groups"]}
            for group in self.param_groups:
                given = given_groups[tuple(_named(group, names)["params"])]
                group |= {key: deepcopy(given[key]) for key in group if key != "params"}
        self.post_load_state_dict()
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def check_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse a state dict that ``load_state_dict`` cannot copy.

        Raises:
            InputError: other parameters, keys, shapes or groups.
        """
        own = self._own_state()
        _check_keys("optimizer state", own["state"], state_dict["state"])
        for name, states in own["state"].items():
            given = state_dict["state"][name]
            _check_keys(f"optimizer state of {name!r}", states, given)
            for key, value in states.items():
                if isinstance(value, Tensor) and _shape(value) != _shape(given[key]):
                    raise InputError(
                        f"optimizer state of {name!r}: {key}: expected shape "
                        f"{_shape(value)}, got {_shape(given[key])}"
                    )
        if "param_groups" in own:
            groups = [
                {tuple(each["params"]): each for each in of["param_groups"]}
                for of in (own, {"param_groups": [], **state_dict})
            ]
            _check_keys("optimizer param_groups", *groups)
            for names, group in groups[0].items():
                _check_keys(f"optimizer param_groups of {list(names)}", group, groups[1][names])

    def post_load_state_dict(self) -> None:
        """Called once a state dict is copied."""

    def init_state(self, sparse_grad_parameter_names: Collection[str] | None = None) -> None:
        """Make the state that the optimizer makes in its first step, by one step of size 0 with
        gradients of 0. Parameters stay as they are; they have no gradient afterwards.

        Args:
            sparse_grad_parameter_names: parameters whose gradient is sparse.
        """
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
        """Whether ``param_groups`` are part of the state dict."""
        self.defaults["_save_param_groups"] = save

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: parameters are named when the optimizer is built."""
        raise InputError("add_param_group: expected all parameters when the optimizer is built")


class KeyedOptimizerWrapper(KeyedOptimizer):
    """A ``KeyedOptimizer`` around an optimizer of torch.

    Args:
        params: by name.
        optim_factory: makes the optimizer of a list of parameters.
    """

    def __init__(
        self, params: Mapping[str, Tensor], optim_factory: Callable[[list[Tensor]], Optimizer]
    ) -> None:
        self._optimizer = optim_factory(list(params.values()))
        super().__init__(params, self._optimizer.state, self._optimizer.param_groups)

    @property
    def optimizer(self) -> Optimizer:
        """That of torch."""
        return self._optimizer

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Any = None) -> Any:
        return self._optimizer.step(closure)


class OptimizerWrapper(KeyedOptimizer):
    """A ``KeyedOptimizer`` that adds to what another does; passes everything on.

    Args:
        optimizer: the other.

    Raises:
        InputError: it is not keyed.
    """

    def __init__(self, optimizer: KeyedOptimizer) -> None:
        if not isinstance(optimizer, KeyedOptimizer):
            raise InputError(
                f"{type(self).__name__}: expected a KeyedOptimizer, such as KeyedOptimizerWrapper "
                f"makes of another, got {type(optimizer).__name__}"
            )
        self._prepare_hooks()
        self._optimizer = optimizer
        self.defaults = optimizer.defaults

    @property
    def optimizer(self) -> KeyedOptimizer:
        """The other."""
        return self._optimizer

    @property
    def params(self) -> Mapping[str, Tensor]:  # type: ignore[override]
        """Of the other."""
        return self._optimizer.params

    @property
    def state(self) -> Any:  # type: ignore[override]
        """Of the other."""
        return self._optimizer.state

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        """Of the other."""
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
    """Several optimizers as one.

    Args:
        optims: each alone, or after a prefix: parameter ``w`` of ``("dense", optimizer)`` is
            ``dense.w``.

    Raises:
        InputError: two parameters of one name, or one parameter in two optimizers.
    """

    def __init__(self, optims: Sequence[KeyedOptimizer | tuple[str, KeyedOptimizer]]) -> None:
        self._optims = [("", each) if isinstance(each, KeyedOptimizer) else each for each in optims]
        self._prepare_hooks()
        self.defaults = {}
        names = [_prefixed(prefix, name) for prefix, each in self._optims for name in each.params]
        for name, count in Counter(names).items():
            if count > 1:
                raise InputError(f"optimizers: duplicate parameter {name!r}")
        first = dict[Tensor, str]()
        for name, parameter in self.params.items():
            if first.setdefault(parameter, name) != name:
                raise InputError(
                    f"optimizers: expected each parameter in one optimizer, got {name!r} and "
                    f"{first[parameter]!r}, which are one"
                )
        self.save_param_groups(False)

    @property
    def optimizers(self) -> list[tuple[str, KeyedOptimizer]]:
        """Each with its prefix."""
        return self._optims

    @property
    def params(self) -> Mapping[str, Tensor]:  # type: ignore[override]
        """Of all, by name."""
        return {
            _prefixed(prefix, name): parameter
            for prefix, each in self._optims
            for name, parameter in each.params.items()
        }

    @property
    def state(self) -> Any:  # type: ignore[override]
        """Of all, by parameter: a new dict of the values in use."""
        return {key: value for _, each in self._optims for key, value in each.state.items()}

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        """Of all: a new list of the groups in use."""
        return [group for _, each in self._optims for group in each.param_groups]

    def _named_state(self) -> dict[str, Any]:
        return {
            _prefixed(prefix, name): state
            for prefix, optimizer in self._optims
            for name, state in optimizer._named_state().items()
        }

    def zero_grad(self, set_to_none: bool = True) -> None:
        for _, each in self._optims:
            each.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Any = None) -> Any:
        """Of all, in order.

        Raises:
            InputError: a closure, which each of them would run.
        """
        if closure is not None:
            raise InputError("step: expected no closure with several optimizers, got one")
        for _, each in self._optims:
            each.step(closure)

    def post_load_state_dict(self) -> None:
        for _, each in self._optims:
            each.post_load_state_dict()

    def init_state(self, sparse_grad_parameter_names: Collection[str] | None = None) -> None:
        """Of each, as it does alone: schedules stay where they are.

        Args:
            sparse_grad_parameter_names: with prefixes.
        """
        sparse = set(sparse_grad_parameter_names or ())
        for prefix, each in self._optims:
            each.init_state([name for name in each.params if _prefixed(prefix, name) in sparse])

    def save_param_groups(self, save: bool) -> None:
        self.defaults["_save_param_groups"] = save
        for _, each in self._optims:
            each.save_param_groups(save)


@final
class FusedKeyedOptimizer(KeyedOptimizer):
    """The optimizers of tables that are trained in backward.

    ``step()`` updates nothing: backward has. Its ``param_groups`` are read by the next lookup, so
    that schedulers and ``WarmupOptimizer`` set the learning rate of tables too.

    Args:
        params: weights by name.
        state: of each: what the kernels keep, by name.
        param_groups: those that lookups read: ``lr``, ``eps`` and ``max_gradient``, the bound by
            which the kernel clips gradients, or None.
        apply: passes the groups' learning rates to the kernels.
        named_state: makes the state dict's tensors, by names of whole tables: those of ``state``,
            as ``ShardedTensor``s. None: ``state`` itself.
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
        """Pass the learning rates on; there are no gradients."""
        self._apply()

    def step(self, closure: Any = None) -> Any:
        """Pass the learning rates on.

        Args:
            closure: not called: the pass that it would run has run.
        """
        self._apply()

    def init_state(self, sparse_grad_parameter_names: Collection[str] | None = None) -> None:
        """Nothing: state is there from the beginning."""

    def post_load_state_dict(self) -> None:
        """Pass the learning rates on."""
        self._apply()


def _named(group: Mapping[str, Any], names: Mapping[Tensor, str]) -> dict[str, Any]:
    """A copy of a group, with names in place of parameters."""
    settings = {key: deepcopy(value) for key, value in group.items() if key != "params"}
    return {"params": sorted(names[each] for each in group["params"]), **settings}


def local_pieces(tensor: ShardedTensor) -> dict[tuple[int, ...], Tensor]:
    """The local shards of a tensor, by their offsets."""
    return {tuple(shard.metadata.shard_offsets): shard.tensor for shard in tensor.local_shards()}


def _shape(tensor: Tensor) -> tuple[int, ...] | dict[tuple[int, ...], tuple[int, ...]]:
    """The shape of a plain tensor, or the shapes of the local shards by offset."""
    if isinstance(tensor, ShardedTensor):
        return {offsets: tuple(piece.shape) for offsets, piece in local_pieces(tensor).items()}
    return tuple(tensor.shape)


def _check_keys(where: str, expected: Mapping[Any, Any], given: Mapping[Any, Any]) -> None:
    if expected.keys() != given.keys():
        raise InputError(f"{where}: expected {sorted(expected)}, got {sorted(given)}")


def _prefixed(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
