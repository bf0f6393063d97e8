"""The examples of docs/torchrec.md export packages, and the one of logits serves probabilities."""

import re

import torch

from embershard.jagged import KeyedJaggedTensor
from embershard.package import Package
from tests.repository.sources import ROOT


def test_the_examples_export_packages(tmp_path, monkeypatch):
    page = (ROOT / "docs/torchrec.md").read_text()
    plain, logits = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(plain, names)
    model = names["model"]
    assert Package.open("repository/migrated/1").schema() == names["schema"]
    assert set(model.state_dict()) >= {
        "embeddings.embedding_bags.users.weight",
        "embeddings.embedding_bags.items.weight",
    }
    ids = KeyedJaggedTensor(
        ["user", "item"], torch.tensor([1, 2, 3, 4]), lengths=torch.ones(4).int()
    )
    assert model(torch.zeros(2, 1), ids).shape == (2,)

    exec(logits, names)
    sample = Package.open("repository/dlrm/1").samples()[0]
    users, items = sample.lengths[0], sample.lengths[1:]
    count = sample.num_examples
    lengths = torch.tensor([*[int(users)] * count, *items.tolist()], dtype=torch.int32)
    ids = torch.from_numpy(sample.values.copy())
    rows = KeyedJaggedTensor(
        ["user", "item"], torch.cat([ids[:users].repeat(count), ids[users:]]), lengths=lengths
    )
    expected = names["dlrm"](torch.from_numpy(sample.example_dense.copy()), rows).sigmoid()[:, 0]
    torch.testing.assert_close(torch.from_numpy(sample.outputs["score"].copy()), expected)
