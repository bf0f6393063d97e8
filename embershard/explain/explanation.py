"""A request as a server sees it: what its ids become, and what each input does to the scores.

request ──▶ request validation, in C++ ──▶ scores, and scores without each input in turn
                 │
                 └─ taken ──▶ id maps ──▶ rows ──▶ places by plan, vectors ──▶ lengths
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from embershard._proto import predictor_pb2 as pb
from embershard.client.arguments import names_of
from embershard.client.asking import with_string
from embershard.client.packing import Inputs
from embershard.client.schema import served_model
from embershard.errors import EmbershardError, InputError, InternalError, PlanError, RequestError
from embershard.explain.features import SparseExplained, explain_sparse
from embershard.explain.request import Asked, DenseAsked, asked_inputs, asked_sample
from embershard.package import Manifest, Package, Plan
from embershard.serving import LocalPrediction, LocalPredictor

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


def leave_out(predictor: LocalPredictor, asked: Asked) -> tuple[LocalPrediction, list[LeftOut]]:
    """Ask with everything, and without each input in turn, all in one batch where that is small.
    The request itself runs in every batch, and what is compared ran together. Returns the answer;
    then what leaving out does, for each dense and each sparse input in order."""
    inputs = [*_replacements(asked)]  # At least one: no model has none.
    ids = sum(len(each.ids) for each in asked.sparse)
    examples = max(asked.num_examples, 1)  # None where only request-scoped outputs are asked for.
    step = max(1, min(CALL_EXAMPLES // examples, CALL_IDS // max(ids, 1)) - 1)
    answers, found = list[LocalPrediction](), list[LeftOut]()
    for first in range(0, len(inputs), step):
        part = inputs[first : first + step]
        requests = [asked.request(), *(asked.request(without=name) for name, _ in part)]
        whole, *others = predictor.predict_merged(requests, asked.outputs)
        if isinstance(whole, EmbershardError):
            raise whole
        answers.append(whole)
        found += [
            _compared(name, place, answers[-1], other)
            for (name, place), other in zip(part, others, strict=True)
        ]
    return answers[0], found


def _replacements(asked: Asked) -> Iterator[tuple[str, str]]:
    """Each input, and the value that replaces it in the variant without it."""
    for dense in asked.dense:
        default = dense.spec.default
        yield dense.spec.name, "0" if default is None else f"default {default:g}"
    for sparse in asked.sparse:
        yield sparse.spec.name, "no ids"


def _compared(
    name: str,
    in_its_place: str,
    whole: LocalPrediction,
    answer: LocalPrediction | EmbershardError,
) -> LeftOut:
    if isinstance(answer, EmbershardError):
        return LeftOut(input=name, in_its_place=in_its_place, change={}, failed=str(answer))
    change = {name: answer.outputs[name] - values for name, values in whole.outputs.items()}
    return LeftOut(input=name, in_its_place=in_its_place, change=change)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """One request of N examples, explained."""

    manifest: Manifest
    """Of the package that was asked."""

    plan: Plan
    """Says where rows lie."""

    scored_with: str
    """Name of the plan that gave the scores: ``plan`` where this machine can serve it. Where
    rows lie makes no difference to a score, up to rounding where a plan cuts tables by rows."""

    not_scored_with: str
    """Why it is another plan. Empty: it is not."""

    num_examples: int

    scores: Mapping[str, NDArray[np.float32]]
    """Outputs by name: ``(num_examples, ...)``, or ``(1, ...)`` in request scope."""

    dense: tuple[DenseAsked, ...]
    sparse: tuple[SparseExplained, ...]

    left_out: tuple[LeftOut, ...]
    """For each dense input, then each sparse one."""


def explain_request(
    package: str | Path,
    *,
    dense: object | None = None,
    sparse: Mapping[str, object] | None = None,
    weights: Mapping[str, object] | None = None,
    num_examples: int | None = None,
    outputs: Sequence[str] = (),
    plan: str = "",
) -> Explanation:
    """Explain a request that a client would send.

    Args:
        package: folder of one version.
        dense, sparse, weights, num_examples, outputs: as :meth:`embershard.Client.predict` takes
            them.
        plan: which of the package's plans places the rows. Empty: the default one.

    Raises:
        InputError: an argument of another type than asked for.
        RequestError: the request contradicts the schema, or a server would refuse it.
        NotFoundError: no such plan or output.
        PackageError: the package is damaged, or its samples give other scores.
        PlanError: this machine can serve none of its plans.
    """
    wanted = names_of("outputs", outputs)
    inputs = Inputs(dense=dense, sparse=sparse, weights=weights, num_examples=num_examples)
    opened = Package.open(package)
    runner = _start(opened, plan)
    model = served_model(pb.GetModelResponse.FromString(runner.predictor.get_model()))
    asked = asked_inputs(opened.manifest, model, inputs, outputs=wanted)
    try:
        return _explain(opened, runner, asked)
    except RequestError as error:
        raise RequestError(with_string(str(error), sparse)) from None


def explain_sample(package: str | Path, sample: int = 0, *, plan: str = "") -> Explanation:
    """Explain one of the requests that a package keeps.

    Args:
        package: folder of one version.
        sample: its number, from 0.
        plan: as in :func:`explain_request`.

    Raises:
        InputError: no sample of that number.
        NotFoundError: no such plan.
        PackageError: the package is damaged, or its samples give other scores.
        PlanError: this machine can serve none of its plans.
    """
    opened = Package.open(package)
    samples = opened.samples()
    if not 0 <= sample < len(samples):
        raise InputError(f"sample: expected 0 .. {len(samples) - 1}, got {sample}")
    asked = asked_sample(opened.manifest, samples[sample])
    return _explain(opened, _start(opened, plan), asked)


class _Runner(NamedTuple):
    predictor: LocalPredictor
    plan: Plan
    scored_with: str
    refusal: str


def _start(package: Package, plan: str) -> _Runner:
    """A plan for other devices than this machine's still says where rows lie: another one runs."""
    asked = package.plan(plan)
    refusals = list[PlanError]()
    for name in dict.fromkeys([asked.name, package.manifest.default_plan, *package.plans]):
        try:
            predictor = LocalPredictor(package.path, plan=name, slots=1)
        except PlanError as error:
            refusals.append(error)
            continue
        return _Runner(predictor, asked, name, str(refusals[0]) if refusals else "")
    raise refusals[0]


def _explain(package: Package, runner: _Runner, asked: Asked) -> Explanation:
    answer, left_out = leave_out(runner.predictor, asked)
    schema = package.schema()
    sparse = tuple(
        explain_sparse(each, item.ids, package, runner.plan)
        for each, item in zip(asked.sparse, schema.sparse, strict=True)
        if item.ids is not None  # In a package, every input has a map.
    )
    counted = {each.asked.spec.name: each.unknown_ids for each in sparse if each.unknown_ids}
    if counted != answer.unknown_ids:
        raise InternalError(
            f"unknown ids: expected {dict(answer.unknown_ids)}, as the server counts them, "
            f"got {counted} from the package's id maps"
        )
    return Explanation(
        manifest=package.manifest,
        plan=runner.plan,
        scored_with=runner.scored_with,
        not_scored_with=runner.refusal,
        num_examples=asked.num_examples,
        scores=answer.outputs,
        dense=asked.dense,
        sparse=sparse,
        left_out=tuple(left_out),
    )
