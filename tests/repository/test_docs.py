"""Every link in the documents leads somewhere, and broken links are named."""

import re

from scripts.check_docs import broken_links
from tests.cases import cases
from tests.repository.sources import PREDICTOR, ROOT


def test_no_link_of_ours_is_broken():
    assert broken_links(ROOT) == []


def test_the_architecture_page_names_files_that_exist():
    prose = re.sub(
        r"^```.*?^```", "", (ROOT / "docs/architecture.md").read_text(), flags=re.M | re.S
    )
    paths = {path for path in re.findall(r"`([^`\s*(){}]+)`", prose) if "/" in path}
    assert len(paths) > 50
    missing = {p for p in paths if not (ROOT / p).exists() and not (PREDICTOR / p).exists()}
    assert missing == set()


def test_readme_has_at_most_120_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_log_page_lists_every_event():
    python = [*ROOT.glob("embershard/serving/**/*.py"), *ROOT.glob("embershard/commands/*.py")]
    loader = ROOT / "embershard" / "serving" / "predictor" / "registry" / "model_loader.cc"
    written = re.findall(r"\.what = ([^,]+),", loader.read_text())
    for source in python:
        written += re.findall(r'log\.write\(\s*("\w+")', source.read_text())
    events = {event for item in written for event in re.findall(r'"(\w+)"', item)}
    listed = re.findall(r"^\| `(\w+)`.* \|$", log_page(), re.MULTILINE)
    assert {"start", "loaded", "load_failed", "slow_request"} <= events
    assert events - set(listed) == set()


def log_page():
    return (ROOT / "docs" / "metrics.md").read_text().split("\n## The log\n")[1]


@cases(
    ("text", "expected"),
    {
        "file": ("[a](docs/protocols.md)", []),
        "heading": ("[a](docs/protocols.md#the-fast-form-packed)", []),
        "own-heading": ("# Top\n[a](#top)", []),
        "another-site": ("[a](https://example.org/x)", []),
        "code": ("`[a](nowhere)`\n```\n[a](nowhere)\n```\n", []),
        "no-file": ("[a](docs/wires.md)", ["README.md: docs/wires.md: no such file"]),
        "no-heading": (
            "[a](docs/protocols.md#slow)",
            ["README.md: docs/protocols.md#slow: no such heading in protocols.md"],
        ),
    },
)
def test_a_link_is_followed(tmp_path, text, expected):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "protocols.md").write_text("# Wire\n\n## The fast form: `packed`\n")
    (tmp_path / "README.md").write_text(text)
    assert broken_links(tmp_path) == expected
