"""Common first mistakes in PyTorch and TorchRec models are refused by their line or name."""

import random
import re

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec

from embershard import modules
from embershard.errors import DataError, ExportError
from embershard.export import export_checkpoint, export_model
from embershard.export.program_builder import build_program
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import to_examples
from tests.cases import cases, refused
from tests.export.expanding import Forward
from tests.export.models import SCHEMA, collection
from tests.export.test_refusal_remedies import module, refusal_of

HERE = "test_author_mistakes.py:"
TORCHREC = "torchrec.modules.embedding_modules"


def item(m, d, s):
    return m.embeddings(s)["item"].sum(1)


@pytest.mark.parametrize("name", ["EmbeddingBagCollection", "EmbeddingCollection"])
def test_a_collection_of_torchrec_is_refused_by_its_attribute(name):
    base = type(name, (nn.Module,), {"__module__": TORCHREC})
    own = type("Own", (base,), {})
    for kind in (base, own):
        ranker = module(lambda m, d, s: m.theirs(s)["item"])
        ranker.theirs = kind()
        message = refusal_of(ranker)
        assert message.startswith(f"theirs: expected embershard.{name}, got {TORCHREC}.{name}; ")


def bags(m, d, s):
    return m.layer(s["item"].values(), s["item"].offsets()).sum(1)


LISTS = (
    "got the nn.Embedding 'layer'; write self.layer = EmbeddingBagCollection([EmbeddingBagConfig("
    "name='layer', num_embeddings=9, embedding_dim=4, feature_names=['item'])]) and "
    "self.layer(sparse)['item'] for one id per example, with SparseInput('item', ..., max_ids=1); "
    "write EmbeddingCollection, EmbeddingConfig and .to_padded_dense(10), where 10 is the largest "
    "number of ids in a list for lists"
)
BAGS = (
    "got the nn.EmbeddingBag 'layer'; write self.layer = EmbeddingBagCollection(["
    "EmbeddingBagConfig(name='layer', num_embeddings=9, embedding_dim=4, feature_names=['item'], "
    "pooling=PoolingType.{})]) and self.layer(sparse)['item']"
)


@cases(
    ("forward", "layer", "remedy"),
    {
        "embedding": (lambda m, d, s: m.layer(s["item"].values()), nn.Embedding(9, 4), LISTS),
        "padded": (
            lambda m, d, s: m.layer(s["item"].to_padded_dense(3)) + item(m, d, s)[:, None, None],
            nn.Embedding(9, 4),
            LISTS,
        ),
        "mean": (bags, nn.EmbeddingBag(9, 4), BAGS.format("MEAN")),
        "sum-beside-a-collection": (
            lambda m, d, s: bags(m, d, s) + item(m, d, s),
            nn.EmbeddingBag(9, 4, mode="sum"),
            BAGS.format("SUM"),
        ),
        "of-dense-inputs": (
            lambda m, d, s: m.layer(d.long()),
            nn.Embedding(9, 4),
            LISTS.replace("item", "<key>"),
        ),
    },
)
def test_a_plain_embedding_of_ids_is_refused_with_a_collection(forward, layer, remedy):
    message = refusal_of(Forward(forward, layer=layer, embeddings=collection()))
    assert HERE in message
    assert message.endswith(remedy)


def test_the_hint_for_one_id_an_example_looks_up_its_row():
    plain = nn.Embedding(9, 4)
    message = refusal_of(Forward(lambda m, d, s: m.layer(s["item"].values()), layer=plain))
    hint = r"write self.layer = (.*) and self.layer(.*) for one id"
    ((constructor, call),) = re.findall(hint, message)
    layer = eval(constructor, vars(modules))
    layer.load_state_dict({"embedding_bags.layer.weight": plain.weight})
    ids = torch.tensor([3, 5])
    sparse = KeyedJaggedTensor(["item"], ids, lengths=torch.ones(2, dtype=torch.int64))
    assert torch.equal(eval(f"layer{call}", {"layer": layer, "sparse": sparse}), plain(ids))


def test_a_plain_embedding_of_lengths_is_exported():
    ranker = module(
        lambda m, d, s: (
            m.layer(s["history"].lengths().clamp(max=8))
            + m.sequences(s)["history"].to_padded_dense(3).sum(1)
            + m.embeddings(s)["item"]
        )
    )
    ranker.layer = nn.Embedding(9, 4)
    build_program(ranker, SCHEMA, seed=0)


