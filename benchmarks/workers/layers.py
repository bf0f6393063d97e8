"""Times the linear layers of a workload's model alone, fp32, on one thread. Their time is a lower
bound of the time of its dense program. ``python -m benchmarks.workers.layers WORKLOAD EXAMPLES``.
Blocks as `benchmarks.child` says."""

import sys

import torch

from benchmarks.child import answer
from benchmarks.workloads import WORKLOADS


def main(name: str, examples: int) -> None:
    """Serves blocks of batches."""
    torch.set_num_threads(1)
    layers = [
        (
            torch.randn(examples, each.in_features),
            each.weight.detach().t().contiguous(),
            each.bias.detach(),
            torch.empty(examples, each.out_features),
        )
        for each in WORKLOADS[name].model().modules()
        if isinstance(each, torch.nn.Linear)
    ]

    def batch() -> float:
        for values, weights, bias, out in layers:
            torch.addmm(bias, values, weights, out=out)
        return examples

    answer("examples", batch)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
