"""What each input does to the scores: the request once more without it, in the C++ predictor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from embershard._proto import predictor_pb2 as pb
from embershard.client import Prediction
from embershard.client.prediction import prediction
from embershard.errors import EmbershardError
from embershard.explain.request import Asked
from embershard.serving import LocalPredictor

__all__ = ["LeftOut", "leave_out"]

CALL_EXAMPLES = 1 << 14
CALL_IDS = 1 << 20
"""Most examples and ids of one call, where two requests fit: they bound its memory."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftOut:
    """What happens when one input is left out of the request."""

    input: str

    in_its_place: str
    """What the model gets instead: "no ids", "default 0.5", or "0"."""

    change: Mapping[str, NDArray[np.float32]]
    """The scores without it less those with it, by output, in the output's shape. Empty: none."""

    failed: str = ""
    """Why there are no scores without it. Empty: there are."""


def leave_out(predictor: LocalPredictor, asked: Asked) -> tuple[Prediction, list[LeftOut]]:
    """Ask with everything, and without each input in turn, all in one batch where that is small.

    The request itself runs in every batch, and what is compared ran together.

    Returns:
        The answer; then what leaving out does, for each dense and each sparse input in order.

    Raises:
        EmbershardError: as the server answers such a request.
    """
    inputs = [*_replacements(asked)]  # At least one: no model has none.
    ids = sum(len(each.ids) for each in asked.sparse)
    examples = max(asked.num_examples, 1)  # None where only request-scoped outputs are asked for.
    step = max(1, min(CALL_EXAMPLES // examples, CALL_IDS // max(ids, 1)) - 1)
    answers, found = [], list[LeftOut]()
    for first in range(0, len(inputs), step):
        part = inputs[first : first + step]
        messages = [asked.whole, *(asked.without(name) for name, _ in part)]
        whole, *others = predictor.predict_merged(messages)
        answers.append(_read(whole))
        found += [
            _compared(name, place, answers[-1], other)
            for (name, place), other in zip(part, others, strict=True)
        ]
    return answers[0], found


def _replacements(asked: Asked) -> Iterator[tuple[str, str]]:
    """Each input, and what stands in its place once it is left out."""
    for dense in asked.dense:
        default = dense.spec.default
        yield dense.spec.name, "0" if default is None else f"default {default:g}"
    for sparse in asked.sparse:
        yield sparse.spec.name, "no ids"


def _compared(
    name: str, in_its_place: str, whole: Prediction, answer: bytes | EmbershardError
) -> LeftOut:
    if isinstance(answer, EmbershardError):
        return LeftOut(input=name, in_its_place=in_its_place, change={}, failed=str(answer))
    without = _read(answer)
    change = {output: without[output] - values for output, values in whole.items()}
    return LeftOut(input=name, in_its_place=in_its_place, change=change)


def _read(answer: bytes | EmbershardError) -> Prediction:
    if isinstance(answer, EmbershardError):
        raise answer
    return prediction(pb.PredictResponse.FromString(answer))
