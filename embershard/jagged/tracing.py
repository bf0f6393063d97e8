"""How jagged tensors take part in torch.fx traces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch.fx
from torch.fx._symbolic_trace import ProxyableClassMeta


class TraceableMeta(ProxyableClassMeta):
    """Metaclass of classes whose construction from traced values is one node of the graph.

    ``torch.fx.ProxyableClassMeta`` does that too, but asks torch whether a trace is running, which
    torch answers with a warning in every user's log. Here the arguments tell.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy((*args, *kwargs.values()))
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", self, args, kwargs)
        return type.__call__(self, *args, **kwargs)


def _first_proxy(values: Iterable[Any]) -> torch.fx.Proxy | None:
    for value in values:
        if isinstance(value, torch.fx.Proxy):
            return value
        if isinstance(value, (list, tuple)):
            inner = _first_proxy(value)
            if inner is not None:
                return inner
    return None
