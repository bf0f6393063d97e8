"""A ``PlanReport`` as one HTML page with inline SVG, without scripts or other files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from embershard.formatting import megabytes_text, ms_text

if TYPE_CHECKING:
    from embershard.planner.report import RankLoad

COLOURS = (
    *("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7"),
    *("#a463f2", "#97bbf5", "#9c6b4e", "#2d6a80", "#b5651d", "#7a9e33"),
)
OTHER, MARK = "#9498a0", "#d00"
WIDTH, LABEL, BAR, STEP = 640, 110, 16, 22
"""Pixels of a bar's largest width, of the names beside bars, of a bar's height, and from bar to
bar."""

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 62em; color: #1c1e21; }
h1 { font-size: 1.5em; } h2 { font-size: 1.1em; margin-top: 1.8em; }
table { border-collapse: collapse; } th, td { padding: 2px 12px 2px 0; text-align: left; }
th { border-bottom: 1px solid #999; } td { border-bottom: 1px solid #e3e3e3; }
svg text { font: 12px system-ui, sans-serif; fill: #1c1e21; }
.name { white-space: nowrap; margin-right: 14px; }
.key { display: inline-block; width: 10px; height: 10px; margin-right: 4px; }
"""


def report_html(
    title: str,
    ranks: Sequence[RankLoad],
    *,
    bound_seconds: float,
    tables: Sequence[str],
    lines: Sequence[str],
    unit: str,
    sections: Sequence[tuple[list[str], list[list[str]]]],
) -> str:
    """Make the page of a report. ``tables`` has the names, heaviest first."""
    colours = dict(zip(tables, COLOURS, strict=False))
    body = [f"<h1>{escape(title)}</h1>"]
    marked = (re.sub("`([^`]+)`", r"<code>\1</code>", escape(line)) for line in lines)
    body += [f"<p>{line}</p>" for line in marked]
    body.append(_legend(colours, len(tables)))
    body.append(f"<h2>Load: ms a {escape(unit)}{_marked('bound')}</h2>")
    body.append(_bars(ranks, bound_seconds, colours, memory=False))
    capped = any(rank.memory_bytes_max is not None for rank in ranks)
    body.append(f"<h2>Memory: MB{_marked('cap') if capped else ''}</h2>")
    body.append(_bars(ranks, bound_seconds, colours, memory=True))
    for head, rows in sections:
        body.append(f"<h2>{escape(head[0].capitalize())}</h2>")
        body.append(_table(head, rows))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _marked(what: str) -> str:
    return f', <span style="color:{MARK}">|</span> {what}'


def _legend(colours: dict[str, str], tables: int) -> str:
    shown = dict(colours)
    if tables > len(colours):
        shown[f"{tables - len(colours):,} lighter tables"] = OTHER
    keys = [
        f'<span class="name"><span class="key" style="background:{colour}"></span>{escape(name)}'
        "</span>"
        for name, colour in shown.items()
    ]
    return f"<p>{' '.join(keys)}</p>"


def _bars(
    ranks: Sequence[RankLoad], bound_seconds: float, colours: dict[str, str], *, memory: bool
) -> str:
    """One bar for each rank, stacked by table: load with the bound, or memory with the caps."""
    caps = [rank.memory_bytes_max or 0 for rank in ranks]
    marks = caps if memory else [bound_seconds] * len(ranks)
    longest = max(*(_total(rank, memory) for rank in ranks), *marks, 1e-12)
    height = STEP * len(ranks) + 4
    shapes = list[str]()
    for row, (rank, mark) in enumerate(zip(ranks, marks, strict=True)):
        top = STEP * row + 4
        total = _total(rank, memory)
        shown = megabytes_text(total) if memory else ms_text(total)
        shapes.append(f'<text x="0" y="{top + 12}">{escape(rank.name)}</text>')
        left = 0.0
        for name, size, colour in _stack(rank, colours, memory=memory):
            wide = size / longest * WIDTH
            value = f"{megabytes_text(size)} MB" if memory else f"{ms_text(size)} ms"
            shapes.append(
                f'<rect x="{LABEL + left:.2f}" y="{top}" width="{wide:.2f}" height="{BAR}" '
                f'fill="{colour}"><title>{escape(name)}: {value}</title></rect>'
            )
            left += wide
        shapes.append(f'<text x="{LABEL + WIDTH + 8}" y="{top + 12}">{shown}</text>')
        if mark:
            at = LABEL + mark / longest * WIDTH
            shapes.append(
                f'<line x1="{at:.2f}" x2="{at:.2f}" y1="{top - 3}" y2="{top + BAR + 3}" '
                f'stroke="{MARK}" stroke-width="2"><title>{"cap" if memory else "bound"}</title>'
                "</line>"
            )
    wide, shown = LABEL + WIDTH + 90, "memory" if memory else "load"
    return (
        f'<svg role="img" aria-label="{shown} of each device" width="{wide}" height="{height}" '
        f'viewBox="0 0 {wide} {height}">{"".join(shapes)}</svg>'
    )


def _total(rank: RankLoad, memory: bool) -> float:
    return rank.memory_bytes if memory else rank.seconds


def _stack(
    rank: RankLoad, colours: dict[str, str], *, memory: bool
) -> list[tuple[str, float, str]]:
    """Name, size and colour of each piece: the heaviest tables, and all others together."""
    sizes, other = dict[str, float](), 0.0
    for part in rank.parts:
        size = part.memory_bytes if memory else part.seconds
        if part.table in colours:
            sizes[part.table] = size
        else:
            other += size
    pieces = [(name, sizes[name], colour) for name, colour in colours.items() if name in sizes]
    return [*pieces, ("lighter tables", other, OTHER)] if other else pieces


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th>{escape(column)}</th>" for column in head)
    lines = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table><tr>{cells}</tr>\n{chr(10).join(lines)}</table>"
