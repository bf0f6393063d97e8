"""An explanation as tables for people: what moves the scores, then what every id became."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from embershard.explain.explanation import Explanation
from embershard.explain.features import LookedUp, Place, SparseExplained
from embershard.explain.request import DenseAsked
from embershard.formatting import count_text, devices_text
from embershard.package.manifest import OutputSpec

COLUMNS_SHOWN = 4
"""Scores beside one another, where outputs have many examples."""

IDS_SHOWN = 4
DEVICES_SHOWN = 8
NOISE = 1e-6
"""What a score of about 1 may differ by where nothing changed: the order of additions."""


def explanation_tables(
    explanation: Explanation, *, examples: Sequence[int] = (), everything: bool = False
) -> RenderableType:
    """The explanation for a terminal.

    Args:
        explanation: what to show.
        examples: those to show, each 0 .. num_examples - 1. Empty: the first few.
        everything: every example, and every id of a list.
    """
    return _Tables(explanation, examples, everything).all()


@dataclass(frozen=True, slots=True)
class _Tables:
    explanation: Explanation
    asked_examples: Sequence[int]
    everything: bool

    @property
    def examples(self) -> list[int]:
        if self.asked_examples:
            return list(self.asked_examples)
        outputs = sum(each.scope == "example" for each in self.outputs)
        most = max(1, COLUMNS_SHOWN // max(outputs, 1))
        count = self.explanation.num_examples
        return list(range(count if self.everything else min(count, most)))

    @property
    def outputs(self) -> list[OutputSpec]:
        """Those that were asked for."""
        manifest, scores = self.explanation.manifest, self.explanation.scores
        return [each for each in manifest.outputs if each.name in scores]

    def all(self) -> RenderableType:
        parts: list[Text | Table] = [self.headline(), self.changes()]
        if self.explanation.dense:
            parts.append(self.dense())
        if self.explanation.sparse:
            parts.append(self.sparse())
        first, *others = parts
        return Group(first, *(each for part in others for each in (Text(), part)))

    def headline(self) -> Text:
        what = self.explanation
        lines = [
            f"{what.manifest.model} {what.manifest.version}   "
            f"{count_text(what.num_examples, 'example')}   "
            f"plan {what.plan.name} ({devices_text(what.plan.devices, shown=DEVICES_SHOWN)})"
        ]
        if what.not_scored_with:
            lines.append(f"scores by plan {what.scored_with}: {what.not_scored_with}")
        if any(each.asked.given is None and len(each.asked.ids) for each in what.sparse):
            lines.append("ids are as the package keeps them: of a string, the number it hashes to")
        hidden = what.num_examples - len(self.examples)
        if hidden:
            lines.append(f"{count_text(hidden, 'more example')} not shown")
        return Text("\n".join(lines))

    def changes(self) -> Table:
        """Scores, and their change without each input."""
        columns = [
            (output, place, example)
            for output in self.outputs
            for place, example in self._rows_of(output)
        ]
        table = _table("left out", "in its place")
        for output, _, example in columns:
            head = [output.name] if example is None else [output.name, f"example {example}"]
            head += ["norm"] if output.shape else []
            table.add_column(Text("\n".join(head)), justify="right", no_wrap=True)
        scores = self.explanation.scores
        shown = (_score(scores[output.name][place]) for output, place, _ in columns)
        _add_row(table, "(nothing)", "", *shown)
        for each in self.explanation.left_out:
            cells = [
                _change(each.change[output.name][place], scores[output.name][place])
                for output, place, _ in columns
                if not each.failed
            ]
            place = f"{each.in_its_place}: {each.failed}" if each.failed else each.in_its_place
            _add_row(table, each.input, place, *cells)
        return table

    def _rows_of(self, output: OutputSpec) -> list[tuple[int, int | None]]:
        """Rows of an output's array, and the example each is of."""
        if output.scope == "request":
            return [(0, None)]
        return [(number, number) for number in self.examples]

    def dense(self) -> Table:
        table = _table("dense input", "scope", "value")
        for each in self.explanation.dense:
            values = each.values if each.spec.scope == "request" else each.values[self.examples]
            shown = ", ".join(f"{value:g}" for value in values)
            _add_row(table, each.spec.name, each.spec.scope, shown + _default_note(each))
        return table

    def sparse(self) -> Table:
        table = _table("sparse input", "map", "example", "id", "row", "table", "on")
        table.add_column("norm", justify="right", no_wrap=True)
        for feature in self.explanation.sparse:
            head = [feature.asked.spec.name, feature.asked.spec.ids.kind]
            for cells in self._lines(feature):
                _add_row(table, *head, *cells)
                head = ["", ""]
        return table

    def _lines(self, feature: SparseExplained) -> Iterator[list[str]]:
        """The lines of one input: its lists, each as often as it is looked up."""
        whole_request = feature.asked.spec.scope == "request"
        for number in [0] if whole_request else self.examples:
            example = "" if whole_request else str(number)
            for looked_up in feature.lookups:
                for cells in self._list(feature, looked_up, number):
                    yield [example, *cells]
                    example = ""

    def _list(
        self, feature: SparseExplained, looked_up: LookedUp, number: int
    ) -> Iterator[list[str]]:
        """Its ids, those that are not shown, and the pooled vector."""
        here = feature.places_in(number)
        counted = [at for at in here if feature.fates[at] != "cut"]
        shown = here if self.everything else counted[:IDS_SHOWN]
        for at in shown:
            yield _id_line(feature, looked_up, at)
        if len(shown) < len(counted):
            hidden = counted[len(shown) :]
            unknown = sum(feature.fates[at] in ("oov", "zero") for at in hidden)
            note = f"{unknown} of them unknown" if unknown else ""
            yield [f"... {len(hidden)} more", note, "", "", ""]
        if len(counted) < len(here) and not self.everything:
            yield [f"... {len(here) - len(counted)} more", _cut(feature), "", "", ""]
        if looked_up.lookup.output == "sequence":
            return  # The ids' own vectors are all there is.
        pooled = f"{looked_up.lookup.pooling} of {len(counted)}"
        yield [pooled, "", looked_up.table.name, "", f"{looked_up.pooled[number]:.4f}"]


