"""Prints an explanation as tables: the scores without each input, then the row of each id."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from embershard.explain.explanation import Explanation
from embershard.explain.features import explanation_json
from embershard.formatting import count_text
from embershard.package.manifest import OutputSpec

COLUMNS_SHOWN = 4
"""Most scores in a line if the caller names no examples."""

IDS_SHOWN = 4
NOISE = 1e-6
"""Relative change of a score that is shown as 0, since the order of additions causes it."""

Document = Mapping[str, Any]


def explanation_tables(
    explanation: Explanation, *, examples: Sequence[int] = (), everything: bool = False
) -> RenderableType:
    """Rich tables for a terminal.

    Args:
        examples: positions of the examples to show, 0 .. num_examples - 1. Empty: the first few.
        everything: show every example and every id of a list.
    """
    scores = explanation.scores
    outputs = [output for output in explanation.package.manifest.outputs if output.name in scores]
    if not examples and not everything:
        examples_max = COLUMNS_SHOWN // max(sum(out.scope == "example" for out in outputs), 1)
        examples = range(min(explanation.request.sample.num_examples, max(examples_max, 1)))
    shown = explanation_json(explanation, examples=examples)
    parts: list[Text | Table] = [_headline(explanation, shown), _changes(shown, outputs)]
    if shown["dense"]:
        parts.append(_dense(shown["dense"]))
    if shown["sparse"]:
        parts.append(_sparse(shown["sparse"], everything=everything))
    first, *others = parts
    return Group(first, *(line for part in others for line in (Text(), part)))


def _changes(shown: Document, outputs: Sequence[OutputSpec]) -> Table:
    """A row of scores, then a row of changes for each input that is left out."""
    table = _table("left out", "in its place")
    columns = list[tuple[str, int]]()
    for output in outputs:
        for place, example in enumerate(shown["examples"] if output.scope == "example" else [0]):
            columns.append((output.name, place))
            head = [output.name, f"example {example}"][: 1 + (output.scope == "example")]
            head += ["norm"] if output.shape else []
            table.add_column(Text("\n".join(head)), justify="right", no_wrap=True)
    scores = [shown["outputs"][name][place] for name, place in columns]
    _add_row(table, "(nothing)", "", *map(_score, scores))
    for feature in (*shown["dense"], *shown["sparse"]):
        left_out = feature["left_out"]
        if left_out["failed"]:
            _add_row(table, feature["name"], f"{left_out['in_its_place']}: {left_out['failed']}")
            continue
        changes = [left_out["change"][name][place] for name, place in columns]
        _add_row(table, feature["name"], left_out["in_its_place"], *map(_change, changes, scores))
    return table


def _headline(explanation: Explanation, shown: Document) -> Text:
    lines = [
        f"{shown['model']} {shown['version']}   {count_text(shown['num_examples'], 'example')}"
    ]
    request = explanation.request
    if any(
        spec.name not in request.caller_ids and len(lists.values)
        for spec, lists in request.sparse()
    ):
        lines.append("ids are shown as the package keeps them: a string as the number it hashes to")
    if hidden := shown["num_examples"] - len(shown["examples"]):
        lines.append(f"{count_text(hidden, 'more example')} not shown")
    return Text("\n".join(lines))


def _dense(inputs: Sequence[Document]) -> Table:
    table = _table("dense input", "scope", "value")
    for feature in inputs:
        values = ", ".join(f"{value:g}" for value in feature["values"])
        note = "" if feature["given"] else "   (its default: not given)"
        _add_row(table, feature["name"], feature["scope"], values + note)
    return table


def _sparse(inputs: Sequence[Document], *, everything: bool) -> Table:
    table = _table("sparse input", "map", "example", "id", "row", "table")
    table.add_column("norm", justify="right", no_wrap=True)
    for feature in inputs:
        head = [feature["name"], feature["ids"]["kind"]]
        for id_list in feature["lists"]:
            example = "" if id_list["example"] is None else str(id_list["example"])
            for place in range(len(feature["lookups"])):
                for cells in _list_lines(feature, id_list, place, everything=everything):
                    _add_row(table, *head, example, *cells)
                    head, example = ["", ""], ""
    return table


def _list_lines(
    feature: Document, id_list: Document, place: int, *, everything: bool
) -> Iterator[list[str]]:
    """One lookup of a list: its ids, counts of hidden ids, and the pooled vector."""
    counted = [entry for entry in id_list["ids"] if entry["fate"] != "cut"]
    shown = id_list["ids"] if everything else counted[:IDS_SHOWN]
    lookup = feature["lookups"][place]
    for entry in shown:
        yield _id_line(feature, lookup["table"], entry, place)
    if hidden := [] if everything else counted[IDS_SHOWN:]:
        unknown = sum(entry["fate"] != "known" for entry in hidden)
        note = f"{unknown} of them unknown" if unknown else ""
        yield [f"... {len(hidden)} more", note, "", ""]
    cut = len(id_list["ids"]) - len(counted)
    if cut and not everything:
        yield [f"... {cut} more", _cut(feature), "", ""]
    norm = id_list["pooled_norms"][place]
    if norm is not None:  # A sequence has no pooled vector.
        yield [f"{lookup['pooling']} of {len(counted)}", "", lookup["table"], f"{norm:.4f}"]


def _id_line(feature: Document, table: str, entry: Document, place: int) -> list[str]:
    identifier = entry["id"] if entry["given"] is None else entry["given"]
    weight = "" if entry["weight"] is None else f" x {entry['weight']:g}"
    shown = f"{identifier!r:.40}{weight}"
    match entry["fate"]:
        case "cut":
            return [shown, _cut(feature), "", ""]
        case "zero":
            return [shown, "zero (unknown)", "", "0.0000"]
    row = f"{entry['row']}{'' if entry['fate'] == 'known' else ' (unknown)'}"
    return [shown, row, table, f"{entry['norms'][place]:.4f}"]


def _cut(feature: Document) -> str:
    return f"cut: {feature['keep']} {feature['max_ids']} kept"


def _score(values: ArrayLike) -> str:
    """The score of an output that is one number, the norm of any other."""
    return f"{np.linalg.norm(values) if np.ndim(values) else values:.4f}"


def _change(values: ArrayLike, scores: ArrayLike) -> str:
    """The change of a number with its sign, the norm of any other change without one."""
    if np.abs(values).max() <= NOISE * max(1.0, float(np.abs(scores).max())):
        return "0"
    number, sign = float(np.linalg.norm(values)), ""
    if np.ndim(values) == 0:
        number, sign = float(np.asarray(values)), "+"
    return f"{number:{sign}.4f}" if abs(number) >= 1e-3 else f"{number:{sign}.1e}"


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _add_row(table: Table, *cells: str) -> None:
    """Add cells as plain text: rich would read markup in names and ids otherwise."""
    table.add_row(*map(Text, cells))
