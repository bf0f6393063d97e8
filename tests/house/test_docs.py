"""The documents: every link leads somewhere, and a broken one is named."""

import pytest

from scripts.check_docs import broken_links
from tests.house.sources import ROOT


def test_no_link_of_ours_is_broken():
    assert broken_links(ROOT) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("[a](docs/wire.md)", [], id="file"),
        pytest.param("[a](docs/wire.md#the-fast-form-packed)", [], id="heading"),
        pytest.param("# Top\n[a](#top)", [], id="own-heading"),
        pytest.param("[a](https://example.org/x)", [], id="another-site"),
        pytest.param("`[a](nowhere)`\n```\n[a](nowhere)\n```\n", [], id="code"),
        pytest.param(
            "[a](docs/wires.md)", ["README.md: docs/wires.md: no such file"], id="no-file"
        ),
        pytest.param(
            "[a](docs/wire.md#slow)",
            ["README.md: docs/wire.md#slow: no such heading in wire.md"],
            id="no-heading",
        ),
    ],
)
def test_a_link_is_followed(tmp_path, text, expected):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "wire.md").write_text("# Wire\n\n## The fast form: `packed`\n")
    (tmp_path / "README.md").write_text(text)
    assert broken_links(tmp_path) == expected
