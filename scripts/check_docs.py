"""Generate documents from the code, and check the links of all documents.

python -m scripts.check_docs
"""

import json
import re
import sys
from pathlib import Path

from embershard.package.manifest import Manifest
from scripts.write_cli import PAGE, cli_page
from scripts.write_configuration import PAGE as CONFIGURATION_PAGE
from scripts.write_configuration import configuration_page
from scripts.write_python import PAGE as PYTHON_PAGE
from scripts.write_python import python_page

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(?P<title>.+?)\s*$", re.MULTILINE)


def broken_links(root: Path) -> list[str]:
    """Return ``<file>: <link>: <what is missing>`` for links that are not to other sites."""
    problems = []
    for page in [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]:
        prose = CODE.sub("", FENCE.sub("", page.read_text()))
        for target in (link["target"] for link in LINK.finditer(prose)):
            if "://" in target or target.startswith("mailto:"):
                continue
            if missing := missing_part(page, target):
                problems.append(f"{page.relative_to(root)}: {target}: {missing}")
    return problems


def missing_part(page: Path, target: str) -> str:
    """The file or heading that a relative link needs but lacks. Empty if the link works."""
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    if not file.exists():
        return "no such file"
    if anchor and anchor not in anchors(file.read_text()):
        return f"no such heading in {file.name}"
    return ""


def anchors(text: str) -> set[str]:
    titles = [match["title"].lower() for match in HEADING.finditer(FENCE.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


if __name__ == "__main__":
    schema = json.dumps(Manifest.model_json_schema(), indent=2)
    (ROOT / "docs" / "manifest.schema.json").write_text(f"{schema}\n")
    PAGE.write_text(cli_page())
    CONFIGURATION_PAGE.write_text(configuration_page())
    PYTHON_PAGE.write_text(python_page())
    problems = broken_links(ROOT)
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    sys.exit(1 if problems else 0)
