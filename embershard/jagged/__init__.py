"""Jagged tensors: batches in which every example has its own number of values."""

from embershard.jagged.jagged_tensor import JaggedTensor
from embershard.jagged.keyed_jagged_tensor import KeyedJaggedTensor
from embershard.jagged.keyed_tensor import KeyedTensor
from embershard.jagged.validate import jt_is_equal, kjt_is_equal, validate_keyed_jagged_tensor

__all__ = [
    "JaggedTensor",
    "KeyedJaggedTensor",
    "KeyedTensor",
    "jt_is_equal",
    "kjt_is_equal",
    "validate_keyed_jagged_tensor",
]
