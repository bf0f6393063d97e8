"""Operations for ``y[index] = value`` give the result of NumPy."""

import numpy as np
import torch
from torch import fx

from embershard.export.item_assignment import emit_assignment, item_assigned
from tests.cases import cases

BEFORE = np.arange(12, dtype=np.float32).reshape(3, 4)


@cases(
    ("index", "value"),
    {
        "column": ((slice(None), 1), np.full(3, 50.0)),
        "column-number": ((slice(None), 1), 50.0),
        "rows": (np.array([2, 0]), np.full((2, 4), 50.0, np.float32)),
        "rows-number": (np.array([2, 0]), 50.0),
    },
)
def test_an_assignment_gives_a_copy_as_numpy_writes_it(index, value):
    expected = BEFORE.copy()
    expected[index] = value
    graph = fx.Graph()
    tensor, place, new = (graph.placeholder(name) for name in ("tensor", "place", "new"))
    at = place if isinstance(index, np.ndarray) else index
    options = new if isinstance(value, np.ndarray) else value
    graph.output(emit_assignment(graph, tensor, at, options, {place}))
    before, written = torch.from_numpy(BEFORE.copy()), torch.as_tensor(value)
    where = torch.from_numpy(index) if at is place else index
    module = fx.GraphModule(torch.nn.Module(), graph)
    assert module(before, where, written).tolist() == expected.tolist()
    assert item_assigned(before, where, written).tolist() == expected.tolist()
    assert before.tolist() == BEFORE.tolist()
