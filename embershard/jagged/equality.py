"""Whether two jagged tensors hold the same examples."""

from __future__ import annotations

import torch
from torch import Tensor

from embershard.jagged.jagged_tensor import JaggedTensor
from embershard.jagged.keyed_jagged_tensor import KeyedJaggedTensor


def jt_is_equal(jt_1: JaggedTensor, jt_2: JaggedTensor) -> bool:
    """The same values, lengths and weights: bit for bit, dtype and device of values included.

    Whether built from lengths or from offsets, and of which integer dtype, makes no difference.
    """
    return (
        _same(jt_1.values(), jt_2.values())
        and _same(jt_1.lengths().to(torch.int64), jt_2.lengths().to(torch.int64))
        and _same_or_none(jt_1.weights_or_none(), jt_2.weights_or_none())
    )


def kjt_is_equal(kjt_1: KeyedJaggedTensor, kjt_2: KeyedJaggedTensor) -> bool:
    """The same keys in the same order, stride, and contents as in ``jt_is_equal``."""
    return (
        kjt_1.keys() == kjt_2.keys()
        and kjt_1.stride() == kjt_2.stride()
        and _same(kjt_1.values(), kjt_2.values())
        and _same(kjt_1.lengths().to(torch.int64), kjt_2.lengths().to(torch.int64))
        and _same_or_none(kjt_1.weights_or_none(), kjt_2.weights_or_none())
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)


def _same_or_none(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return _same(a, b)
