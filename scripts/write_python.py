"""docs/python.md, from the docstrings of what users of the client call."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from embershard import client, data

PAGE = Path(__file__).resolve().parent.parent / "docs" / "python.md"
HEAD = """# Python

Generated from docstrings by `make docs`. The client needs neither torch nor
FBGEMM.

```python
from embershard import Client

with Client("127.0.0.1:50051") as client:
    print(client.get_model("ranker").inputs)
    dense = {"age": 30, "price": [1.5, 2.5]}  # age in request scope, price of two candidates
    answer = client.predict("ranker", dense=dense, sparse={"item": [[101], [205, 7]]})
    print(answer["score"], answer.timing.total_us)
```

`AsyncClient` has the same arguments and methods, to be awaited, and belongs to the event loop in
which it is made. Its `stream.predict` gives the answer, no future: `asyncio.gather` sends many at
once. `Lists` and all others are in `embershard.client`. [Errors](protocols.md#errors) says what is
raised when, and [what is sent again](protocols.md#from-grpc).
"""
CALLED: dict[type, tuple[str, ...]] = {
    client.Client: ("get_model", "predict", "stream", "close"),
    client.PredictStream: ("predict", "close"),
    client.Prediction: (),
    client.Timing: (),
    client.ServedModel: (),
    client.ServedInput: (),
    client.ServedOutput: (),
    client.Lists: (),
    client.Tls: (),
    data.Examples: (),
    data.JaggedColumn: ("of_lists",),
}
SECTIONS = {"Args": "argument", "Returns": "", "Raises": "raises"}


def python_page() -> str:
    """The page: a section for each class, with its methods, and for `batches`."""
    parts = [HEAD]
    for kind, methods in CALLED.items():
        parts += _section(f"## {kind.__name__}", kind)
        made: Any = vars(kind).get("__init__")
        if "Args:" in (inspect.getdoc(made) or ""):
            parts += _described(f"{kind.__name__}{_signature(kind)}", made)
        parts += _fields(kind)
        for name in methods:
            method = getattr(kind, name)
            parts += _described(f"{kind.__name__}.{name}{_signature(method)}", method)
    parts += [
        *_section("## batches", None),
        *_described(f"batches{_signature(data.batches)}", data.batches),
    ]
    return "\n".join(parts).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"


def _section(title: str, of: type | None) -> Iterator[str]:
    yield f"{title}\n"
    if of is not None:
        yield from _paragraphs(_parts(of)[0])


def _described(call: str, of: Callable[..., Any]) -> Iterator[str]:
    text, sections = _parts(of)
    yield f"```python\n{call}\n```\n"
    yield from _paragraphs(text)
    for name, body in sections.items():
        if not SECTIONS[name]:
            yield f"Returns: {_plain(body)}\n"
            continue
        yield f"| {SECTIONS[name]} | |\n|---|---|"
        for entry in re.split(r"\n(?=\S)", body):
            names, _, meaning = entry.partition(": ")
            yield f"| `{names}` | {_plain(meaning)} |"
        yield ""


def _parts(of: Any) -> tuple[str, dict[str, str]]:
    """The docstring before its sections, and these by name, without their indentation."""
    text, *found = re.split(rf"^({'|'.join(SECTIONS)}):\n", inspect.getdoc(of) or "", flags=re.M)
    bodies = [textwrap.dedent(body).strip() for body in found[1::2]]
    return text.strip(), dict(zip(found[::2], bodies, strict=True))


def _paragraphs(text: str) -> Iterator[str]:
    for block in re.split(r"\n\n(?=\S)", text):
        before, code, after = block.partition("::\n\n")
        if code:
            yield f"```python\n{textwrap.dedent(after)}\n```\n"
        elif before:
            yield f"{_plain(before)}\n"


def _plain(text: str) -> str:
    text = re.sub(r":\w+:`([^`]*)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`").replace("|", "\\|")


def _signature(of: Callable[..., Any]) -> str:
    """Names and defaults."""
    signature = inspect.signature(of)
    bare = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in signature.parameters.values()
        if each.name not in ("self", "cls")
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _fields(of: type) -> Iterator[str]:
    """Annotated fields, with the text below each."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(made, ast.ClassDef)
    fields = [each for each in made.body if isinstance(each, ast.AnnAssign)]
    if not fields:
        return
    yield "| field | type | meaning |\n|---|---|---|"
    for each in fields:
        below = made.body[made.body.index(each) + 1 :][:1]
        match below:
            case [ast.Expr(value=ast.Constant(value=str(said)))]:
                meaning = _plain(said)
            case _:
                meaning = ""
        kind = _plain(ast.unparse(each.annotation))
        yield f"| `{ast.unparse(each.target)}` | `{kind}` | {meaning} |"
    yield ""
