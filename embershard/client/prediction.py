"""The answers of a client."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embershard._proto import predictor_pb2 as pb
from embershard.errors import InternalError, NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Where the server spent its time, in microseconds."""

    queue_us: int
    """Waiting for the batch to start."""

    lookup_us: int
    """The lookups of the whole batch."""

    dense_us: int
    """The dense program of the whole batch."""

    total_us: int
    """From the arrival of the request to the answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction(Mapping[str, npt.NDArray[np.float32]]):
    """Outputs by name: float32, shape ``(num_examples, ...)``, or ``(1, ...)`` in request scope."""

    model: str
    version: int
    outputs: Mapping[str, npt.NDArray[np.float32]]
    timing: Timing

    unknown_ids: Mapping[str, int]
    """How many ids the model does not know, for each feature where there were any."""

    request_id: str = ""

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        """
        Raises:
            NotFoundError: no such output; it is a KeyError as well.
        """
        if name not in self.outputs:
            known = ", ".join(map(repr, self.outputs)) or "none"
            raise _NoSuchOutputError(f"output {name!r}: expected one of the answer's, {known}")
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)


class _NoSuchOutputError(NotFoundError, KeyError):
    """As a mapping has it, and as this library has it."""

    __str__ = Exception.__str__  # A KeyError's would be in quotes.


def prediction(message: pb.PredictResponse) -> Prediction:
    """Read a Predict answer.

    Raises:
        InternalError: an output's bytes do not fill its shape, or that is none.
    """
    timing = message.timing
    return Prediction(
        model=message.model,
        version=message.version,
        outputs={item.name: _values(item) for item in message.outputs},
        timing=Timing(
            queue_us=timing.queue_us,
            lookup_us=timing.lookup_us,
            dense_us=timing.dense_us,
            total_us=timing.total_us,
        ),
        unknown_ids={item.feature: item.count for item in message.unknown_ids},
        request_id=message.request_id,
    )


def _values(output: pb.Output) -> npt.NDArray[np.float32]:
    shape = tuple(output.shape)
    if any(size < 0 for size in shape):
        raise InternalError(f"output {output.name!r}: expected sizes from 0 up, got shape {shape}")
    expected = 4 * math.prod(shape)
    if len(output.values) != expected:
        raise InternalError(
            f"output {output.name!r}: expected {expected} bytes for shape {shape}, "
            f"got {len(output.values)}"
        )
    return np.frombuffer(output.values, dtype="<f4").astype(np.float32).reshape(shape)
