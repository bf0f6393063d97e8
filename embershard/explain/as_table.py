"""An explanation as tables for people: the scores without each input, then the row of each id."""

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
"""Most scores in a line if outputs have many examples."""

IDS_SHOWN = 4
NOISE = 1e-6
"""A score of about 1 may differ by this much if nothing changed: the order of additions does."""

Document = Mapping[str, Any]
"""The result of `explanation_json`, or a part of it."""


def explanation_tables(
    explanation: Explanation, *, examples: Sequence[int] = (), everything: bool = False
) -> RenderableType:
    """The explanation for a terminal.

    Args:
        explanation: what to show.
        examples: those to show, each 0 .. num_examples - 1. Empty: the first few.
        everything: every example, and every id of a list.
    """
    scores = explanation.scores
    outputs = [each for each in explanation.package.manifest.outputs if each.name in scores]
    if not examples and not everything:
        most = COLUMNS_SHOWN // max(sum(each.scope == "example" for each in outputs), 1)
        examples = range(min(explanation.asked.sample.num_examples, max(most, 1)))
    shown = explanation_json(explanation, examples=examples)
    parts: list[Text | Table] = [_headline(explanation, shown), _changes(shown, outputs)]
    if shown["dense"]:
        parts.append(_dense(shown["dense"]))
    if shown["sparse"]:
        parts.append(_sparse(shown["sparse"], everything=everything))
    first, *others = parts
    return Group(first, *(each for part in others for each in (Text(), part)))


def _changes(shown: Document, outputs: Sequence[OutputSpec]) -> Table:
    """Scores, and their change without each input."""
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
    for each in (*shown["dense"], *shown["sparse"]):
        left_out = each["left_out"]
        if left_out["failed"]:
            _add_row(table, each["name"], f"{left_out['in_its_place']}: {left_out['failed']}")
            continue
        changes = [left_out["change"][name][place] for name, place in columns]
        _add_row(table, each["name"], left_out["in_its_place"], *map(_change, changes, scores))
    return table


def _headline(explanation: Explanation, shown: Document) -> Text:
    lines = [
        f"{shown['model']} {shown['version']}   {count_text(shown['num_examples'], 'example')}"
    ]
    asked = explanation.asked
    if any(spec.name not in asked.given_ids and len(each.values) for spec, each in asked.sparse()):
        lines.append("ids are as the package keeps them: of a string, the number it hashes to")
    if hidden := shown["num_examples"] - len(shown["examples"]):
        lines.append(f"{count_text(hidden, 'more example')} not shown")
    return Text("\n".join(lines))


def _dense(inputs: Sequence[Document]) -> Table:
    table = _table("dense input", "scope", "value")
    for each in inputs:
        values = ", ".join(f"{value:g}" for value in each["values"])
        note = "" if each["given"] else "   (its default: not given)"
        _add_row(table, each["name"], each["scope"], values + note)
    return table


def _sparse(inputs: Sequence[Document], *, everything: bool) -> Table:
    table = _table("sparse input", "map", "example", "id", "row", "table")
    table.add_column("norm", justify="right", no_wrap=True)
    for each in inputs:
        head = [each["name"], each["ids"]["kind"]]
        for one in each["lists"]:
            example = "" if one["example"] is None else str(one["example"])
            for place in range(len(each["lookups"])):
                for cells in _list(each, one, place, everything=everything):
                    _add_row(table, *head, example, *cells)
                    head, example = ["", ""], ""
    return table


def _list(feature: Document, one: Document, place: int, *, everything: bool) -> Iterator[list[str]]:
    """A list looked up once: its ids, those that are not shown, and the pooled vector."""
    counted = [each for each in one["ids"] if each["fate"] != "cut"]
    shown = one["ids"] if everything else counted[:IDS_SHOWN]
    lookup = feature["lookups"][place]
    for each in shown:
        yield _id_line(feature, lookup["table"], each, place)
    if hidden := [] if everything else counted[IDS_SHOWN:]:
        unknown = sum(each["fate"] != "known" for each in hidden)
        note = f"{unknown} of them unknown" if unknown else ""
        yield [f"... {len(hidden)} more", note, "", ""]
    cut = len(one["ids"]) - len(counted)
    if cut and not everything:
        yield [f"... {cut} more", _cut(feature), "", ""]
    norm = one["pooled_norms"][place]
    if norm is not None:  # A sequence has no pooled vector.
        yield [f"{lookup['pooling']} of {len(counted)}", "", lookup["table"], f"{norm:.4f}"]


def _id_line(feature: Document, table: str, one: Document, place: int) -> list[str]:
    given = one["id"] if one["given"] is None else one["given"]
    weight = "" if one["weight"] is None else f" x {one['weight']:g}"
    shown = f"{given!r:.40}{weight}"
    match one["fate"]:
        case "cut":
            return [shown, _cut(feature), "", ""]
        case "zero":
            return [shown, "zero (unknown)", "", "0.0000"]
    row = f"{one['row']}{'' if one['fate'] == 'known' else ' (unknown)'}"
    return [shown, row, table, f"{one['norms'][place]:.4f}"]


def _cut(feature: Document) -> str:
    return f"cut: {feature['keep']} {feature['max_ids']} kept"


def _score(values: ArrayLike) -> str:
    """A number, or the norm of several."""
    return f"{np.linalg.norm(values) if np.ndim(values) else values:.4f}"


def _change(values: ArrayLike, scores: ArrayLike) -> str:
    """The change of a score, or the norm of several changes."""
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
    """Cells as they are: names and ids may hold what rich would take for markup."""
    table.add_row(*map(Text, cells))