def _id_line(feature: SparseExplained, looked_up: LookedUp, at: int) -> list[str]:
    given = int(feature.asked.ids[at]) if feature.asked.given is None else feature.asked.given[at]
    weight = "" if feature.asked.weights is None else f" x {feature.asked.weights[at]:g}"
    shown = f"{given!r:.40}{weight}"
    match feature.fates[at]:
        case "cut":
            return [shown, _cut(feature), "", "", ""]
        case "zero":
            return [shown, "zero (unknown)", "", "", "0.0000"]
        case "oov":
            row = f"{feature.rows[at]} (unknown)"
        case "known":
            row = f"{feature.rows[at]}"
    where = _where(looked_up.places[at])
    return [shown, row, looked_up.table.name, where, f"{looked_up.norms[at]:.4f}"]


def _cut(feature: SparseExplained) -> str:
    return f"cut: {feature.asked.spec.keep} {feature.asked.spec.max_ids} kept"


def _where(places: Iterable[Place]) -> str:
    """ "cpu:0", "cpu:0 or cpu:1" for replicas, "0..4 cpu:0, 4..8 cpu:1" for columns."""
    found = [(place.columns, " or ".join(place.devices)) for place in places]
    if len(found) == 1:
        return found[0][1]
    return ", ".join(f"{first}..{end} {devices}" for (first, end), devices in found)


def _default_note(dense: DenseAsked) -> str:
    return "" if dense.given else "   (its default: not given)"


def _score(values: NDArray[np.float32]) -> str:
    """A number, or the norm of several."""
    if values.ndim == 0:
        return f"{values:.4f}"
    return f"{np.linalg.norm(values):.4f}"


def _change(values: NDArray[np.float32], scores: NDArray[np.float32]) -> str:
    if float(np.abs(values).max()) <= NOISE * max(1.0, float(np.abs(scores).max())):
        return "0"
    number, sign = float(np.linalg.norm(values)), ""
    if values.ndim == 0:
        number, sign = float(values), "+"
    return f"{number:{sign}.4f}" if abs(number) >= 1e-3 else f"{number:{sign}.1e}"


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _add_row(table: Table, *cells: str) -> None:
    """Cells as they are: names and ids may hold what rich would take for markup."""
    table.add_row(*map(Text, cells))
