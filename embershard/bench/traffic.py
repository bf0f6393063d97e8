"""The requests of a bench, drawn or recorded, and their description for the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embershard.bench.id_sources import find_id_sources
from embershard.bench.load_options import PooledRequest
from embershard.bench.random_requests import Span, TrafficOptions, draw_requests
from embershard.bench.replay import Replay
from embershard.client import ServedModel

TRIED_FIRST: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    pool: Sequence[PooledRequest]

    tried: Sequence[PooledRequest]
    """A few requests that the server should accept. They are sent one by one before the load."""

    words: Sequence[str]
    warnings: Sequence[str]


def drawn_traffic(
    model: ServedModel,
    options: TrafficOptions,
    *,
    id_ranges: Mapping[str, Span],
    package: Path | None,
) -> Traffic:
    """Raises the errors of `find_id_sources` and `draw_requests`."""
    sources = find_id_sources(model, ranges=id_ranges, package=package)
    pool = draw_requests(model, sources, options)
    alpha = options.zipf_alpha
    return Traffic(
        pool=pool,
        tried=pool[:TRIED_FIRST],
        words=[
            f"{len(pool):,} different requests, sent in turn, seed {options.seed}",
            _means(pool, law=" (uniform)" if alpha is None else f" (zipf {alpha:g})"),
            *sorted({f"ids known from {source.where}" for source in sources.values()}),
        ],
        warnings=[],
    )


def recorded_traffic(replay: Replay, model: ServedModel) -> Traffic:
    """Refused requests are not tried before. `InputError`: the model has another schema."""
    replay.check_model(model)
    good = [
        request
        for request, call in zip(replay.requests, replay.calls, strict=True)
        if call.code == 0
    ]
    recording = replay.recording
    warnings = []
    if recording.torn_bytes:
        warnings.append(
            f"{replay.path}: the last {recording.torn_bytes} bytes are an incomplete record, and "
            "are ignored"
        )
    return Traffic(
        pool=replay.requests,
        tried=good[:TRIED_FIRST],
        words=[
            f"{len(replay.requests):,} recorded requests, sent in turn, from {replay.path}",
            _means(replay.requests),
            f"recorded from {recording.model} {recording.version}, {recording.share * 100:.3g} % "
            f"of its calls, {len(good):,} answered OK",
        ],
        warnings=warnings,
    )


def _means(pool: Sequence[PooledRequest], *, law: str = "") -> str:
    count = len(pool)
    return (
        f"on average {sum(request.examples for request in pool) / count:,.1f} examples, "
        f"{sum(request.ids for request in pool) / count:,.1f} ids{law}, "
        f"{sum(len(request.message) for request in pool) / count:,.0f} bytes"
    )
