"""``CombinedOptimizer``: several optimizers as one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from embershard.errors import InputError
from embershard.optim.keyed import KeyedOptimizer


class CombinedOptimizer(KeyedOptimizer):
    """Several optimizers as one.

    Args:
        optims: each alone, or after a prefix: parameter ``w`` of ``("dense", optimizer)`` is
            ``dense.w``.

    Raises:
        InputError: two parameters of one name.
    """

    def __init__(self, optims: Sequence[KeyedOptimizer | tuple[str, KeyedOptimizer]]) -> None:
        self._optims = [("", each) if isinstance(each, KeyedOptimizer) else each for each in optims]
        self.defaults = {}
        names = [_prefixed(prefix, name) for prefix, each in self._optims for name in each.params]
        for name, count in Counter(names).items():
            if count > 1:
                raise InputError(f"optimizers: duplicate parameter {name!r}")
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

    def state_dict(self) -> dict[str, Any]:
        """Of all, by name with prefix."""
        found: dict[str, Any] = {"state": {}}
        for prefix, each in self._optims:
            part = each.state_dict()
            found["state"] |= {_prefixed(prefix, name): of for name, of in part["state"].items()}
            if self.defaults["_save_param_groups"]:
                found.setdefault("param_groups", []).extend(
                    group | {"params": [_prefixed(prefix, name) for name in group["params"]]}
                    for group in part["param_groups"]
                )
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """As of ``KeyedOptimizer``; nothing has changed if one of them refuses its part."""
        self.check_state_dict(state_dict)
        for prefix, each in self._optims:
            own = each.state_dict()
            part: dict[str, Any] = {
                "state": {
                    name: state_dict["state"][_prefixed(prefix, name)] for name in own["state"]
                }
            }
            if self.defaults["_save_param_groups"]:
                given = {tuple(of["params"]): of for of in state_dict["param_groups"]}
                part["param_groups"] = [
                    given[tuple(_prefixed(prefix, name) for name in group["params"])]
                    | {"params": group["params"]}
                    for group in own["param_groups"]
                ]
            each.load_state_dict(part)

    def post_load_state_dict(self) -> None:
        for _, each in self._optims:
            each.post_load_state_dict()

    def save_param_groups(self, save: bool) -> None:
        self.defaults["_save_param_groups"] = save
        for _, each in self._optims:
            each.save_param_groups(save)


def _prefixed(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
