"""Models with NaN or infinite outputs for empty lists, for which a server would fail a request."""

import pytest
import torch
from torch import nn

from embershard.errors import ExportError
from embershard.export import export_model
from embershard.export.program_builder import build_program
from embershard.modules import to_examples
from tests.export.expanding import Forward
from tests.export.models import SCHEMA, collection
from tests.export.test_sequences import sequences

LONGEST = 6


def padded_and_mask(m, s):
    history = m.sequences(s)["history"]
    mask = torch.arange(LONGEST) < history.lengths().unsqueeze(1)
    return history.to_padded_dense(LONGEST), mask


def encoder_layer(m, d, s):
    x, mask = padded_and_mask(m, s)
    x = m.layer(x, src_key_padding_mask=~mask)
    return to_examples((torch.relu(x) * mask.unsqueeze(-1)).sum((1, 2)))


def encoder_layer_without_nan(m, d, s):
    x, mask = padded_and_mask(m, s)
    x = torch.nan_to_num(m.layer(x, src_key_padding_mask=~mask))
    return to_examples((torch.relu(x) * mask.unsqueeze(-1)).sum((1, 2)))


def attention(m, d, s):
    x, mask = padded_and_mask(m, s)
    query = m.sequences(s)["user"].to_padded_dense(1)
    x, _ = m.attention(query, x, x, key_padding_mask=~mask)
    return to_examples(x.squeeze(1))


def masked_softmax(m, d, s):
    x, mask = padded_and_mask(m, s)
    weights = torch.softmax((x * x).sum(-1).masked_fill(~mask, float("-inf")), 1)
    return to_examples((weights.unsqueeze(-1) * x).sum(1))


def masked_softmax_with_a_number(m, d, s):
    x, mask = padded_and_mask(m, s)
    weights = torch.softmax((x * x).sum(-1).masked_fill(~mask, -1e9), 1) * mask
    return to_examples((weights.unsqueeze(-1) * x).sum(1))


def mean_by_lengths(m, d, s):
    history = m.sequences(s)["history"]
    return to_examples(history.to_padded_dense(LONGEST).sum(1) / history.lengths().unsqueeze(1))


def mean_by_clamped_lengths(m, d, s):
    history = m.sequences(s)["history"]
    lengths = history.lengths().unsqueeze(1).clamp(min=1)
    return to_examples(history.to_padded_dense(LONGEST).sum(1) / lengths)


def pooled_over_its_norm(m, d, s):
    item = m.embeddings(s)["item"]
    return item / item.norm(dim=1, keepdim=True)


def log_of_dense(m, d, s):
    return m.embeddings(s)["item"].sum(1) + torch.log(d[:, 0])


def module(forward):
    torch.manual_seed(3)
    return Forward(
        forward,
        sequences=sequences(),
        embeddings=collection(),
        layer=nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        attention=nn.MultiheadAttention(embed_dim=4, num_heads=2, batch_first=True),
    )


@pytest.mark.parametrize(
    ("forward", "line", "lists", "instead"),
    [
        (encoder_layer, "m.layer(", "input 'history' are", "torch.nan_to_num"),
        (attention, "m.attention(", "input 'history' are", "a learned or zero vector in front"),
        (masked_softmax, "torch.softmax(", "input 'history' are", "masked_fill(~mask, -1e9)"),
        (mean_by_lengths, "history.lengths()", "input 'history' are", "lengths.clamp(min=1)"),
        (
            pooled_over_its_norm,
            "item / item.norm(",
            "input 'item' are",
            "a divisor that is never 0",
        ),
    ],
)
def test_outputs_not_finite_for_empty_lists_are_refused(forward, line, lists, instead, tmp_path):
    with pytest.raises(ExportError) as refusal:
        export_model(module(forward), SCHEMA, tmp_path / "m" / "1")
    message = str(refusal.value)
    assert "test_empty_lists.py:" in message
    assert line in message
    assert f"output 'score': expected finite values if the lists of {lists} empty" in message
    assert instead in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_encoder_with_nested_tensors_is_refused_by_its_option():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    ranker = module(encoder_layer_without_nan)
    ranker.layer = nn.TransformerEncoder(layer, 1)
    with pytest.raises(
        ExportError, match=r"write nn.TransformerEncoder.*enable_nested_tensor=False"
    ):
        build_program(ranker, SCHEMA, seed=0)
    ranker.layer = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    build_program(ranker, SCHEMA, seed=0)


@pytest.mark.parametrize(
    "forward",
    [
        encoder_layer_without_nan,
        masked_softmax_with_a_number,
        mean_by_clamped_lengths,
        log_of_dense,
    ],
)
def test_outputs_finite_for_empty_lists_are_exported(forward):
    build_program(module(forward), SCHEMA, seed=0)
