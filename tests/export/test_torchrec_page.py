"""The example of docs/torchrec.md exports a package that serves the module's scores."""

import re

import torch

from embershard.jagged import KeyedJaggedTensor
from embershard.package import Package
from tests.repository.sources import ROOT


def test_the_example_exports_a_package(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/torchrec.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    model = names["model"]
    assert Package.open("repository/ranker/1").schema() == names["schema"]
    assert set(model.state_dict()) >= {
        "embeddings.embedding_bags.users.weight",
        "embeddings.embedding_bags.items.weight",
    }
    ids = KeyedJaggedTensor(
        ["user", "item"], torch.tensor([1, 2, 3, 4]), lengths=torch.ones(4).int()
    )
    assert model(torch.zeros(2, 1), ids).shape == (2,)
