"""Writes the TorchScript programs that the C++ tests run: ``make_test_program.py FOLDER``.

``sound.pt`` fits a schema of one dense input in each scope, pooled widths 2 (request) and 3
(example), and the outputs

    score   [B]       the request's dense input and pooled columns, summed,
                      + 10 * the example's dense input + its pooled columns, summed
    pair    [B, 2]    the first two pooled columns of the example
    user    [R, 2]    2 * the pooled columns of the request

The others differ from it as their names say.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor


class Sound(torch.nn.Module):
    """Has a parameter and a module that behaves otherwise in training."""

    def __init__(self) -> None:
        super().__init__()
        self.ten = torch.nn.Parameter(torch.tensor(10.0))
        self.dropout = torch.nn.Dropout(0.5)

    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        request = request_inputs[0].sum(1) + request_inputs[1].sum(1)
        example = self.ten * example_inputs[0].sum(1) + example_inputs[1].sum(1)
        return {
            "score": self.dropout(request.index_select(0, request_of_example) + example),
            "pair": example_inputs[1][:, :2],
            "user": 2 * request_inputs[1],
        }


class Everything(torch.nn.Module):
    """Outputs of a package whose sparse inputs are looked up in every way: the pooled matrices,
    the last vector of each list of the sequences, side by side, and a score."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = torch.nn.Parameter(torch.tensor([0.5, 0.25]))

    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        last: list[Tensor] = []
        for i in range(2, len(example_inputs), 2):
            vectors, offsets = example_inputs[i], example_inputs[i + 1]
            with_zeros = torch.cat([vectors.new_zeros((1, vectors.size(1))), vectors])
            last.append(with_zeros[torch.where(offsets[1:] > offsets[:-1], offsets[1:], 0)])
        bias = torch.zeros([1], device=torch.device("cpu"))
        mean = example_inputs[1].mean(1) + request_inputs[1].mean(1)[request_of_example]
        return {
            "score": torch.sigmoid(self.steps[0] * torch.tanh(mean) + bias[0]),
            "example": example_inputs[1],
            "request": request_inputs[1],
            "last": torch.cat(last, 1),
        }


class MissingOutput(torch.nn.Module):
    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        rows = example_inputs[1]
        return {"score": rows[:, 0], "pair": rows[:, :2], "other": rows}


class TooFewOutputs(torch.nn.Module):
    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        return {"score": example_inputs[1][:, 0]}


class OutputOfTheOtherScope(torch.nn.Module):
    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        rows = example_inputs[1]
        user = request_inputs[1].index_select(0, request_of_example)
        return {"score": rows[:, 0], "pair": rows[:, :2], "user": user}


class DoubleOutput(torch.nn.Module):
    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        rows = example_inputs[1]
        return {"score": rows[:, 0].double(), "pair": rows[:, :2], "user": request_inputs[1]}


class ThrowsAtNinetyNine(torch.nn.Module):
    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        if bool((example_inputs[0] == 99).any()):
            raise ValueError("ninety-nine")
        rows = example_inputs[1]
        return {"score": rows[:, 0], "pair": rows[:, :2], "user": request_inputs[1]}


class TwoTensors(torch.nn.Module):
    def forward(self, request: Tensor, example: Tensor) -> Tensor:
        return request + example


class Sequences(torch.nn.Module):
    """For one sequence of width 2 in each scope, beside the inputs of ``sound.pt``."""

    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        offsets = example_inputs[3]
        sums = torch.cat([torch.zeros(1), example_inputs[2].sum(1).cumsum(0)])
        return {
            "score": sums[offsets[1:]] - sums[offsets[:-1]],
            "pair": (offsets[1:] - offsets[:-1]).float().unsqueeze(1).expand(-1, 2),
            "user": torch.stack(
                [request_inputs[2].sum().expand(len(request_inputs[0])), request_inputs[3][1:]], 1
            ),
        }


def narrowed(values: Tensor) -> Tensor:
    return values.to(torch.bfloat16).to(torch.float32)


