"""The scope mark has no effect in training and is a node of its own in a trace."""

import torch

import embershard.modules
from embershard.modules import to_examples


def test_in_training_it_is_the_tensor_itself():
    x = torch.ones(3, 2)

    assert to_examples(x) is x


class Marked(torch.nn.Module):
    def __init__(self, mark):
        super().__init__()
        self.mark = mark

    def forward(self, x):
        return self.mark(x * 2) + 1


def test_a_trace_records_it_however_it_was_imported():
    for mark in (to_examples, embershard.modules.to_examples, embershard.modules.scope.to_examples):
        traced = torch.fx.symbolic_trace(Marked(mark))

        marks = [node for node in traced.graph.nodes if node.target is to_examples]
        assert [(node.op, node.args[0].name) for node in marks] == [("call_function", "mul")]


def test_a_traced_model_computes_the_same():
    x = torch.tensor([[1.0], [3.0]])

    traced = torch.fx.symbolic_trace(Marked(to_examples))

    assert traced(x).tolist() == [[3.0], [7.0]]
