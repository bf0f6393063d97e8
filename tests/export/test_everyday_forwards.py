"""Programs of typical forwards have the scores of their modules, with and without a mark."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from embershard.errors import ExportError
from embershard.export.program_builder import build_program
from embershard.jagged import KeyedTensor
from tests.cases import cases
from tests.export import everyday
from tests.export.expanding import Forward
from tests.export.models import SCHEMA, collection
from tests.export.test_scopes import checked
from tests.export.test_sequences import sequences

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit")


with warnings.catch_warnings(action="ignore"):

    @torch.jit.script
    def scripted_function(x: torch.Tensor) -> torch.Tensor:
        return x * 2


def module_of(forward):
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    traced = torch.jit.trace(nn.Linear(4, 4), torch.zeros(2, 4))
    module = Forward(
        forward, embeddings=collection(), sequences=sequences(), scripted=scripted, traced=traced
    )
    module.register_buffer("positions", torch.arange(1.0, 9.0))
    return module


@pytest.mark.parametrize("forward", everyday.FORWARDS, ids=lambda value: value.__name__)
def test_program_gives_the_scores_of_the_module(forward):
    ((spec, _),) = checked(module_of(forward)).values()
    assert spec.scope == "example"


@pytest.mark.parametrize("forward", everyday.MARKED, ids=lambda value: value.__name__)
def test_a_program_with_a_request_side_has_the_modules_scores(forward):
    checked(module_of(forward))


def written_through_a_view(m, d, s):
    item = m.embeddings(s)["item"] * 1
    item.view(-1, 2, 2)[:, 0] = 0
    return item


def read_through_a_view(m, d, s):
    item = m.embeddings(s)["item"] * 1
    first = item[:, 0]
    item[:, 0] = 0
    return first + item.sum(1)


def packed_sequence(m, d, s):
    history = m.sequences(s)["history"]
    padded = history.to_padded_dense(3)
    packed = nn.utils.rnn.pack_padded_sequence(padded, history.lengths(), batch_first=True)
    return packed.data


def shape_branch(m, d, s):
    item = m.embeddings(s)["item"]
    if item.dim() == 2:
        item = item.unsqueeze(1)
    return item.sum(1)


def every_key(m, d, s):
    pooled = m.embeddings(s)
    return torch.cat([pooled[key] for key in pooled.keys()], dim=1)  # noqa: SIM118  no dict


def mixed_index(m, d, s):
    item = m.embeddings(s)["item"] * 1
    item[:, [0, 2]] = 0
    return item


@cases(
    ("forward", "line", "reason", "replacement"),
    {
        "assignment-to-a-view": (
            written_through_a_view,
            "item.view(-1, 2, 2)[:, 0] = 0",
            "without other views that are used later",
            "write y = y.clone() before it",
        ),
        "assignment-to-a-tensor-with-a-view": (
            read_through_a_view,
            "item[:, 0] = 0",
            "without other views that are used later",
            "write y = y.clone() before it",
        ),
        "assignment-to-listed-columns": (
            mixed_index,
            "item[:, [0, 2]] = 0",
            "only numbers and slices, or only tensors",
            "write torch.where or torch.cat",
        ),
        "lengths-of-a-pooled-input": (
            lambda m, d, s: m.embeddings(s)["item"].sum(1) + s["user"].lengths(),
            's["user"].lengths()',
            "expected the lengths of an input that an EmbeddingCollection looks up, got 'user'",
            "add a dense input with the length",
        ),
        "stride": (
            lambda m, d, s: m.embeddings(s)["item"] / s.stride(),
            "s.stride()",
            "expected forward to use its sparse input only in calls of embedding modules",
            "write dense.shape[0] for the number of examples",
        ),
        "regroup-of-tensors": (
            lambda m, d, s: KeyedTensor.regroup(
                [p := m.embeddings(s), KeyedTensor.from_tensor_list(["a"], [p["item"]])], [["a"]]
            )[0],
            "KeyedTensor.regroup(",
            "expected regroup to get KeyedTensors of embedding modules",
            "write torch.cat(",
        ),
        "regroup-of-an-unknown-key": (
            lambda m, d, s: KeyedTensor.regroup([m.embeddings(s)], [["usr"]])[0],
            "KeyedTensor.regroup(",
            "got 'usr'",
            "expected one of item, history, user",
        ),
        "in-place-method": (
            lambda m, d, s: m.embeddings(s)["item"].masked_fill_(d[:, 1:2] > 0, 0),
            "masked_fill_(",
            "it writes into its operand",
            "write masked_fill, and use the new tensor that it returns",
        ),
        "dropout-in-evaluation": (
            lambda m, d, s: functional.dropout(m.embeddings(s)["item"], 0.5),
            "functional.dropout(",
            "it draws random numbers",
            "write training=self.training, or nn.Dropout",
        ),
        "random-noise": (
            lambda m, d, s: (x := m.embeddings(s)["item"]) + torch.rand_like(x),
            "torch.rand_like(x)",
            "it draws random numbers",
            "write if self.training: before it",
        ),
        "packed-sequence": (
            packed_sequence,
            "pack_padded_sequence(padded",
            "cannot be traced",
            "write the layer on the padded sequence in place of pack_padded_sequence",
        ),
        "branch-on-a-shape": (
            shape_branch,
            "if item.dim() == 2:",
            "inputs to control flow",
            "evaluate conditions on shapes when the module is built",
        ),
        "iterated-keys": (
            every_key,
            "for key in pooled.keys()",
            "cannot be iterated",
            "keys (for key in ('user', 'item'): pooled[key])",
        ),
        "numpy": (
            lambda m, d, s: m.embeddings(s)["item"] / np.sqrt(d.shape[1]),
            "np.sqrt(d.shape[1])",
            "cannot be traced",
            "write math or torch in place of numpy",
        ),
        "number": (
            lambda m, d, s: m.embeddings(s)["item"] * float(d[0, 0]),
            "float(d[0, 0])",
            "cannot be traced",
            "write tensors in place of numbers",
        ),
        "no-such-overload": (
            lambda m, d, s: m.embeddings(s)["item"].norm(dim="rows"),
            'norm(dim="rows")',
            "cannot be compiled to TorchScript: TorchScript has no torch.functional.norm for",
            "write other torch operations",
        ),
        "scripted-function": (
            lambda m, d, s: scripted_function(m.embeddings(s)["item"]),
            "scripted_function(",
            "cannot be traced",
            "write the function without torch.jit.script",
        ),
    },
)
def test_refusal_names_the_line_the_reason_and_the_replacement(forward, line, reason, replacement):
    with pytest.raises(ExportError) as refusal:
        build_program(module_of(forward), SCHEMA, seed=0)
    message = str(refusal.value)
    for part in ("test_everyday_forwards.py:", line, reason, replacement):
        assert part in message
    assert len(message.splitlines()) == 1
