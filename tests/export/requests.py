"""A request for the ranker that has every kind of input."""

import numpy as np

from embershard.package import SampleRequest
from tests.serving.models import SCHEMA as EVERY_KIND


def sample_request(**changes):
    """A request of three examples with unknown ids, empty lists, lists over max_ids and weights."""
    lists = {
        "user": [[-77]],  # Unknown: looks up the oov row.
        "item": [[100, 5], [], [-3, 159, 2**63 - 1]],  # 5 is unknown: a zero vector.
        "history": [[101, 102, 103, 104, 105, 106, 107, 5]],  # The last five of eight count.
        "query": [[-1, 0, 9]],
        "category": [[0, 5, 0], [1], []],
        "tags": [[7, 8], [-1], [0]],  # 8 and -1 are unknown.
        "topics": [[3, 1, 4, 1, 5, 9]],  # The first four of six count.
    }
    flat = [bag for name in EVERY_KIND.sparse_names() for bag in lists[name]]
    values = [value for bag in flat for value in bag]
    fields = {
        "num_examples": 3,
        "request_dense": np.array([0.5, -1], np.float32),
        "example_dense": np.arange(6, dtype=np.float32).reshape(3, 2),
        "lengths": np.array([len(bag) for bag in flat], np.int32),
        "values": np.array(values, np.int64),
        "weights": np.linspace(-1, 1, 4 + 6, dtype=np.float32),
        "outputs": {},
    }
    return SampleRequest(**(fields | changes))
