"""Requests drawn from a served model's schema, and the short forms in which people say how."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from embershard._proto import predictor_pb2 as pb
from embershard.bench.id_sources import IdSource, scattered, zipf_ranks
from embershard.bench.load_options import PooledRequest
from embershard.client import ServedInput, ServedModel
from embershard.client.arguments import name_of, priority_of, version_of
from embershard.errors import InputError

Span = tuple[int, int]
"""First and last of a range of whole numbers, each as likely."""

MLPERF_EXAMPLES: Final = tuple(
    (size, size) for size in [100, 100, *[200] * 12, 300, 300, 400, 500, 600, 700]
)
"""Sizes of MLPerf Inference's DLRM-v2 queries: 20 quantiles, each as likely, mean 270."""

LONGEST_BY_DEFAULT: Final = 50
"""Of lists whose length neither the schema nor an option bounds below."""

CHUNK: Final = 100
"""Requests drawn at once: enough that a draw costs little for each."""

CHUNK_EXAMPLES: Final = 100_000
"""Most examples drawn at once, of the largest requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """What requests look like."""

    examples: tuple[Span, ...] = ((1, 1),)
    """Examples of a request: one of the ranges, each as likely, then a number in it."""

    zipf_alpha: float | None = 1.05
    """Ids by Zipf's law. None: all as likely."""

    lengths: Mapping[str, Span] = field(default_factory=dict)
    """Ids per list by feature; under "" for those not named. Otherwise 0 .. max_ids (at most 50),
    and 1 where the schema has no limit."""

    pool_requests: int = 1000
    """Different requests, sent in turn."""

    pool_bytes_max: int = 256 << 20
    """Together; there are fewer requests where they would be larger."""

    priority: Literal["interactive", "background"] = "interactive"
    """Of every request."""

    version: int = 0
    """Of the model, in every request. 0: none is named, so that requests follow the default version
    when it changes."""

    label: str = ""
    """Of the version, in place of its number. Empty: none is named."""

    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.pool_requests <= 1_000_000:
            raise InputError(f"pool: expected 1 .. 1000000, got {self.pool_requests}")
        priority_of(self.priority)
        version_of(self.version)
        name_of("label", self.label)
        if self.version and self.label:
            raise InputError(
                f"expected a version or a label, got version {self.version} and label "
                f"{self.label!r}"
            )
        if not 0 <= self.seed <= 1 << 62:
            raise InputError(f"seed: expected 0 .. 2**62, got {self.seed}")


