import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged.checks import jagged_fault
from embershard.jagged.jagged_base import JaggedBase
from embershard.jagged.pytrees import jagged_children, register_pytree
from embershard.jagged.segments import pad_jagged
from embershard.jagged.text import jagged_text


class JaggedTensor(JaggedBase):
    """B examples of varying length, concatenated.

        examples  [v0, v1], [], [v2]
        values    [v0, v1, v2]     [total, ...]
        lengths   [2, 0, 1]        [B]
        offsets   [0, 2, 2, 3]     [B + 1]

    Built from lengths or from offsets; the other one is computed on first use and kept. Works in
    torch.fx traces and as a torch pytree. Tensors are not copied.

    The constructor checks shapes and dtypes and never waits for a device. Only ``to_dense`` checks
    that the lengths sum to the number of values.

    Args:
        values: any dtype, [total, ...].
        weights: numbers, [total, ...]: one for each value. None: unweighted.
        lengths: int32 or int64, [B].
        offsets: int32 or int64, [B + 1]; first 0, last the total.

    Raises:
        InputError: neither lengths nor offsets, or a wrong dtype or shape.
    """

    def __init__(
        self,
        values: Tensor,
        weights: Tensor | None = None,
        lengths: Tensor | None = None,
        offsets: Tensor | None = None,
    ) -> None:
        fault = jagged_fault(values, weights, lengths, offsets)
        if fault:
            raise InputError(f"JaggedTensor {fault}")
        super().__init__(values, weights, lengths, offsets)

    @staticmethod
    def empty(
        is_weighted: bool = False,
        device: torch.device | None = None,
        values_dtype: torch.dtype | None = None,
        weights_dtype: torch.dtype | None = None,
        lengths_dtype: torch.dtype = torch.int32,
    ) -> "JaggedTensor":
        """A tensor without examples. Missing dtypes are torch's default dtype."""
        weights = torch.empty(0, dtype=weights_dtype, device=device) if is_weighted else None
        return JaggedTensor(
            torch.empty(0, dtype=values_dtype, device=device),
            weights,
            torch.empty(0, dtype=lengths_dtype, device=device),
        )

    @staticmethod
    def from_dense(values: list[Tensor], weights: list[Tensor] | None = None) -> "JaggedTensor":
        """Make one example from each of B >= 1 tensors [length, ...] that differ only in length,
        with int32 lengths. Raises InputError for no tensors, or another number or length of
        weights."""
        return _from_dense(values, weights)

    @staticmethod
    def from_dense_lengths(
        values: Tensor, lengths: Tensor, weights: Tensor | None = None
    ) -> "JaggedTensor":
        """Take the first ``lengths[i]`` values of each row i. Waits for the device. Values are
        [B, N, ...], lengths int32 or int64 [B], each in 0..N, and weights floating [B, N]. Raises
        InputError for contradictory shapes, or a length outside 0..N."""
        return _from_dense_lengths(values, lengths, weights)

    def to_dense(self) -> list[Tensor]:
        """B views [length, ...] of the values. Waits for the device."""
        return _cut(self._values, self.lengths())

    def to_dense_weights(self) -> list[Tensor]:
        """B views [length, ...] of the weights. Waits for the device."""
        return _cut(self.weights(), self.lengths())

    def to_padded_dense(
        self, desired_length: int | None = None, padding_value: float = 0.0
    ) -> Tensor:
        """Truncate or pad each example to one width: [B, width, ...] in the dtype of the values. If
        ``desired_length`` is None, the width is the length of the longest example, which waits for
        the device. ``padding_value`` is a whole number for integer values. Raises InputError for a
        negative width, or a padding that the values' dtype cannot hold."""
        padded = pad_jagged(
            self._values, self.lengths(), self.offsets(), desired_length, padding_value
        )
        if self._values.requires_grad and not padded.requires_grad:
            # No value was used, but backward must still reach the values: in sharded training,
            # other ranks wait there for this one.
            padded = padded + 0 * self._values.sum()
        return padded

    def to_padded_dense_weights(
        self, desired_length: int | None = None, padding_value: float = 0.0
    ) -> Tensor:
        """Truncate or pad the weights; see ``to_padded_dense``."""
        return pad_jagged(
            self.weights(), self.lengths(), self.offsets(), desired_length, padding_value
        )

    def to(self, device: torch.device, non_blocking: bool = False) -> "JaggedTensor":
        """A copy on ``device``. Tensors that are there already are shared."""
        weights = self._weights
        if weights is not None:
            weights = weights.to(device, non_blocking=non_blocking)
        values = self._values.to(device, non_blocking=non_blocking)
        if self._by_offsets:
            offsets = self.offsets().to(device, non_blocking=non_blocking)
            return JaggedTensor(values, weights, None, offsets)
        lengths = self.lengths().to(device, non_blocking=non_blocking)
        return JaggedTensor(values, weights, lengths, None)

    def __repr__(self) -> str:
        return (
            f"JaggedTensor(examples={self.lengths().size(0)}, "
            f"values={self._values.dtype}{list(self._values.shape)}, "
            f"weighted={self._weights is not None})"
        )

    def __str__(self) -> str:
        return jagged_text(self)


