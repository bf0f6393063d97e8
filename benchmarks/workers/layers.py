"""Runs the linear layers of a workload in fp32 on one thread, a lower bound for its program.

``python -m benchmarks.workers.layers WORKLOAD EXAMPLES`` speaks the protocol of `benchmarks.child`.
"""

import sys

import torch

from benchmarks.child import answer
from benchmarks.workloads import WORKLOADS


def main(name: str, examples: int) -> None:
    torch.set_num_threads(1)
    layers = [
        (
            torch.randn(examples, layer.in_features),
            layer.weight.detach().t().contiguous(),
            layer.bias.detach(),
            torch.empty(examples, layer.out_features),
        )
        for layer in WORKLOADS[name].model().modules()
        if isinstance(layer, torch.nn.Linear)
    ]

    def batch() -> float:
        for values, weights, bias, out in layers:
            torch.addmm(bias, values, weights, out=out)
        return examples

    answer("examples", batch)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