def draw_requests(
    model: ServedModel, sources: Mapping[str, IdSource], options: TrafficOptions
) -> list[PooledRequest]:
    """Draw a pool of requests in the packed form; the same options and model give the same ones.
    ``sources``: of the ids of each sparse input."""
    unknown = set(options.lengths) - {""} - {item.name for item in model.sparse}
    if unknown:
        raise InputError(f"lengths: {sorted(unknown)[0]!r} is no sparse input of {model.name!r}")
    largest = max(high for _, high in options.examples)
    if largest > model.max_examples:
        raise InputError(
            f"examples: expected at most {model.max_examples}, the server's limit, got {largest}"
        )
    chunk = min(CHUNK, max(1, CHUNK_EXAMPLES // largest))
    random = np.random.default_rng(options.seed)
    pool: list[PooledRequest] = []
    size_bytes = 0
    while len(pool) < options.pool_requests and size_bytes < options.pool_bytes_max:
        count = min(chunk, options.pool_requests - len(pool))
        for drawn in _draw_chunk(random, count, model, sources, options):
            _check_limits(model, drawn)
            pool.append(drawn)
            size_bytes += len(drawn.message)
    return pool


def _draw_chunk(
    random: np.random.Generator,
    count: int,
    model: ServedModel,
    sources: Mapping[str, IdSource],
    options: TrafficOptions,
) -> list[PooledRequest]:
    spans = np.array(options.examples, np.int64)[random.integers(len(options.examples), size=count)]
    examples = random.integers(spans[:, 0], spans[:, 1], endpoint=True)
    columns = [
        _Column.draw(random, examples, item, sources[item.name], options) for item in model.sparse
    ]
    heads = [
        pb.PredictRequest(
            model=model.name,
            version=options.version,
            label=options.label,
            num_examples=int(size),
            priority=priority_of(options.priority),
        )
        for size in examples
    ]
    return [_packed(random, model, columns, index, head) for index, head in enumerate(heads)]


@dataclass(frozen=True, slots=True)
class _Column:
    """One sparse input of several requests."""

    lengths: NDArray[np.int32]
    lists_before: NDArray[np.int64]  # [requests + 1]: in the requests before each.
    ids: NDArray[np.int64]
    ids_before: NDArray[np.int64]  # Likewise.

    @classmethod
    def draw(
        cls,
        random: np.random.Generator,
        examples: NDArray[np.int64],
        item: ServedInput,
        source: IdSource,
        options: TrafficOptions,
    ) -> _Column:
        lists = examples if item.scope == "example" else np.ones_like(examples)
        lists_before = np.concatenate([[0], np.cumsum(lists)])
        low, high = length_span(item, options)
        lengths = random.integers(low, high, endpoint=True, size=int(lists_before[-1]))
        total = int(lengths.sum())
        if options.zipf_alpha is None:
            places = random.integers(source.size, size=total)
        else:
            ranks = zipf_ranks(random, total, size=source.size, alpha=options.zipf_alpha)
            places = scattered(ranks, source.size)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return cls(
            lengths.astype(np.int32), lists_before, source.ids_at(places), ends[lists_before]
        )

    def lengths_of(self, request: int) -> NDArray[np.int32]:
        return self.lengths[self.lists_before[request] : self.lists_before[request + 1]]

    def ids_of(self, request: int) -> NDArray[np.int64]:
        return self.ids[self.ids_before[request] : self.ids_before[request + 1]]


def length_span(item: ServedInput, options: TrafficOptions) -> Span:
    """How many ids a list of one input has."""
    if item.name in options.lengths:
        span = options.lengths[item.name]
        if item.max_ids and span[1] > item.max_ids:
            raise InputError(
                f"lengths: expected at most {item.max_ids} ids for {item.name!r}, got {span[1]}"
            )
        return span
    longest = item.max_ids or (1 << 31) - 1
    if "" in options.lengths:
        low, high = options.lengths[""]
        return min(low, longest), min(high, longest)
    return (0, min(item.max_ids, LONGEST_BY_DEFAULT)) if item.max_ids else (1, 1)


def _packed(
    random: np.random.Generator,
    model: ServedModel,
    columns: list[_Column],
    index: int,
    message: pb.PredictRequest,
) -> PooledRequest:
    examples = message.num_examples
    packed = message.packed
    packed.schema = model.fingerprint
    request_width = sum(item.scope == "request" for item in model.dense)
    example_width = len(model.dense) - request_width
    packed.request_dense = random.standard_normal(request_width, np.float32).tobytes()
    packed.example_dense = random.standard_normal(examples * example_width, np.float32).tobytes()
    packed.lengths = b"".join(column.lengths_of(index).tobytes() for column in columns)
    packed.values = b"".join(column.ids_of(index).tobytes() for column in columns)
    packed.weights = b"".join(
        random.random(len(column.ids_of(index)), np.float32).tobytes()
        for item, column in zip(model.sparse, columns, strict=True)
        if item.weighted
    )
    return PooledRequest(message.SerializeToString(), examples, len(packed.values) // 8)


def _check_limits(model: ServedModel, drawn: PooledRequest) -> None:
    if drawn.ids > model.max_ids:
        raise InputError(
            f"a request of {drawn.examples} examples drew {drawn.ids} ids, and the server takes "
            f"{model.max_ids}: expected fewer examples or shorter lists (--examples, --lengths)"
        )
    if len(drawn.message) > model.max_message_bytes:
        raise InputError(
            f"a request of {drawn.examples} examples has {len(drawn.message)} bytes, and the "
            f"server takes {model.max_message_bytes}: expected fewer examples (--examples)"
        )


SPAN: Final = re.compile(r"(-?\d+)(?:\.\.(-?\d+))?")

LARGEST_ALPHA: Final = 20.0


def parse_examples(text: str) -> tuple[Span, ...]:
    """Examples of a request: ``8``, ``1..200`` or ``mlperf``.

    Raises:
        InputError: another form, or fewer than 1.
    """
    if text == "mlperf":
        return MLPERF_EXAMPLES
    return (_span("examples", text, least=1, most=(1 << 31) - 1, hint=" or mlperf"),)


def parse_ids(text: str) -> float | None:
    """How ids are drawn: ``uniform`` (None), or ``zipf:ALPHA``.

    Raises:
        InputError: another form, or an alpha that is not above 0 and at most 20.
    """
    if text == "uniform":
        return None
    kind, _, alpha = text.partition(":")
    try:
        value = float(alpha) if kind == "zipf" else math.nan
    except ValueError:
        value = math.nan
    if not 0 < value <= LARGEST_ALPHA:
        raise InputError(f"ids: expected uniform or zipf:ALPHA (0 < ALPHA <= 20), got {text!r}")
    return value


def parse_spans(what: str, texts: Sequence[str], *, least: int, most: int) -> dict[str, Span]:
    """``A..B`` for all features, ``NAME=A..B`` for one; the last of a name counts.

    Args:
        what: the option's name, for errors.
        texts: as they were given.
        least, most: bounds of A and B.

    Returns:
        Ranges by feature; under "" the one for all.

    Raises:
        InputError: another form, or out of bounds.
    """
    found = {}
    for text in texts:
        name, _, span = text.rpartition("=")  # A name may hold one too.
        found[name] = _span(what, span, least=least, most=most)
    return found


def _span(what: str, text: str, *, least: int, most: int, hint: str = "") -> Span:
    match = SPAN.fullmatch(text)
    if not match:
        raise InputError(f"{what}: expected N or A..B{hint}, got {text!r}")
    low = int(match[1])
    high = int(match[2]) if match[2] else low
    if not least <= low <= high <= most:
        raise InputError(f"{what}: expected {least} <= A <= B <= {most}, got {text!r}")
    return low, high
