"""Generates docs/python.md from the docstrings of the public API.

Code in a docstring becomes a block of Python. The blocks for model authors form one program, which
`tests/export/test_python_page.py` runs in the order of the page.
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

Generated from docstrings by `make docs`. Every error about a value is an
`EmbershardError`, see [errors](protocols.md#errors). An argument of a wrong Python type may raise
`TypeError` or `AttributeError`.

| reader | part |
|---|---|
| trains and exports a model | [model authors](#model-authors) |
| sends requests to a server | [client authors](#client-authors) |

## Model authors

From a schema to scores, in the order of use. The examples form one program. [Models](models.md)
explains the steps. [From plain PyTorch](from_pytorch.md) starts from a model with `nn.Embedding`.
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

`AsyncClient` has the same methods as coroutines. It works only in the event loop in which it is
made. Its `stream.predict` returns the answer instead of a future; send many with `asyncio.gather`.
All classes are in `embershard.client`. [From gRPC](protocols.md#from-grpc) says which calls are
retried.
"""
Documented: TypeAlias = Mapping[Callable[..., Any], tuple[str, ...]]
"""Classes with the methods to show, and functions, in the order of the page."""

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
    """A signature. The block has no language, so that tests do not run it."""
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
    """Split a docstring into the text before its sections, and the sections by name."""
    text, *rest = re.split(rf"^({'|'.join(SECTIONS)}):\n", inspect.getdoc(of) or "", flags=re.M)
    bodies = [textwrap.dedent(body).strip() for body in rest[1::2]]
    return text.strip(), dict(zip(rest[::2], bodies, strict=True))


def _paragraphs(text: str) -> Iterator[str]:
    """Convert paragraphs. An indented block is code after ``::``, else a drawing."""
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
    of_a_metaclass = isinstance(of, type) and type(of) is not type
    signature = inspect.signature(of.__init__ if of_a_metaclass else of)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r"<(\w+\.\w+): '\w+'>", r"\1", text)  # A member of an enumeration.


def _fields(of: type) -> Iterator[str]:
    """A table of annotated fields with the docstring after each."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(tree, ast.ClassDef)
    fields = [node for node in tree.body if isinstance(node, ast.AnnAssign)]
    if not fields:
        return
    yield "| field | type | meaning |\n|---|---|---|"
    for field in fields:
        next_node = tree.body[tree.body.index(field) + 1 :][:1]
        match next_node:
            case [ast.Expr(value=ast.Constant(value=str(docstring)))]:
                meaning = _plain(docstring)
            case _:
                meaning = ""
        kind = _plain(ast.unparse(field.annotation))
        yield f"| `{ast.unparse(field.target)}` | `{kind}` | {meaning} |"
    yield ""
