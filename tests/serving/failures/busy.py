"""A model whose largest batch takes long, so that much can happen meanwhile. Tests look at no
clock, only at events before the end of that batch."""

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import Hash, Schema, SparseInput
from embershard.serving import Server, ServerOptions
from tests.serving.asking import Asked, named
from tests.serving.counts import queued, requests_by

EXAMPLES = 4096
"""The most that one request may hold. This is at most 1.5 s of work, far from the 10 s after which
a batch counts as stuck. Such a request runs whole here, in one batch."""

LAYERS = range(2, 9)
"""Numbers of layers that take so long; a layer is 9 thousand million operations."""

WAIT_SECONDS = 60
SCHEMA = Schema(sparse=[SparseInput("item", ids=Hash(100))])


def layers_of(seconds):
    """Number of layers that take that long in one thread of this machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    layer, rows = nn.Linear(1024, 1024), torch.ones(EXAMPLES // 4, 1024)
    layer(rows)  # The first time takes longer.
    started = time.monotonic()
    layer(rows)
    took = 4 * (time.monotonic() - started)
    torch.set_num_threads(threads)
    return min(max(round(seconds / took), LAYERS[0]), LAYERS[-1])


class Heavy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name="items", num_embeddings=100, embedding_dim=16, feature_names=["item"]
                )
            ]
        )
        layers = [nn.Linear(16, 1024)]
        for _ in range(layers_of(seconds=1.5)):
            layers += [nn.ReLU(), nn.Linear(1024, 1024)]
        self.over = nn.Sequential(*layers, nn.Linear(1024, 1))

    def forward(self, dense, sparse):
        return {"score": self.over(self.embeddings(sparse)["item"])[:, 0]}


def export_heavy(folder):
    torch.manual_seed(5)
    export_model(Heavy(), SCHEMA, folder / "heavy" / "1")
    return folder


def body(examples, seed=0):
    ids = np.random.default_rng(seed).integers(0, 1 << 40, examples)
    return named(
        Asked(num_examples=examples, sparse={"item": [[int(one)] for one in ids]}, schema=SCHEMA)
    ).SerializeToString()


def predictor(channel):
    return channel.unary_unary("/embershard.v1.Predictor/Predict")


def until(is_so: Callable[[], bool]) -> None:
    """Waits until the condition holds."""
    pause = threading.Event()
    for _ in range(500 * WAIT_SECONDS):
        if is_so():
            return
        pause.wait(0.002)
    raise AssertionError(f"not so within {WAIT_SECONDS} s")


@contextmanager
def serving_heavy(folder, **options):
    settings = {"max_batch_examples": EXAMPLES, **options}
    with Server(folder, options=ServerOptions(port=0, threads=1, **settings)) as server:
        yield server


def run_long(server, channel, **call):
    """Sends a request of EXAMPLES; the model is at work on it when this returns."""
    before = server.metrics().total("embershard_device_batches", device="cpu:0")
    running = predictor(channel).future(body(EXAMPLES), **call)
    until(lambda: server.metrics().total("embershard_device_batches", device="cpu:0") > before)
    return running


def outcomes(server):
    """Number of requests that ended, by code and reason."""
    return requests_by(server, "code", "reason")


def is_idle(server):
    """Nothing waits, and nothing is under way."""
    in_flight = server.metrics().total("embershard_in_flight_requests")
    return in_flight == 0 and not any(queued(server).values())
