"""docs/python.md, from the docstrings of what model authors and users of the client call.

Code in a docstring becomes a block of Python. Those of the model authors' part are one program:
`tests/export/test_python_page.py` runs them in the order of the page.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import embershard as es
from embershard import client, data, export, serving, training

PAGE = Path(__file__).resolve().parent.parent / "docs" / "python.md"
HEAD = """# Python

Generated from docstrings by `make docs`. Every error is an `EmbershardError`;
[errors](protocols.md#errors) says which are raised when.

| reader | part |
|---|---|
| trains and exports a model | [model authors](#model-authors) |
| asks a server for scores | [client authors](#client-authors) |

## Model authors

From a schema to scores, in the order of use. The examples are one program.
[Models](models.md) explains the steps. [From plain PyTorch](from_pytorch.md) takes a model with
`nn.Embedding` through them.
"""
CLIENTS_HEAD = """## Client authors

The client needs neither torch nor FBGEMM.

```python
from embershard import Client

with Client("127.0.0.1:50051") as client:
    print(client.get_model("ranker").inputs)
    dense = {"hour": 0.5, "price": [1.5, 2.5]}  # hour in request scope, price of two candidates
    answer = client.predict("ranker", dense=dense, sparse={"item": [[1101], [1205, 7]]})
    print(answer["score"], answer.timing.total_us)
```

`AsyncClient` has the same arguments and methods, to be awaited, and belongs to the event loop in
which it is made. Its `stream.predict` gives the answer, no future: `asyncio.gather` sends many at
once. `Lists` and all others are in `embershard.client`. [From gRPC](protocols.md#from-grpc) says
what is sent again.
"""
Documented: TypeAlias = Mapping[Callable[..., Any], tuple[str, ...]]
"""Classes with their methods, and functions, in the order of the page."""

AUTHORS: Documented = {
    es.Schema: (),
    es.DenseInput: (),
    es.Log1p: (),
    es.Clip: (),
    es.Standardize: (),
    es.Bucketize: (),
    es.SparseInput: (),
    es.Identity: (),
    es.Hash: (),
    es.Vocabulary: ("rows_of",),
    es.EmbeddingConfig: (),
    es.EmbeddingBagConfig: (),
    es.KeyedJaggedTensor: (),
    es.EmbeddingBagCollection: ("forward",),
    es.EmbeddingCollection: ("forward",),
    es.FusedEmbeddingBagCollection: ("set_learning_rate",),
    es.FusedEmbeddingCollection: (),
    es.to_examples: (),
    data.ParquetBatches: (),
    data.Examples: (),
    data.JaggedColumn: ("of_lists",),
    data.batches: (),
    data.Batch: (),
    training.area_under_curve: (),
    es.export_model: (),
    export.prune_rows: (),
    export.Pruned: (),
    export.PrunedTable: (),
    serving.LocalPredictor: ("request", "predict_merged"),
    serving.LocalPrediction: (),
}
CLIENTS: Documented = {
    client.Client: ("get_model", "predict", "stream", "close"),
    client.PredictStream: ("predict", "close"),
    client.Prediction: (),
    client.Timing: (),
    client.ServedModel: (),
    client.ServedInput: (),
    client.ServedOutput: (),
    client.Lists: (),
    client.Tls: (),
}
SECTIONS = {"Args": "argument", "Returns": "", "Raises": "raises"}


def python_page() -> str:
    """The page: a part for each kind of reader, with a section for each class and function."""
    parts = [HEAD, *_sections(AUTHORS), CLIENTS_HEAD, *_sections(CLIENTS)]
    return "\n".join(parts).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"


def _sections(documented: Documented) -> Iterator[str]:
    for item, methods in documented.items():
        text, sections = _parts(item)
        yield f"### {item.__name__}\n"
        yield from _paragraphs(text)
        if isinstance(item, type):
            sections = sections or _parts(vars(item).get("__init__"))[1]
        if sections:
            yield _call(item.__name__, item)
            yield from _tables(sections)
        if isinstance(item, type) and (dataclasses.is_dataclass(item) or hasattr(item, "_fields")):
            yield from _fields(item)
        for name in methods:
            method = getattr(item, name)
            text, sections = _parts(method)
            yield _call(f"{item.__name__}.{name}", method)
            yield from _paragraphs(text)
            yield from _tables(sections)


def _call(name: str, of: Callable[..., Any]) -> str:
    """A signature, which is not run: without a language."""
    return f"```\n{name}{_signature(of)}\n```\n"


def _tables(sections: Mapping[str, str]) -> Iterator[str]:
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
    """Text, and what is indented below it: code if the text ends with ``::``, else a drawing."""
    for block in re.split(r"\n\n(?=\S)", text):
        words, _, indented = block.partition("\n\n")
        is_code = words.endswith("::")
        if words.removesuffix("::"):
            yield f"{_plain(words.replace('::', ':'))}\n"
        if indented:
            yield f"```{'python' if is_code else ''}\n{textwrap.dedent(indented)}\n```\n"


def _plain(text: str) -> str:
    text = re.sub(r":\w+:`([^`]*)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`").replace("|", "\\|")


def _signature(of: Callable[..., Any]) -> str:
    """Names and defaults."""
    of_a_metaclass = isinstance(of, type) and type(of) is not type
    signature = inspect.signature(of.__init__ if of_a_metaclass else of)
    bare = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in signature.parameters.values()
        if each.name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r"<(\w+\.\w+): '\w+'>", r"\1", text)  # A member of an enumeration.


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
