"""Refusals say what to write instead."""

import numpy as np
import pytest
import torch
from torch import nn

from embershard.errors import ExportError
from embershard.export.program_builder import build_program
from embershard.jagged import JaggedTensor
from tests.export.expanding import Forward
from tests.export.models import SCHEMA, collection
from tests.export.test_sequences import sequences


def module(forward):
    return Forward(forward, embeddings=collection(), sequences=sequences(), linear=nn.Linear(4, 1))


def refusal_of(ranker):
    with pytest.raises(ExportError) as refusal:
        build_program(ranker, SCHEMA, seed=0)
    return str(refusal.value)


def branch_on_item(m, d, s):
    x = m.embeddings(s)["item"]
    if x.max().item() > 100:
        return x / 100
    return x


def autocast(m, d, s):
    x = m.embeddings(s)["item"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x.new_ones(4, 1)).float()


def loop_over_rows(m, d, s):
    x = m.embeddings(s)["item"]
    return torch.stack([x[i] for i in range(x.shape[0])])


def softmax_over_padding(m, d, s):
    x = m.sequences(s)["history"].to_padded_dense()
    weights = torch.softmax(x.sum(-1), dim=1)
    return (weights.unsqueeze(-1) * x).sum(1)


def squeezed(m, d, s):
    return m.embeddings(s)["item"].sum(1, keepdim=True).squeeze()


def batch_mean(m, d, s):
    return (x := m.embeddings(s)["item"]) - x.mean(0)


def batch_softmax(m, d, s):
    return torch.softmax(m.embeddings(s)["item"], dim=0)


def all_pairs(m, d, s):
    x = m.embeddings(s)["item"]
    return x @ x.T


def unpadded_max(m, d, s):
    return m.sequences(s)["history"].to_padded_dense().amax(1)


def unpadded_values(m, d, s):
    x = m.sequences(s)["history"].to_padded_dense(desired_length=None)
    return torch.tanh(x).max(1).values


def max_of_empty_lists(m, d, s):
    x = m.sequences(s)["history"].to_padded_dense()
    return torch.relu(x).amax(1)  # Zero vectors do not change the maximum.


def values_of_lists(m, d, s):
    lists = m.sequences(s)["history"]
    return JaggedTensor(torch.relu(lists.values()), lengths=lists.lengths()).to_padded_dense(3)


def relu_of_lists(m, d, s):
    return torch.relu(m.sequences(s)["history"])


def loop_over_steps(m, d, s):
    return sum(step for step in m.sequences(s)["history"].to_padded_dense(3).unbind(1))


def number_of_numpy(m, d, s):
    return m.embeddings(s)["item"] * np.float32(3)


def number_of_numpy_first(m, d, s):
    return np.float32(3) * m.embeddings(s)["item"]


PAD_FIRST = (
    "write x = sequences['history'].to_padded_dense(width), apply the operation to x, and multiply "
    "by the mask (torch.arange(width) < sequences['history'].lengths().unsqueeze(1)).unsqueeze(-1)"
)
GIVE_A_WIDTH = (
    "to_padded_dense() without a width pads to the longest list of a batch; write "
    "to_padded_dense(max_ids), or mask the padding"
)


@pytest.mark.parametrize(
    ("forward", "line", "remedy"),
    [
        (unpadded_max, ".to_padded_dense().amax(1)", GIVE_A_WIDTH),
        (unpadded_values, "torch.tanh(x).max(1).values", GIVE_A_WIDTH),
        (
            max_of_empty_lists,
            "torch.relu(x).amax(1)",
            "non-zero size.; without a width a batch of empty lists has width 0; write "
            "to_padded_dense(max_ids)",
        ),
        (values_of_lists, "torch.relu(lists.values())", PAD_FIRST),
        (relu_of_lists, "torch.relu(m.seq", PAD_FIRST),
        (loop_over_steps, ".unbind(1))", "a fixed number of steps (for i in range(5): x[:, i])"),
        (number_of_numpy, "np.float32(3)", "write float(value) in place of a number of numpy"),
        (number_of_numpy_first, "np.float32(3)", "in place of numpy, float(value) for a number"),
        (squeezed, ".squeeze()", "write squeeze(-1) in place of squeeze()"),
        (branch_on_item, "if x.max().item() > 100: Forward", "write torch.where"),
        (
            lambda m, d, s: m.embeddings(s)["item"].view(int(d.shape[0]), 4),
            "int(d.shape[0])",
            "write sizes without int(): x.shape[0]",
        ),
        (loop_over_rows, "range(x.shape[0])", "write operations on the whole batch"),
        (lambda m, d, s: m.embeddings(s)["item"].double(), "", "torch.float64; write .float()"),
        (lambda m, d, s: m.embeddings(s)["item"].half(), "", "torch.float16; write .float()"),
        (autocast, "with torch.autocast(", "write export_model(..., dense_dtype='bf16')"),
        (batch_softmax, "dim=0)", "write softmax over dim=-1"),
        (batch_mean, "x.mean(0)", "write mean over dim=-1"),
        (all_pairs, "x @ x.T", "write (user * item).sum(-1)"),
        (softmax_over_padding, "dim=1)", "this softmax includes padding; write masked_fill("),
        (
            lambda m, d, s: ((x := m.embeddings(s)["item"]), x),
            "",
            "got a tuple of 2 values; write return {'score': score, ...}",
        ),
    ],
)
def test_refusal_names_the_line_and_the_remedy(forward, line, remedy):
    message = refusal_of(module(forward))
    assert line in message
    assert remedy in message
    assert "::" not in message


