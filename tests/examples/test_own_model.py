"""The example to which README points runs as it is, and so do snippets that use its model."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from embershard.package import Package
from tests.repository.sources import ROOT


def test_an_own_model_trains_serves_and_counts_unknown_ids(tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / "own_model.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )

    loss = float(re.search(r"loss (\S+)", run.stdout)[1])
    scores = [float(part) for part in re.search(r"scores \[(.*?)\]", run.stdout)[1].split(",")]
    assert loss < 0.66  # A constant score would reach 0.693.
    assert len(scores) == 3
    assert scores[1] > scores[2]  # Example 1 has a far lower price than example 2.
    assert "unknown ids {'item': 1}" in run.stdout


def test_the_snippet_of_the_readme_exports_a_package(tmp_path, monkeypatch):
    snippet = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    exec(snippet.replace("1_000_000", "1_000"), {})
    assert Package.open("repository/ranker/1").manifest.model == "ranker"


def snippet(heading):
    page = (ROOT / "docs" / "models.md").read_text()
    return re.search(rf"^## {heading}$.*?```python\n(.*?)```", page, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.slow
def test_the_snippets_compare_kinds_of_rows_and_score_a_request(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")
    exec(snippet("What int8, int4 and bf16 cost"), {})
    areas = dict(re.findall(r"^(.*?) +AUC (\S+)$", capsys.readouterr().out, re.MULTILINE))
    assert len(areas) == 6
    assert len(set(areas.values())) > 1
    assert float(areas["fp32"]) > 0.65  # The clicks allow at most 0.82.
    assert all(abs(float(area) - float(areas["fp32"])) < 0.005 for area in areas.values())

    Path("repository").symlink_to("compared")
    names = {}
    exec(snippet("Without a server"), names)
    scores = names["answer"].outputs["score"]
    assert scores.shape == (3,)
    assert scores[1] > scores[2]  # Example 1 has a far lower price than example 2.
    assert names["answer"].unknown_ids == {"item": 1}
