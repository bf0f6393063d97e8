"""``exchange_vectors``: an all-to-all of vectors, in float32 or fewer bits.

Vectors of equal length form a block ``(rows, count * width)``. A rank sends some blocks to each
rank.

fp32    unchanged
fp16    rounded; infinite beyond 65504
bf16    rounded
int8    256 steps from a vector's minimum to its maximum, and 8 bytes of scale and offset
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from embershard.collectives import all_to_all, collective
from embershard.errors import InputError
from embershard.kernels import ROW_CODEC_BYTES, decode_rows, encode_rows

POOLED, SEQUENCE = "POOLED_EMBEDDINGS_ALL_TO_ALL", "SEQUENCE_EMBEDDINGS_ALL_TO_ALL"


class CommType(Enum):
    """Data type of vectors between ranks."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


_DTYPES: Mapping[CommType, torch.dtype] = {
    CommType.FP32: torch.float32,
    CommType.FP16: torch.float16,
    CommType.BF16: torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class QCommsConfig:
    """Data types of vectors and their gradients between ranks.

    Raises:
        InputError: a precision that is not a CommType, or a scale that is not above 0 or not for
            fp16.
    """

    forward_precision: CommType = CommType.FP32
    backward_precision: CommType = CommType.FP32
    forward_loss_scale: float | None = None
    """Factor of vectors before rounding to fp16, divided out afterwards. None: 1."""

    backward_loss_scale: float | None = None
    """Factor of gradients, so that small ones do not round to 0 in fp16. None: 1."""

    def __post_init__(self) -> None:
        for way, precision, scale in (
            ("forward", self.forward_precision, self.forward_loss_scale),
            ("backward", self.backward_precision, self.backward_loss_scale),
        ):
            if not isinstance(precision, CommType):
                raise InputError(f"{way}_precision: expected a CommType, got {precision!r}")
            if scale is not None and (precision is not CommType.FP16 or not scale > 0):
                raise InputError(
                    f"{way}_loss_scale: expected above 0 and with CommType.FP16, got {scale} with "
                    f"{precision}"
                )


def get_qcomm_codecs_registry(
    qcomms_config: QCommsConfig, device: torch.device | None = None
) -> dict[str, QCommsConfig]:
    """Make the ``qcomm_codecs_registry`` of a sharder.

    Args:
        qcomms_config: data types of pooled vectors and of sequences.
        device: not used, since the exchange is on the vectors' device.
    """
    return {POOLED: qcomms_config, SEQUENCE: qcomms_config}


def registered_comms(registry: Mapping[str, QCommsConfig] | None) -> Mapping[str, QCommsConfig]:
    known = {POOLED: QCommsConfig(), SEQUENCE: QCommsConfig()}
    if unknown := (registry or {}).keys() - known.keys():
        raise InputError(
            f"qcomm_codecs_registry: expected some of {list(known)}, got {sorted(unknown)}"
        )
    return {**known, **(registry or {})}


class VectorBlock(NamedTuple):
    """Vectors from one rank to another: ``(rows, sum(widths))``."""

    rows: int
    widths: tuple[int, ...]
    """Widths of the vectors that are side by side."""

    @property
    def values(self) -> int:
        return self.rows * sum(self.widths)


def exchange_vectors(
    values: Tensor,
    sent: Sequence[Sequence[VectorBlock]],
    received: Sequence[Sequence[VectorBlock]],
    *,
    group: Any,
    comms: QCommsConfig,
    is_backward: bool,
) -> Tensor:
    """Send blocks of vectors to each rank of a group, and receive blocks from each. ``values`` is
    float32 ``(total,)``: the blocks for each rank, rank after rank, row-major. The result has the
    received blocks in the same layout. Every rank passes equal ``comms``."""
    precision, scale = comms.forward_precision, comms.forward_loss_scale
    if is_backward:
        precision, scale = comms.backward_precision, comms.backward_loss_scale
    if precision is CommType.INT8:
        blocks = [block for of_rank in sent for block in of_rank]
        parts = torch.split(values, [block.values for block in blocks])
        encoded = [_encode(part, block) for part, block in zip(parts, blocks, strict=True)]
        outgoing = torch.cat(encoded) if encoded else values.to(torch.uint8)
        size = _encoded_bytes
    else:
        outgoing = (values if scale is None else values * scale).to(_DTYPES[precision])
        size = _values
    splits_in = [sum(map(size, blocks)) for blocks in received]
    splits_out = [sum(map(size, blocks)) for blocks in sent]
    with collective(group):
        incoming, work = all_to_all(outgoing, splits_in, splits_out, group=group)
        if work is not None:
            work.wait()
    if precision is CommType.INT8:
        blocks = [block for of_rank in received for block in of_rank]
        flat = torch.split(incoming, [_encoded_bytes(block) for block in blocks])
        decoded = [_decode(part, block) for part, block in zip(flat, blocks, strict=True)]
        return torch.cat(decoded) if decoded else incoming.float()
    vectors = incoming.float()
    return vectors if scale is None else vectors / scale


def split_blocks(values: Tensor, blocks: Sequence[Sequence[VectorBlock]]) -> list[list[Tensor]]:
    """Split the result of ``exchange_vectors`` into blocks ``(rows, sum(widths))``."""
    parts = iter(torch.split(values, [block.values for of in blocks for block in of]))
    return [[next(parts).view(block.rows, sum(block.widths)) for block in of] for of in blocks]


def _values(block: VectorBlock) -> int:
    return block.values


def _encoded_bytes(block: VectorBlock) -> int:
    return block.values + block.rows * len(block.widths) * ROW_CODEC_BYTES


def _runs(widths: Sequence[int]) -> list[tuple[int, int]]:
    """(width, count) of neighbours with the same width."""
    runs = list[tuple[int, int]]()
    for width in widths:
        if runs and runs[-1][0] == width:
            runs[-1] = (width, runs[-1][1] + 1)
        else:
            runs.append((width, 1))
    return runs


def _encode(values: Tensor, block: VectorBlock) -> Tensor:
    """uint8: vectors grouped by runs of equal width."""
    rows = values.view(block.rows, sum(block.widths))
    runs = _runs(block.widths)
    parts = torch.split(rows, [width * count for width, count in runs], dim=1)
    encoded = [
        encode_rows(part.reshape(block.rows * count, width)).flatten()
        for part, (width, count) in zip(parts, runs, strict=True)
    ]
    return torch.cat(encoded) if encoded else values.to(torch.uint8)


def _decode(encoded: Tensor, block: VectorBlock) -> Tensor:
    """Reverse of ``_encode``: float32, row-major."""
    columns, at = list[Tensor](), 0
    for width, count in _runs(block.widths):
        vectors, row_bytes = block.rows * count, width + ROW_CODEC_BYTES
        of_run = encoded[at : at + vectors * row_bytes].view(vectors, row_bytes)
        columns.append(decode_rows(of_run).view(block.rows, count * width))
        at += vectors * row_bytes
    return torch.cat(columns, dim=1).flatten() if columns else encoded.float()


class VectorExchange(Protocol):
    """Sends vectors to the ranks of their examples, and gradients back."""

    def forward(self, vectors: Tensor, *batch: Any) -> Tensor: ...
    def backward(self, gradient: Tensor, *batch: Any) -> Tensor: ...


def distribute(vectors: Tensor, exchange: VectorExchange, *batch: Any) -> Tensor:
    """Call ``exchange.forward``; ``exchange.backward`` computes the gradient. The vectors must
    require a gradient, also on ranks without tables, because every rank enters backward's
    collective."""
    output: Tensor = _Distribute.apply(vectors, exchange, batch)  # type: ignore[no-untyped-call]
    return output


class _Distribute(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, exchange: VectorExchange, batch: tuple[Any, ...]
    ) -> Tensor:
        ctx.exchange, ctx.batch = exchange, batch
        return exchange.forward(vectors, *batch)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.exchange.backward(gradient, *ctx.batch), None, None
