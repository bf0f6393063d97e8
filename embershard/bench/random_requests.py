"""Draws random requests that fit a served model's schema, and parses the options for them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from embershard._proto import predictor_pb2 as pb
from embershard.bench.id_sources import IdSource, scatter_ranks, zipf_ranks
from embershard.bench.load_options import PooledRequest
from embershard.client import ServedInput, ServedModel
from embershard.client.arguments import name_of, priority_of, version_of
from embershard.errors import InputError

Span = tuple[int, int]
"""First and last of a range of whole numbers, drawn uniformly."""

MLPERF_EXAMPLES: Final = tuple(
    (size, size) for size in [100, 100, *[200] * 12, 300, 300, 400, 500, 600, 700]
)
"""Sizes of MLPerf Inference's DLRM-v2 queries: 20 equally likely quantiles with mean 270."""

LONGEST_BY_DEFAULT: Final = 50
"""Limit on the drawn length of a list if no option sets its length."""

CHUNK: Final = 100
"""Requests that one draw makes."""

CHUNK_EXAMPLES: Final = 100_000
"""Limit on the examples of one draw, which bounds its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    examples: tuple[Span, ...] = ((1, 1),)
    """Number of examples in a request. A request draws one of the ranges, then a number in it."""

    zipf_alpha: float | None = 1.05
    """Exponent of the Zipf distribution of ids. None: all ids are equally likely."""

    lengths: Mapping[str, Span] = field(default_factory=dict)
    """Ids per list by feature name; the key "" is for all other features. Without an entry a list
    has 0 .. max_ids ids (at most 50), or 1 id if the schema has no max_ids."""

    pool_requests: int = 1000
    """Number of different requests, which are sent in turn."""

    pool_bytes_max: int = 256 << 20
    """Size at which the pool takes no further request."""

    priority: Literal["interactive", "background"] = "interactive"

    version: int = 0
    """Version of the model that requests name. 0: requests follow the default version when it
    changes."""

    label: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.pool_requests <= 1_000_000:
            raise InputError(f"pool: expected 1 .. 1000000, got {self.pool_requests}")
        priority_of(self.priority)
        version_of(self.version)
        name_of("label", self.label)
        if self.version and self.label:
            raise InputError(
                f"expected a version or a label, not both, got version {self.version} and label "
                f"{self.label!r}"
            )
        if not 0 <= self.seed <= 1 << 62:
            raise InputError(f"seed: expected 0 .. 2**62, got {self.seed}")


def draw_requests(
    model: ServedModel, sources: Mapping[str, IdSource], options: TrafficOptions
) -> list[PooledRequest]:
    """Draw a pool of packed requests. Equal options and models draw equal pools."""
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
    return [_pack(random, model, columns, index, head) for index, head in enumerate(heads)]


@dataclass(frozen=True, slots=True)
class _Column:
    lengths: NDArray[np.int32]
    list_offsets: NDArray[np.int64]  # [requests + 1]
    ids: NDArray[np.int64]
    id_offsets: NDArray[np.int64]  # [requests + 1]

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
        list_offsets = np.concatenate([[0], np.cumsum(lists)])
        low, high = length_span(item, options)
        lengths = random.integers(low, high, endpoint=True, size=int(list_offsets[-1]))
        total = int(lengths.sum())
        if options.zipf_alpha is None:
            places = random.integers(source.size, size=total)
        else:
            ranks = zipf_ranks(random, total, size=source.size, alpha=options.zipf_alpha)
            places = scatter_ranks(ranks, source.size)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return cls(
            lengths.astype(np.int32), list_offsets, source.ids_at(places), ends[list_offsets]
        )

    def lengths_of(self, request: int) -> NDArray[np.int32]:
        return self.lengths[self.list_offsets[request] : self.list_offsets[request + 1]]

    def ids_of(self, request: int) -> NDArray[np.int64]:
        return self.ids[self.id_offsets[request] : self.id_offsets[request + 1]]


def length_span(item: ServedInput, options: TrafficOptions) -> Span:
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


def _pack(
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
            f"expected requests of at most {model.max_ids} ids, the server's limit, got one with "
            f"{drawn.ids} ids in {drawn.examples} examples; choose fewer examples (--examples) or "
            "shorter lists (--lengths)"
        )
    if len(drawn.message) > model.max_message_bytes:
        raise InputError(
            f"expected requests of at most {model.max_message_bytes} bytes, the server's limit, "
            f"got one with {len(drawn.message)} bytes in {drawn.examples} examples; choose fewer "
            "examples (--examples)"
        )


SPAN: Final = re.compile(r"(-?\d+)(?:\.\.(-?\d+))?")

LARGEST_ALPHA: Final = 20.0


def parse_examples(text: str) -> tuple[Span, ...]:
    """Parse the number of examples per request: ``8``, ``1..200`` or ``mlperf``.

    Raises:
        InputError: the text has another form, or a number is less than 1.
    """
    if text == "mlperf":
        return MLPERF_EXAMPLES
    return (_span("examples", text, least=1, most=(1 << 31) - 1, hint=" or mlperf"),)


def parse_ids(text: str) -> float | None:
    """Parse the distribution of ids: ``zipf:ALPHA``, or ``uniform`` (returns None).

    Raises:
        InputError: the text has another form, or alpha is outside 0 < alpha <= 20.
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
    """Parse ranges by feature name: ``A..B`` (key "", all other features) or ``NAME=A..B``.

    Args:
        what: name of the option, for errors.
        least, most: bounds of A and B.

    Raises:
        InputError: a text has another form, or a number is out of bounds.
    """
    spans = {}
    for text in texts:
        name, _, span = text.rpartition("=")  # A name may contain "=" too.
        spans[name] = _span(what, span, least=least, most=most)
    return spans


def _span(what: str, text: str, *, least: int, most: int, hint: str = "") -> Span:
    match = SPAN.fullmatch(text)
    if not match:
        raise InputError(f"{what}: expected N or A..B{hint}, got {text!r}")
    low = int(match[1])
    high = int(match[2]) if match[2] else low
    if not least <= low <= high <= most:
        raise InputError(f"{what}: expected {least} <= A <= B <= {most}, got {text!r}")
    return low, high
