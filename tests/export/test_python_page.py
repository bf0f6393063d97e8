"""The examples of docs/python.md are one program, which runs."""

import re

from embershard.package import Package
from embershard.serving import Server, ServerOptions
from tests.repository.sources import ROOT

SHOWN = (
    "Schema Identity Hash Vocabulary EmbeddingBagCollection EmbeddingCollection to_examples "
    "FusedEmbeddingBagCollection set_learning_rate Examples of_lists batches area_under_curve "
    "export_model prune_rows LocalPredictor predict_merged"
)


def test_the_examples_of_the_python_page_run(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "python.md").read_text()
    authors = page.partition("## Model authors")[2].partition("## Client authors")[0]
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", authors, re.DOTALL | re.MULTILINE))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(program, names)
    assert [name for name in SHOWN.split() if f"{name}(" not in program] == []
    assert Package.open("repository/ranker/1").schema() == names["schema"]
    assert Package.open("repository/ranker/2").schema() == names["pruned"].schema

    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    clients = [block for block in blocks if '"127.0.0.1:50051"' in block]
    assert [name for name in ("predict", "stream") if f"{name}(" not in "".join(clients)] == []
    with Server("repository", options=ServerOptions(port=0, threads=1)) as server:
        for block in clients:
            exec(block.replace("127.0.0.1:50051", server.address), names)
    assert [score.shape for score in names["scores"]] == [(2,)] * 3
