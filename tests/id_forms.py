"""Ids in the forms that requests and training data share."""

from collections.abc import Mapping

import numpy as np
import torch

LENGTHS_OF_FORMS: Mapping[str, object] = {
    "values": ([7, 7], [1, 1]),
    "strings": (["ab", "c"], [1, 1]),
    "range": (range(2), [1, 1]),
    "array": (np.array([7, 8]), [1, 1]),
    "tensor": (torch.tensor([7, 8]), [1, 1]),
    "lists": ([[1, 2], [], [3]], [2, 0, 1]),
    "tuples": (((1, 2), ()), [2, 0]),
    "arrays": ([np.array([1, 2]), np.array([3])], [2, 1]),
    "matrix": (np.array([[1, 2], [3, 4]]), [2, 2]),
    "none": ([], []),
}
"""Ids in each form, and the lengths of their lists. A flat list has one id for each example."""