def test_a_forward_of_a_batch_is_refused_before_it_is_traced():
    class Ranker(nn.Module):
        def forward(self, batch):
            return batch.dense if batch.dense.shape[0] > 1 else None

    message = refusal_of(Ranker())
    assert message.startswith("Ranker: expected forward(dense, sparse), got forward(batch); ")


@pytest.mark.filterwarnings("ignore:Please use DTensor:FutureWarning")
def test_a_file_of_sharded_tensors_is_refused_with_a_remedy(tmp_path):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        spec = ChunkShardingSpec(dim=0, placements=["rank:0/cpu"])
        torch.save({"weight": sharded_tensor.zeros(spec, 4, 2)}, tmp_path / "sharded.pt")
    finally:
        dist.destroy_process_group()
    path, model = tmp_path / "sharded.pt", "tests.export.models:make_ranker"
    with refused(DataError, f"{path}:", "got ShardedTensors", "torch.distributed.checkpoint.save"):
        export_checkpoint(path, tmp_path / "m/1", model=model)


def test_a_mark_after_an_operation_on_dense_names_both_lines():
    def forward(m, d, s):
        d = torch.tanh(d)
        user = to_examples(d[:, :1])
        return user.sum(1) + d[:, 1:].sum(1) + item(m, d, s)

    message = refusal_of(module(forward))
    assert "user = to_examples(d[:, :1]): cannot be exported" in message
    assert "d = torch.tanh(d); write the operation only on dense[:, [0]]" in message


@cases("function", {"log1p": torch.log1p, "sqrt": torch.sqrt, "log": torch.log})
def test_nan_of_random_negative_inputs_names_line_and_samples(function, tmp_path):
    ranker = module(lambda m, d, s: function(d[:, 1]) + item(m, d, s))
    parts = ["function(d[:, 1]) + item(m, d, s)", "output 'score':", "got nan", "samples=[...]"]
    with refused(ExportError, *parts):
        export_model(ranker, SCHEMA, tmp_path / "m/1")


def test_outputs_that_are_never_finite_are_refused_by_their_line():
    message = refusal_of(module(lambda m, d, s: torch.log(-1 - d[:, 1] ** 2) + item(m, d, s)))
    assert "torch.log(-1 - d[:, 1] ** 2)" in message
    assert "got NaN or infinity in all batches of random inputs" in message


DIVERGED = "got nan: training diverged"


def test_a_parameter_that_is_nan_is_refused_by_its_name():
    ranker = module(lambda m, d, s: m.linear(m.embeddings(s)["item"]))
    with torch.no_grad():
        ranker.linear.bias.fill_(float("nan"))
    message = refusal_of(ranker)
    assert message.startswith("linear.bias: expected parameters without nan, " + DIVERGED)


def test_a_table_that_is_nan_is_refused_by_its_name(tmp_path):
    ranker = module(item)
    with torch.no_grad():
        ranker.embeddings.embedding_bags["items"].weight.fill_(float("nan"))
    with refused(ExportError, "table 'items': weights: row", DIVERGED):
        export_model(ranker, SCHEMA, tmp_path / "m/1")


@cases(
    "forward",
    {
        "tensor": lambda m, d, s: item(m, d, s) + torch.randn(16).sum(),
        "number": lambda m, d, s: item(m, d, s) + random.random(),
        "item": lambda m, d, s: item(m, d, s) * torch.rand(1).item(),
    },
)
def test_random_numbers_in_forward_are_refused_by_their_line(forward):
    message = refusal_of(module(forward))
    assert HERE in message
    assert "it draws random numbers; write if self.training: before it" in message


def test_an_expanded_new_tensor_is_refused_with_a_buffer():
    ranker = module(lambda m, d, s: item(m, d, s) + torch.ones(1, 4).expand(d.shape[0], 4)[:, 0])
    assert "write a buffer (self.register_buffer) in place of a tensor made in" in refusal_of(
        ranker
    )


def test_the_smallest_number_of_a_dtype_is_exported():
    def forward(m, d, s):
        x = m.embeddings(s)["item"]
        hidden = x.masked_fill(x > 0, torch.finfo(x.dtype).min)
        return (torch.softmax(hidden, dim=1) * x).sum(1) + torch.finfo(d.dtype).eps

    build_program(module(forward), SCHEMA, seed=0)
