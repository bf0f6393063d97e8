"""Explains a request: which rows its ids select, and what each input does to the scores.

request ──▶ validation (C++) ──▶ scores, and the scores without each input
                 │
                 └─ accepted ──▶ id maps ──▶ rows ──▶ vectors ──▶ norms
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from embershard.client.arguments import names_of, with_string
from embershard.errors import EmbershardError, InputError, InternalError, PlanError, RequestError
from embershard.explain.request import (
    ExplainedRequest,
    IdRows,
    client_request,
    map_ids,
    sample_request,
)
from embershard.package import Package
from embershard.serving import LocalPrediction, LocalPredictor

CALL_EXAMPLES = 1 << 14
CALL_IDS = 1 << 20
"""Limits on the examples and ids of a call, which bound its memory."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftOut:
    """The change of the scores if one input is left out of the request."""

    input: str

    in_its_place: str
    """The value that the model gets instead: "no ids", "default 0.5", or "0"."""

    change: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Scores without the input minus scores with it, by output, in the output's shape. Empty if
    the request without the input failed."""

    failed: str = ""
    """Why the request without the input failed. Empty: it did not."""


def leave_out(
    predictor: LocalPredictor, request: ExplainedRequest
) -> tuple[LocalPrediction, list[LeftOut]]:
    """Score a request as it is, and without each input in turn: dense first, in schema order.

    All variants of a small request run in one batch. A large request runs in several, each of which
    contains the whole request, so that every comparison is within one batch.
    """
    defaults = {spec.name: spec.default for spec in request.manifest.dense}
    replacements = {
        name: "0" if default is None else f"default {default:g}"
        for name, default in defaults.items()
    }
    replacements.update((spec.name, "no ids") for spec in request.manifest.sparse)
    names = list(replacements)
    ids = max(len(request.sample.values), 1)
    examples = max(request.sample.num_examples, 1)
    step = max(1, min(CALL_EXAMPLES // examples, CALL_IDS // ids) - 1)
    answers, changes = list[LocalPrediction](), list[LeftOut]()
    for first in range(0, len(names), step):
        part = names[first : first + step]
        samples = [request.sample_without(), *(request.sample_without(name) for name in part)]
        whole, *others = predictor.predict_merged(samples, request.outputs)
        if isinstance(whole, EmbershardError):
            raise whole
        answers.append(whole)
        for name, other in zip(part, others, strict=True):
            left_out = LeftOut(input=name, in_its_place=replacements[name])
            if isinstance(other, EmbershardError):
                changes.append(replace(left_out, failed=str(other)))
                continue
            change = {
                output: other.outputs[output] - scores for output, scores in whole.outputs.items()
            }
            changes.append(replace(left_out, change=change))
    return answers[0], changes


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """One request of N examples, explained. `explanation_json` adds the vectors of its ids."""

    package: Package
    request: ExplainedRequest

    scores: Mapping[str, NDArray[np.float32]]
    """Outputs by name: ``(num_examples, ...)``, or ``(1, ...)`` in request scope."""

    sparse: tuple[IdRows, ...]
    left_out: tuple[LeftOut, ...]
    """One for each dense input, then for each sparse one."""


def explain_request(
    package: str | Path,
    *,
    dense: object | None = None,
    sparse: Mapping[str, object] | None = None,
    weights: Mapping[str, object] | None = None,
    num_examples: int | None = None,
    outputs: Sequence[str] = (),
) -> Explanation:
    """Explain a request that a client would send.

    Args:
        package: folder of one version.
        dense, sparse, weights, num_examples, outputs: arguments of
            :meth:`embershard.Client.predict`.

    Raises:
        InputError: an argument has the wrong type.
        RequestError: the request contradicts the schema, or a server would refuse it.
        NotFoundError: the model has no such output.
        PackageError: the package is damaged, or its samples give other scores.
        PlanError: this machine can serve none of the package's plans.
    """
    output_names = names_of("outputs", outputs)
    dense = {} if dense is None else dense
    opened = Package.open(package)

    def make_request(predictor: LocalPredictor) -> ExplainedRequest:
        sample = predictor.request(
            dense=dense, sparse=sparse, weights=weights, num_examples=num_examples
        )
        return client_request(opened.manifest, sample, dense, sparse or {}, outputs=output_names)

    try:
        return _explain(opened, make_request)
    except RequestError as error:
        raise RequestError(with_string(str(error), sparse)) from None


def explain_sample(package: str | Path, sample: int = 0) -> Explanation:
    """Explain one of the sample requests in a package.

    Args:
        package: folder of one version.
        sample: number of the sample, from 0.

    Raises:
        InputError: the package has no sample of that number.
        PackageError: the package is damaged, or its samples give other scores.
        PlanError: this machine can serve none of the package's plans.
    """
    opened = Package.open(package)
    samples = opened.samples()
    if not 0 <= sample < len(samples):
        raise InputError(f"sample: expected 0 .. {len(samples) - 1}, got {sample}")
    request = sample_request(opened.manifest, samples[sample])
    return _explain(opened, lambda _: request)


def _explain(
    package: Package, make_request: Callable[[LocalPredictor], ExplainedRequest]
) -> Explanation:
    predictor = _load_predictor(package)
    request = make_request(predictor)
    answer, left_out = leave_out(predictor, request)
    sparse = tuple(
        map_ids(spec, lists, item.ids)
        for (spec, lists), item in zip(request.sparse(), package.schema().sparse, strict=True)
        if item.ids is not None  # For mypy: inputs of a package always have an id map.
    )
    unknown = {
        spec.name: id_rows.unknown
        for spec, id_rows in zip(package.manifest.sparse, sparse, strict=True)
        if id_rows.unknown
    }
    if unknown != answer.unknown_ids:
        raise InternalError(
            f"unknown ids: expected {dict(answer.unknown_ids)}, as the server counts them, "
            f"got {unknown} from the package's id maps"
        )
    return Explanation(
        package=package,
        request=request,
        scores=answer.outputs,
        sparse=sparse,
        left_out=tuple(left_out),
    )


def _load_predictor(package: Package) -> LocalPredictor:
    """Load the package by its default plan, or by one that this machine can serve. Plans change
    scores only by rounding."""
    refusals = list[PlanError]()
    for plan in dict.fromkeys([package.manifest.default_plan, *package.plans]):
        try:
            return LocalPredictor(package.path, plan=plan, slots=1)
        except PlanError as error:
            refusals.append(error)
    raise refusals[0]
