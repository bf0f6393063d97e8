"""``Routes``: which pooled columns are sent straight to the rank of their examples, and which are
first summed inside a host.

    a table cut by rows over ranks 0 and 1 of host 0; host 1 has ranks 2 and 3

    0 ──┬──▶ 0 ──▶ 2       1. rank 0 gets the partial sums of 0 and 1 for the batches of 0 and 2,
    1 ──┘                     rank 1 those for the batches of 1 and 3
    0 ──┬──▶ 1 ──▶ 3       2. one sum for each rank crosses between the hosts
    1 ──┘

Columns that only one rank of a host has are sent straight, in step 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from embershard.sharding.layout import Copy, Layout, Span, add_copy


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of some parts of a rank, side by side."""

    copies: tuple[Copy, ...]
    """Copies from these columns to the output or to the sums of a host, contiguous ones merged."""

    widths: tuple[int, ...]
    """Width of each part's vector."""

    sources: tuple[Copy, ...]
    """Copies from the columns of all parts of the rank to these columns."""

    @property
    def dim(self) -> int:
        return sum(self.widths)


@dataclass(frozen=True, slots=True)
class Routes:
    direct: tuple[Columns, ...]
    """For each rank, columns that go to the output."""

    shared: tuple[Columns, ...]
    """For each rank, columns that go to the sums of its host."""

    sums: tuple[Columns, ...]
    """For each host, columns from its sums to the output."""


def build_routes(layout: Layout, local_size: int | None, *, all_shared: bool = False) -> Routes:
    """Build the routes of a layout. If ``local_size`` is None, no column is summed inside hosts. If
    ``all_shared``, all columns go through the hosts' sums."""
    spans, local_size = [_spans(layout, rank) for rank in range(len(layout.parts))], local_size or 1
    sums, is_shared = list[list[Span]](), list[list[bool]]()
    for first in range(0, len(spans), local_size):
        of_host = spans[first : first + local_size]
        for rank, own in enumerate(of_host):
            others = [
                span
                for other, spans_of_rank in enumerate(of_host)
                if other != rank
                for span in spans_of_rank
            ]
            is_shared.append(
                [all_shared or any(_overlap(span, other) for other in others) for span in own]
            )
        shared = [
            span
            for own, flags in zip(of_host, is_shared[first:], strict=True)
            for span, is_chosen in zip(own, flags, strict=True)
            if is_chosen
        ]
        sums.append(_pieces(shared))
    starts = [dict(zip((span.first for span in host), _starts(host), strict=True)) for host in sums]
    return Routes(
        tuple(
            _columns(own, [not flag for flag in flags])
            for own, flags in zip(spans, is_shared, strict=True)
        ),
        tuple(
            _columns(own, flags, starts[rank // local_size])
            for rank, (own, flags) in enumerate(zip(spans, is_shared, strict=True))
        ),
        tuple(_columns(host, [True] * len(host)) for host in sums),
    )


def _spans(layout: Layout, rank: int) -> list[Span]:
    """Columns of the output of each part of a rank."""
    columns = list[Span]()
    for part in layout.parts[rank]:
        lookup = layout.lookups[layout.buckets[layout.streams[rank][part.stream]].lookup]
        first, end = part.shard.columns
        columns.append(Span(lookup.columns.first + first, lookup.columns.first + end))
    return columns


def _overlap(one: Span, other: Span) -> bool:
    return one.first < other.end and other.first < one.end


def _pieces(spans: Sequence[Span]) -> list[Span]:
    """Union of the spans, cut at every edge of a span."""
    edges = sorted({edge for span in spans for edge in span})
    return [
        Span(*piece)
        for piece in pairwise(edges)
        if any(_overlap(Span(*piece), span) for span in spans)
    ]


def _starts(spans: Sequence[Span]) -> list[int]:
    """First column of each span if all are side by side."""
    return list(accumulate((span.end - span.first for span in spans), initial=0))[:-1]


def _columns(
    spans: Sequence[Span], chosen: Sequence[bool], places: Mapping[int, int] | None = None
) -> Columns:
    """Columns of the chosen parts. ``places`` maps a first column of the output to its place in the
    host's sums. None: they go to the output."""
    copies, sources, at = list[Copy](), list[Copy](), 0
    widths = list[int]()
    for span, start, is_chosen in zip(spans, _starts(spans), chosen, strict=True):
        if is_chosen:
            width = span.end - span.first
            target = span.first if places is None else places[span.first]
            add_copy(copies, Copy(at, target, width))
            add_copy(sources, Copy(start, at, width))
            widths.append(width)
            at += width
    return Columns(tuple(copies), tuple(widths), tuple(sources))
