"""Optimizers that run inside the backward pass, seen as one with ``step()``."""

from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import Any, final

from torch import Tensor

from embershard.optim.keyed import KeyedOptimizer


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
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        state: MutableMapping[Any, Any],
        param_groups: Collection[dict[str, Any]],
        apply: Callable[[], None],
    ) -> None:
        super().__init__(params, state, param_groups)
        self._apply = apply

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
