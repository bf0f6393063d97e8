"""The example that README points to runs as it stands."""

import re
import subprocess
import sys

from tests.repository.sources import ROOT


def test_a_model_of_ones_own_trains_serves_and_counts_unknown_ids(tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / "own_model.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )

    loss = float(re.search(r"loss (\S+)", run.stdout)[1])
    scores = [float(each) for each in re.search(r"scores \[(.*?)\]", run.stdout)[1].split(",")]
    assert loss < 0.66  # 0.693 is what a constant reaches.
    assert len(scores) == 3
    assert scores[1] > scores[2]  # The lower price, by far.
    assert "unknown ids {'item': 1}" in run.stdout
