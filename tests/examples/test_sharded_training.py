"""The example of docs/training.md runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sharded_training.py"


def test_the_example_trains_on_two_processes():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*command, EXAMPLE], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    first, last = (float(each) for each in re.findall(r"step \d+: loss ([0-9.]+)", done.stdout))
    assert last < first / 2