class Linears(torch.nn.Module):
    """Takes rows of 64: a layer with relu, one whose output is used twice, a small one, one of
    weights that are no constants; and a small one behind another with relu."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(64, 256)
        self.second = torch.nn.Linear(256, 64, bias=False)
        self.small = torch.nn.Linear(64, 64)
        self.wide = torch.nn.Linear(64, 128)
        self.top = torch.nn.Linear(128, 1)

    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        rows = example_inputs[0]
        second = self.second(torch.relu(self.first(rows)))
        small = self.small(second + torch.relu(second))
        top = self.top(torch.relu(self.wide(rows)))
        return {"score": small, "all": torch.nn.functional.linear(small, rows), "top": top}


class Bfloat16Linears(torch.nn.Module):
    """Two layers in bfloat16 as an export writes them, and a third whose weights have more
    digits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(64, 260)
        self.second = torch.nn.Linear(260, 64)
        self.third = torch.nn.Linear(64, 260)
        for layer in (self.first, self.second):
            layer.weight.data = narrowed(layer.weight.data)

    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        first = torch.relu(narrowed(self.first(narrowed(example_inputs[0]))))
        second = narrowed(self.second(narrowed(first)))
        third = narrowed(self.third(narrowed(second)))
        return {"score": torch.cat([second, third], dim=1)}


class Gates(torch.nn.Module):
    """Cross layers as an export in bfloat16 writes them, sums and products in either order, one
    whose gate is a single row, one that adds a number, and one whose layer is needed once more."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.thin = torch.nn.Linear(64, 256, bias=False)
        self.wide = torch.nn.Linear(256, 64)
        for layer in (self.thin, self.wide):
            layer.weight.data = narrowed(layer.weight.data)

    def layer(self, x: Tensor) -> Tensor:
        return narrowed(self.wide(narrowed(narrowed(self.thin(narrowed(x))))))

    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        x = example_inputs[0]
        first = x * self.layer(x) + x
        second = first + self.layer(first) * x
        third = self.layer(second) * x[:1] + second
        fourth = x * self.layer(third) + 0.25
        layer = self.layer(fourth)
        return {"score": x * layer + fourth + layer}


class Products(torch.nn.Module):
    """Products of an example's 9 vectors with each other, also concatenated, and with 3 of its
    request."""

    def __init__(self) -> None:
        super().__init__()
        first, second = torch.triu_indices(9, 9, offset=1)
        self.register_buffer("pairs", first * 9 + second)

    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        vectors = example_inputs[0].reshape(-1, 9, 20)
        of_request = request_inputs[0].reshape(-1, 3, 20).index_select(0, request_of_example)
        pairs = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        cross = torch.bmm(vectors, of_request.transpose(1, 2)).flatten(1)
        others = (
            torch.bmm(vectors, vectors.transpose(1, 2))
            .flatten(1)
            .index_select(1, self.pairs.flip(0))
        )
        first, rest = example_inputs[0][:, :20], example_inputs[0][:, 20:]
        parts = torch.cat([first.unsqueeze(1), rest.reshape(-1, 8, 20)], dim=1)
        of_parts = torch.bmm(parts, parts.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return {"pairs": pairs, "cross": cross, "others": others, "of_parts": of_parts}


PROGRAMS = {
    "linears": Linears,
    "products": Products,
    "bfloat16_linears": Bfloat16Linears,
    "gates": Gates,
    "sequences": Sequences,
    "sound": Sound,
    "everything": Everything,
    "missing_output": MissingOutput,
    "too_few_outputs": TooFewOutputs,
    "output_of_the_other_scope": OutputOfTheOtherScope,
    "double_output": DoubleOutput,
    "throws_at_ninety_nine": ThrowsAtNinetyNine,
    "two_tensors": TwoTensors,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # torch deprecates TorchScript; it is what the programs are.
        warnings.filterwarnings("ignore", message=r".*torch\.jit\..* is (deprecated|not supported)")
        for name, module in PROGRAMS.items():
            torch.jit.script(module()).save(str(folder / f"{name}.pt"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
