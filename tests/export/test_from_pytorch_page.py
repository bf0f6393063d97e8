"""The blocks of docs/from_pytorch.md are one program, whose checks of scores hold."""

import re

import pytest
import torch

from embershard import EmbeddingBagCollection, EmbershardError, InputError, KeyedJaggedTensor
from embershard.package import Package
from tests.repository.sources import ROOT


def test_a_plain_model_is_converted_with_its_scores(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "from_pytorch.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec("\n".join(blocks), names)
    assert Package.open("repository/ranker/1").schema() == names["schema"]

    padded = names["local"].request(
        dense={"price": [1]}, sparse={"user": [4], "history": [5, 0], "item": [1]}
    )
    [refusal] = names["local"].predict_merged([padded])
    assert isinstance(refusal, EmbershardError)
    assert "'history': id 0 " in str(refusal)

    two_users = names["local"].request(
        dense={"price": [1, 1]}, sparse={"user": [4, 8], "item": [1, 300]}
    )
    [refusal] = names["local"].predict_merged([two_users])
    assert "'user': list has 2 ids, expected at most 1" in str(refusal)

    sums = EmbeddingBagCollection([names["table"]("h", 301, "history")])
    sums.load_state_dict({"embedding_bags.h.weight": names["plain"].items.weight})
    lists = KeyedJaggedTensor(["history"], names["values"], lengths=names["lengths"])
    mean_with_padding = names["plain"].items(names["history"]).mean(1)
    torch.testing.assert_close(sums(lists)["history"] / 4, mean_with_padding)

    offsets, ids = torch.tensor([0, 2, 2]), torch.tensor([5, 7, 9])
    assert torch.diff(offsets, append=torch.tensor([len(ids)])).tolist() == [2, 0, 1]
    outside = KeyedJaggedTensor(["history"], torch.tensor([301]), lengths=torch.tensor([1]))
    with pytest.raises(InputError, match="'history', table 'h': row 301 at value 0"):
        names["bags"](outside)
