"""A request as a server sees it: what its ids become, and what each input does to the scores.

request ──▶ request validation, in C++ ──▶ scores, and scores without each input in turn
                 │
                 └─ taken ──▶ id maps ──▶ rows ──▶ vectors ──▶ norms
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from embershard.client.arguments import names_of, with_string
from embershard.errors import EmbershardError, InputError, InternalError, PlanError, RequestError
from embershard.explain.request import Asked, IdRows, asked_inputs, asked_sample, map_ids
from embershard.package import Package
from embershard.serving import LocalPrediction, LocalPredictor

CALL_EXAMPLES = 1 << 14
CALL_IDS = 1 << 20
"""Most examples and ids of a call that holds two requests or more. They bound its memory."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftOut:
    """The change of the scores if one input is left out of the request."""

    input: str

    in_its_place: str
    """The value that the model gets instead: "no ids", "default 0.5", or "0"."""

    change: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """The scores without it less those with it, by output, in the output's shape. Empty: none."""

    failed: str = ""
    """Why there are no scores without it. Empty: there are."""


def leave_out(predictor: LocalPredictor, asked: Asked) -> tuple[LocalPrediction, list[LeftOut]]:
    """Ask with everything, and without each input in turn, all in one batch if that is small.
    The request itself runs in every batch, and what is compared ran together. Returns the answer;
    then what leaving out does, for each dense and each sparse input in order."""
    defaults = {each.name: each.default for each in asked.manifest.dense}
    in_place = {
        **{name: "0" if each is None else f"default {each:g}" for name, each in defaults.items()},
        **{each.name: "no ids" for each in asked.manifest.sparse},
    }
    names = list(in_place)  # At least one: no model has none.
    ids = max(len(asked.sample.values), 1)
    # A request for request-scoped outputs only may have none.
    examples = max(asked.sample.num_examples, 1)
    step = max(1, min(CALL_EXAMPLES // examples, CALL_IDS // ids) - 1)
    answers, found = list[LocalPrediction](), list[LeftOut]()
    for first in range(0, len(names), step):
        part = names[first : first + step]
        requests = [asked.request(), *(asked.request(without=name) for name in part)]
        whole, *others = predictor.predict_merged(requests, asked.outputs)
        if isinstance(whole, EmbershardError):
            raise whole
        answers.append(whole)
        for name, other in zip(part, others, strict=True):
            left_out = LeftOut(input=name, in_its_place=in_place[name])
            if isinstance(other, EmbershardError):
                found.append(replace(left_out, failed=str(other)))
                continue
            change = {each: other.outputs[each] - whole.outputs[each] for each in whole.outputs}
            found.append(replace(left_out, change=change))
    return answers[0], found


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """One request of N examples, explained. `explanation_json` says what its ids become."""

    package: Package
    """The package that was asked."""

    asked: Asked

    scores: Mapping[str, NDArray[np.float32]]
    """Outputs by name: ``(num_examples, ...)``, or ``(1, ...)`` in request scope."""

    sparse: tuple[IdRows, ...]
    """The rows of each sparse input."""

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
        dense, sparse, weights, num_examples, outputs: as :meth:`embershard.Client.predict` takes
            them.

    Raises:
        InputError: an argument of another type than asked for.
        RequestError: the request contradicts the schema, or a server would refuse it.
        NotFoundError: no such output.
        PackageError: the package is damaged, or its samples give other scores.
        PlanError: this machine can serve none of its plans.
    """
    wanted = names_of("outputs", outputs)
    dense = {} if dense is None else dense
    opened = Package.open(package)

    def ask(predictor: LocalPredictor) -> Asked:
        sample = predictor.request(
            dense=dense, sparse=sparse, weights=weights, num_examples=num_examples
        )
        return asked_inputs(opened.manifest, sample, dense, sparse or {}, outputs=wanted)

    try:
        return _explained(opened, ask)
    except RequestError as error:
        raise RequestError(with_string(str(error), sparse)) from None


def explain_sample(package: str | Path, sample: int = 0) -> Explanation:
    """Explain one of the requests that a package keeps.

    Args:
        package: folder of one version.
        sample: its number, from 0.

    Raises:
        InputError: no sample of that number.
        PackageError: the package is damaged, or its samples give other scores.
        PlanError: this machine can serve none of its plans.
    """
    opened = Package.open(package)
    samples = opened.samples()
    if not 0 <= sample < len(samples):
        raise InputError(f"sample: expected 0 .. {len(samples) - 1}, got {sample}")
    asked = asked_sample(opened.manifest, samples[sample])
    return _explained(opened, lambda _: asked)


def _explained(package: Package, ask: Callable[[LocalPredictor], Asked]) -> Explanation:
    predictor = _predictor(package)
    asked = ask(predictor)
    answer, left_out = leave_out(predictor, asked)
    sparse = tuple(
        map_ids(spec, lists, item.ids)
        for (spec, lists), item in zip(asked.sparse(), package.schema().sparse, strict=True)
        if item.ids is not None  # In a package, every input has a map.
    )
    counted = {
        spec.name: found.unknown
        for spec, found in zip(package.manifest.sparse, sparse, strict=True)
        if found.unknown
    }
    if counted != answer.unknown_ids:
        raise InternalError(
            f"unknown ids: expected {dict(answer.unknown_ids)}, as the server counts them, "
            f"got {counted} from the package's id maps"
        )
    return Explanation(
        package=package,
        asked=asked,
        scores=answer.outputs,
        sparse=sparse,
        left_out=tuple(left_out),
    )


def _predictor(package: Package) -> LocalPredictor:
    """The model by the default plan, or by the first other plan that this machine can serve. Plans
    change scores only by rounding."""
    refusals = list[PlanError]()
    for plan in dict.fromkeys([package.manifest.default_plan, *package.plans]):
        try:
            return LocalPredictor(package.path, plan=plan, slots=1)
        except PlanError as error:
            refusals.append(error)
    raise refusals[0]
