"""Trains on Parquet files, or only reads them. Speaks the line protocol of `benchmarks.child`.

``python -m benchmarks.workers.parquet_training FOLDER CONFIG READER``. The READER ``training``
trains on batches of `ParquetBatches`, ``batches`` only reads these, and ``loader`` only reads
batches of a DataLoader.
"""

import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.child import serve_blocks
from benchmarks.peers.click_loader import click_loader
from embershard.data import load_dataset
from embershard.data.splits import Batch
from embershard.training.config import read_config
from embershard.training.forward import logits_of
from embershard.training.losses import loss_of
from embershard.training.setup import set_up
from embershard.training.steps import dense_optimizer, training_steps


def main(folder: Path, name: str, reader: str) -> None:
    config = read_config(folder / name)
    torch.set_num_threads(1)
    dataset = load_dataset(config.data, tasks=config.tasks, cache=folder / "cache")
    setup = set_up(config, dataset, None)
    module = setup.build()

    def forward(batch: Batch) -> tuple[Tensor, Tensor]:
        total = loss_of(logits_of(module, batch, dataset.schema), batch, config.tasks.values())
        return total / len(batch.labels), total.detach()

    train_next = training_steps(module, dense_optimizer(module, config.training), forward)
    size, waited, examples = config.training.batch_size, 0.0, 0

    def batches() -> Iterator[Batch]:
        for epoch in count():
            yield from setup.train.batches(batch_size=size, shuffle_seed=epoch)

    def timed(source: Iterator[Batch]) -> Iterator[Batch]:
        nonlocal waited, examples
        while True:
            began = time.perf_counter()
            batch = next(source)
            waited += time.perf_counter() - began
            examples += len(batch.labels)
            yield batch

    loader = click_loader(folder / "clicks", dataset.schema, size)
    source = timed(iter(loader) if reader == "loader" else batches())

    def block(seconds: float) -> dict[str, float]:
        nonlocal waited, examples
        waited, examples, steps = 0.0, 0, 0
        began, cpu, own_cpu = time.perf_counter(), time.process_time(), time.thread_time()
        while (passed := time.perf_counter() - began) < seconds:
            if reader == "training":
                train_next(source)
            else:
                next(source)
            steps += 1
        cpu, own_cpu = time.process_time() - cpu, time.thread_time() - own_cpu
        return {
            "examples_per_second": examples / passed,
            "examples_per_cpu_second": examples / cpu,
            "step_us": passed / steps * 1e6,
            "wait_us": waited / steps * 1e6,
            # Training runs on this thread, and the reader on others.
            "step_cpu_us": own_cpu / steps * 1e6,
            "reader_cpu_us": (cpu - own_cpu) / steps * 1e6,
        }

    serve_blocks(block)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