def test_disabled_autocast_is_exported():
    def forward(m, d, s):
        with torch.autocast("cpu", enabled=False):
            return m.embeddings(s)["item"] * 2

    build_program(module(forward), SCHEMA, seed=0)


def test_data_parallel_is_refused_with_the_module_to_export():
    ranker = module(lambda m, d, s: m.linear(m.embeddings(s)["item"]))
    assert "write module.module" in refusal_of(nn.DataParallel(ranker))
    ranker.linear = nn.DataParallel(ranker.linear)
    assert "linear: expected a module without a wrapper, got nn.DataParallel" in refusal_of(ranker)


def test_bfloat16_parameters_are_refused_with_the_option_to_use():
    ranker = module(lambda m, d, s: m.linear(m.embeddings(s)["item"]))
    ranker.linear.bfloat16()
    message = refusal_of(ranker)
    assert "linear.weight: expected float32 parameters, got torch.bfloat16" in message
    assert "write module.float() before the export, and export_model(..., dense_dtype=" in message


def counted(m, d, s):
    m.calls += 1
    return m.embeddings(s)["item"] * m.calls


def counted_anew(m, d, s):
    m.calls = m.calls + 1
    return m.embeddings(s)["item"] * m.calls


@pytest.mark.parametrize("forward", [counted, counted_anew])
def test_a_buffer_that_forward_changes_is_refused_by_name(forward):
    ranker = module(forward)
    ranker.register_buffer("calls", torch.zeros(()))
    assert refusal_of(ranker) == (
        "calls: expected a buffer that forward does not change in eval mode, got one that it "
        "changes; write if self.training: before the change, since a server keeps no state"
    )


def test_a_buffer_that_forward_computes_once_is_exported():
    def forward(m, d, s):
        if len(m.cached) < 4:
            m.cached = torch.arange(4.0)
        return m.embeddings(s)["item"] * m.cached

    ranker = module(forward)
    ranker.register_buffer("cached", torch.zeros(0))
    build_program(ranker, SCHEMA, seed=0)


def test_a_buffer_rewritten_with_the_same_values_is_exported():
    def forward(m, d, s):
        m.cached[:4] = torch.arange(4.0)
        return m.embeddings(s)["item"] * m.cached

    ranker = module(forward)
    ranker.register_buffer("cached", torch.arange(4.0))
    build_program(ranker, SCHEMA, seed=0)


def test_a_buffer_that_forward_changes_in_training_is_exported():
    def forward(m, d, s):
        return counted(m, d, s) if m.training else m.embeddings(s)["item"] * m.calls

    ranker = module(forward)
    ranker.register_buffer("calls", torch.ones(()))
    build_program(ranker.train(), SCHEMA, seed=0)
    assert ranker.calls == 1
    assert ranker.training


def test_a_table_read_as_a_tensor_is_reported_with_its_size(caplog):
    def forward(m, d, s):
        pooled = m.embeddings(s)
        return pooled["user"] @ m.embeddings.embedding_bags["items"].weight.t()

    build_program(module(forward), SCHEMA, seed=0)
    (record,) = caplog.records
    assert record.getMessage() == (  # It has 9 rows of dim 4.
        "table 'items' is used as a tensor in forward, which adds 0.000 MB of fp32 to the dense "
        "program"
    )
