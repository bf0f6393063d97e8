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

    def post_load_state_dict(self) -> None:
        for _, each in self._optims:
            each.post_load_state_dict()

    def save_param_groups(self, save: bool) -> None:
        self.defaults["_save_param_groups"] = save
        for _, each in self._optims:
            each.save_param_groups(save)


def _prefixed(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
