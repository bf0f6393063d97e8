"""The examples that docs/protocols.md prints work as printed."""

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "protocols.md").read_text()


def found(pattern: str) -> str:
    match = re.search(pattern, PAGE, re.DOTALL)
    assert match is not None, f"docs/protocols.md has nothing that looks like {pattern}"
    return match[1]


def test_the_example_for_tritonclient_runs(server, capsys):
    code = found(r"```python\n(import numpy as np\nimport tritonclient.*?)```")
    assert '"127.0.0.1:50051"' in code
    exec(code.replace("127.0.0.1:50051", server.address), {})
    assert re.fullmatch(r"\[0\.\d+ +0\.\d+ *\]\n", capsys.readouterr().out)
