"""The examples that model_repo/README.md and docs/triton.md print work as printed."""

import json
import math
import re
import subprocess

import numpy as np
import pytest

from tests.repository.sources import ROOT
from tests.serving.serve import serve
from tests.serving.triton.running import serving

README = ROOT / "model_repo" / "README.md"
MANUAL = ROOT / "docs" / "triton.md"
SAYS = "It prints `[0.9525741 0.5621765]`."


def code_of(page) -> str:
    """The page's one program."""
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert '"127.0.0.1:8001"' in code
    return code


def scores_of(code: str, address: str, capsys) -> list[float]:
    exec(code.replace("127.0.0.1:8001", address), {})
    printed = capsys.readouterr().out
    return [float(word) for word in printed.strip("[] \n").split()]


def expected() -> list[float]:
    # The user and the tags are left out, so that the request's columns have a mean of 0. Item r has
    # the columns (r + c) / 2 - 1, c in 0..7: means of 2.25 and 0.75.
    logits = [0.5 + 0.25 + 2.25, 0.5 - 1.0 + 0.75]
    return [1 / (1 + math.exp(-logit)) for logit in logits]


def test_the_readme_says_what_it_prints():
    assert SAYS in README.read_text()
    said = [float(word) for word in SAYS.split("[")[1].split("]")[0].split()]
    np.testing.assert_allclose(said, expected(), rtol=0, atol=1e-6)


def test_the_readme_asks_our_own_server(capsys):
    with serve(README.parent, default_timeout_ms=60_000) as server:
        scores = scores_of(code_of(README), server.address, capsys)
    np.testing.assert_allclose(scores, expected(), rtol=0, atol=1e-6)


@pytest.mark.needs_triton
def test_the_readme_asks_triton(capsys):
    with serving(README.parent, "tiny") as served:
        scores = scores_of(code_of(README), served.grpc, capsys)
    np.testing.assert_allclose(scores, expected(), rtol=0, atol=1e-6)


@pytest.mark.needs_triton
def test_the_manuals_http_request_is_answered_as_printed():
    manual = MANUAL.read_text()
    [command] = re.findall(r"```bash\n(curl .*?)```", manual, re.DOTALL)
    [printed] = re.findall(r"```json\n(.*?)```", manual, re.DOTALL)
    with serving(README.parent, "tiny") as served:
        done = subprocess.run(
            ["bash", "-c", command.replace("127.0.0.1:8000", served.http)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    got, said = json.loads(done.stdout), json.loads(printed)
    [output], [said_output] = got["outputs"], said["outputs"]
    np.testing.assert_allclose(output.pop("data"), expected(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(said_output.pop("data"), expected(), rtol=0, atol=1e-6)
    assert got == said
