"""Sample requests of a package with the outputs that they must have: samples.safetensors.
docs/format.md, "Safetensors", lists its tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError, PackageError
from embershard.package.manifest import Limits, Manifest, OutputSpec
from embershard.package.manifest_inputs import DenseInputSpec, SparseInputSpec
from embershard.package.safetensors_file import DTYPES, SafetensorsFile, write_safetensors
from embershard.package.schema import DenseInput, SparseInput
from embershard.package.validation import refusal


def offsets_of(lengths: NDArray[np.integer] | NDArray[np.bool_]) -> NDArray[np.int64]:
    """Offsets ``[N + 1]``, int64, of lengths ``[N]``. For bools: the number of True before each."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


_PARTS: Final = {
    "request_dense": ("F32", (None,)),
    "example_dense": ("F32", (None, None)),
    "lengths": ("I32", (None,)),
    "values": ("I64", (None,)),
    "weights": ("F32", (None,)),
}


class SampleLists(NamedTuple):
    """The lists of one sparse input in a request: N lists, or 1 in request scope."""

    lengths: NDArray[np.int64]
    """``[lists]``."""

    values: NDArray[np.int64]
    """Ids, ``[sum of lengths]``."""

    weights: NDArray[np.float32] | None
    """``[sum of lengths]``, or None if the input is not weighted."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleRequest:
    """A request of N examples and its outputs, as the arrays of the file.

    Raises:
        InputError: an array has the wrong dtype or number of dimensions, or ``example_dense`` does
            not have ``num_examples`` rows.
    """

    num_examples: int
    """N. Samples of a package have at least one example."""

    request_dense: NDArray[np.float32]
    """Dense inputs in request scope, ``[F_r]`` in schema order."""

    example_dense: NDArray[np.float32]
    """Dense inputs in example scope, ``[N, F_e]`` in schema order."""

    lengths: NDArray[np.int32]
    """``[L]``: ids per list, input after input in the schema's order: 1 of the request scope, N of
    the example scope."""

    values: NDArray[np.int64]
    """``[sum of lengths]``: ids as a client sends them, before the id maps."""

    weights: NDArray[np.float32]
    """``[W]``: one for each id of the weighted inputs, in the order of ``values``."""

    outputs: Mapping[str, NDArray[np.float32]]
    """By name, ``[N, *shape]``, or ``[1, *shape]`` in request scope. Empty: not computed yet."""

    def __post_init__(self) -> None:
        for name, (kind, shape) in _PARTS.items():
            array, dtype = getattr(self, name), DTYPES[kind]
            if array.dtype != dtype or array.ndim != len(shape):
                raise InputError(
                    f"sample: {name}: expected {dtype.name} with {len(shape)} dimensions, "
                    f"got {array.dtype.name} with {array.ndim}"
                )
        for name, array in self.outputs.items():
            if array.dtype != np.float32 or array.ndim < 1:
                raise InputError(
                    f"sample: outputs: {name}: expected float32 with at least 1 dimension, "
                    f"got {array.dtype.name} with {array.ndim}"
                )
        if len(self.example_dense) != self.num_examples:
            raise InputError(
                f"sample: example_dense: expected {self.num_examples} examples, "
                f"got {len(self.example_dense)}"
            )

    @staticmethod
    def of_lists(
        request_dense: NDArray[np.float32],
        example_dense: NDArray[np.float32],
        lists: Sequence[SampleLists],
    ) -> SampleRequest:
        """A request without outputs, from its dense values and the lists of each sparse input, in
        schema order."""
        weights = [item.weights for item in lists if item.weights is not None]
        return SampleRequest(
            num_examples=len(example_dense),
            request_dense=request_dense,
            example_dense=example_dense,
            lengths=_concatenate([item.lengths for item in lists], np.int32),
            values=_concatenate([item.values for item in lists], np.int64),
            weights=_concatenate(weights, np.float32),
            outputs={},
        )

    def lists(
        self, inputs: Iterable[SparseInput] | Iterable[SparseInputSpec]
    ) -> Iterator[SampleLists]:
        """Yield the lists of each sparse input. ``inputs``: all of them, in schema order."""
        list_at = id_at = weight_at = 0
        for item in inputs:
            list_end = list_at + (self.num_examples if item.scope == "example" else 1)
            lengths = self.lengths[list_at:list_end].astype(np.int64)
            ids = int(lengths.sum())
            weights = self.weights[weight_at : weight_at + ids] if item.weighted else None
            yield SampleLists(lengths, self.values[id_at : id_at + ids], weights)
            list_at, id_at = list_end, id_at + ids
            weight_at += ids if item.weighted else 0


def check_are_samples(where: str, samples: object) -> None:
    """Raise InputError unless ``samples``, the argument ``where``, are `SampleRequest` objects."""
    if not isinstance(samples, Sequence):
        got = type(samples).__name__
        raise InputError(f"{where}: expected a list of SampleRequests, got {got}")
    for number, sample in enumerate(samples):
        if not isinstance(sample, SampleRequest):
            raise InputError(
                f"{where}: {number}: expected a SampleRequest, as LocalPredictor.request or "
                f"embershard.data.sample_requests returns, got {type(sample).__name__}"
            )


def _concatenate(arrays: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)


def sample_tensors(samples: Sequence[SampleRequest]) -> dict[str, NDArray[Any]]:
    """The tensors of samples.safetensors. Raises InputError for no samples, or one without
    examples."""
    if not samples:
        raise InputError("samples: expected at least one, got none")
    for number, sample in enumerate(samples):
        if not sample.num_examples:
            raise InputError(f"samples: sample {number}: expected at least one example, got none")
    tensors: dict[str, NDArray[Any]] = {}
    for number, sample in enumerate(samples):
        for part in _PARTS:
            tensors[f"{number}/{part}"] = getattr(sample, part)
        for name, output in sample.outputs.items():
            tensors[f"{number}/output/{name}"] = output
    return tensors


def write_samples(path: Path, samples: Sequence[SampleRequest]) -> None:
    """Write samples.safetensors. `InputError`: there are no samples, or one has no examples."""
    write_safetensors(path, sample_tensors(samples))


def read_samples(path: Path, *, file: str = "samples.safetensors") -> list[SampleRequest]:
    """Read samples.safetensors into memory. Raises PackageError if the file is damaged, or a tensor
    is missing, unexpected or of another dtype."""
    opened = SafetensorsFile.open(path, file)
    outputs: dict[int, list[str]] = {}
    numbers = set()
    for tensor in opened.tensors:
        number, _, part = tensor.partition("/")
        output = part.removeprefix("output/")
        if not _is_number(number) or (part not in _PARTS and output == part):
            raise PackageError(f"{file}: {tensor}: unexpected tensor")
        numbers.add(int(number))
        if output != part:
            outputs.setdefault(int(number), []).append(output)
    if not numbers:
        raise refusal(file, "0/example_dense", expected="at least one sample", got="none")
    return [
        _read_sample(opened, number, sorted(outputs.get(number, ())))
        for number in range(len(numbers))
    ]


def check_samples(
    samples: Sequence[SampleRequest], manifest: Manifest, *, file: str, outputs: bool = True
) -> None:
    """Refuse samples that are no requests for this model. ``outputs`` also requires all outputs."""
    for number, sample in enumerate(samples):
        problems = itertools.chain(
            request_problems(sample, manifest.dense, manifest.sparse, manifest.limits),
            _output_problems(sample, manifest.outputs) if outputs else (),
        )
        for part, expected, got in problems:
            raise refusal(file, f"{number}/{part}", expected=expected, got=f"{got}")


def request_problems(
    sample: SampleRequest,
    dense: Sequence[DenseInput] | Sequence[DenseInputSpec],
    sparse: Sequence[SparseInput] | Sequence[SparseInputSpec],
    limits: Limits,
) -> Iterator[tuple[str, str, object]]:
    """Yield contradictions between a sample, the inputs and the limits: part, expected and got. Ids
    and the lengths of single lists are not checked. Only the first problem is reliable."""
    examples = sample.num_examples
    if examples > limits.max_examples:
        yield "example_dense", f"at most {limits.max_examples} examples", examples
    for scope, part in (("request", sample.request_dense), ("example", sample.example_dense)):
        count = sum(item.scope == scope for item in dense)
        if part.shape[-1] != count:
            yield f"{scope}_dense", f"{count} values", part.shape[-1]
    lists = [examples if item.scope == "example" else 1 for item in sparse]
    lengths = sample.lengths.astype(np.int64)
    if len(lengths) != sum(lists):
        yield "lengths", f"{sum(lists)} lengths", len(lengths)
    if (lengths < 0).any():
        yield "lengths", "no negative length", lengths.min()
    if len(sample.values) > limits.max_ids:
        yield "values", f"at most {limits.max_ids} ids", len(sample.values)
    if len(sample.values) != lengths.sum():
        yield "values", f"{lengths.sum()} ids, the sum of the lengths", len(sample.values)
    weighted = np.repeat([item.weighted for item in sparse], lists)
    weights = lengths[weighted.astype(bool)].sum()
    if len(sample.weights) != weights:
        yield "weights", f"{weights} weights", len(sample.weights)


def _output_problems(
    sample: SampleRequest, outputs: Sequence[OutputSpec]
) -> Iterator[tuple[str, str, object]]:
    specs = {spec.name: spec for spec in outputs}
    for name in sorted({*sample.outputs, *specs}):
        spec, array = specs.get(name), sample.outputs.get(name)
        got = "nothing" if array is None else list(array.shape)
        if spec is None:
            yield f"output/{name}", "no output of that name", got
        elif got != (shape := [sample.num_examples if spec.scope == "example" else 1, *spec.shape]):
            yield f"output/{name}", f"{shape}", got


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 7 and str(int(text)) == text


def _read_sample(opened: SafetensorsFile, number: int, outputs: Sequence[str]) -> SampleRequest:
    arrays = {
        part: np.array(opened.tensor(f"{number}/{part}", dtype, shape))
        for part, (dtype, shape) in _PARTS.items()
    }
    file = opened.file
    if not len(arrays["example_dense"]):
        raise refusal(file, f"{number}/example_dense", expected="at least one example", got="none")
    scores = {}
    for name in outputs:
        tensor = f"{number}/output/{name}"
        dims = len(opened.tensors[tensor].shape)
        scores[name] = np.array(opened.tensor(tensor, "F32", (None,) * max(dims, 1)))
    return SampleRequest(num_examples=len(arrays["example_dense"]), outputs=scores, **arrays)
