"""Errors in docs/protocols.md: the tree and the map from gRPC are the real ones."""

import re
from pathlib import Path

from embershard import cli, errors
from embershard.client.status import ERRORS
from embershard.planner import PlannerError

PAGE = (Path(__file__).parents[2] / "docs/protocols.md").read_text().split("\n## Errors\n")[1]
TREE = re.search(r"^```\n(EmbershardError\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_the_tree_is_that_of_the_library():
    shown, above = dict[str, str](), list[str]()
    for line in TREE.splitlines():
        depth, name = re.fullmatch(r"([│├└─ ]*)(?:planner\.)?(\w+).*", line).groups()
        above[len(depth) // 4 :] = [name]
        shown[name] = above[-2] if len(above) > 1 else "Exception"
    known = {**vars(errors), "PlannerError": PlannerError}
    real = {
        name: each.__bases__[0].__name__
        for name, each in known.items()
        if isinstance(each, type) and issubclass(each, errors.EmbershardError)
    }
    assert shown == real


def test_every_status_is_listed_with_what_is_raised():
    rows = re.findall(r"^\| ([A-Z_]+) \| (\w+Error)", PAGE, re.MULTILINE)
    assert dict(rows) == {code.name: kind.__name__ for code, kind in ERRORS.items()}
    assert len(rows) == len(ERRORS)


def test_commands_print_the_line_that_the_page_gives(tmp_path, capsys):
    (form,) = re.findall(r"`(embershard <.*?>)`, on standard error and end with 1", PAGE)
    assert cli.main(["inspect", str(tmp_path / "nowhere")]) == 1
    message = f"{tmp_path}/nowhere: missing folder of a package"
    parts = {"<command>": "inspect", "<class>": "PackageError", "<message>": message}
    for name, value in parts.items():
        form = form.replace(name, value)
    assert capsys.readouterr().err == form + "\n"