# In a torch.fx trace these functions get proxies, so each is wrapped as one node.


@torch.fx.wrap
def _from_dense(values: list[Tensor], weights: list[Tensor] | None) -> JaggedTensor:
    if len(values) == 0:
        raise InputError("from_dense: expected at least 1 example, got 0; see JaggedTensor.empty")
    lengths = [value.size(0) for value in values]
    joined = None
    if weights is not None:
        sizes = [weight.size(0) for weight in weights]
        if sizes != lengths:
            raise InputError(f"from_dense: expected weights of lengths {lengths}, got {sizes}")
        joined = torch.cat(weights)
    device = values[0].device
    return JaggedTensor(
        torch.cat(values), joined, torch.tensor(lengths, dtype=torch.int32, device=device)
    )


@torch.fx.wrap
def _from_dense_lengths(values: Tensor, lengths: Tensor, weights: Tensor | None) -> JaggedTensor:
    if values.dim() < 2:
        raise InputError(
            f"from_dense_lengths: expected values [B, N, ...], got shape {list(values.shape)}"
        )
    rows, width = values.size(0), values.size(1)
    if lengths.dim() != 1 or lengths.size(0) != rows:
        raise InputError(
            f"from_dense_lengths: expected {rows} lengths, got shape {list(lengths.shape)}"
        )
    outside = torch.nonzero((lengths < 0) | (lengths > width)).flatten()
    if outside.numel() > 0:
        at = int(outside[0].item())
        raise InputError(
            f"from_dense_lengths: expected lengths in 0..{width}, "
            f"got {int(lengths[at].item())} at example {at}"
        )
    inside = torch.arange(width, device=values.device).unsqueeze(0) < lengths.unsqueeze(1)
    kept = None
    if weights is not None:
        if weights.dim() < 2 or weights.size(0) != rows or weights.size(1) != width:
            raise InputError(
                f"from_dense_lengths: expected weights [{rows}, {width}], "
                f"got shape {list(weights.shape)}"
            )
        kept = weights[inside]
    return JaggedTensor(values[inside], kept, lengths)


def _cut(tensor: Tensor, lengths: Tensor) -> list[Tensor]:
    sizes: list[int] = lengths.tolist()
    if sum(sizes) != tensor.size(0):
        raise InputError(
            f"sum of lengths: expected {tensor.size(0)}, the number of values, got {sum(sizes)}"
        )
    return list(torch.split(tensor, sizes))


register_pytree(
    JaggedTensor,
    jagged_children,
    static=("_by_offsets",),
    optional=("_weights", "_lengths", "_offsets"),
)
