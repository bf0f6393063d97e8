"""The server and a peer read the same request of a workload."""

import json

import numpy as np
import torch

from benchmarks.torchrec import write_files
from benchmarks.workers.local import scores_of
from benchmarks.workloads import Workload, WorkloadInput
from embershard.export import export_model
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import PoolingType
from embershard.serving import LocalPredictor

TINY = Workload(
    name="tiny",
    examples=3,
    dim=8,
    sparse=(
        WorkloadInput(name="history", table="item", rows=50, ids=4, scope="request"),
        WorkloadInput(name="item", table="item", rows=50),
        WorkloadInput(name="tags", table="tags", rows=9, ids=2),
    ),
    request_dense=2,
    example_dense=1,
    dense_layers=(8,),
    over_layers=(6, 1),
    pooling=PoolingType.MEAN,
)


def test_server_and_peer_score_the_same_request_alike(tmp_path):
    request = TINY.request(np.random.default_rng(0))
    folder = export_model(TINY.model(), TINY.schema(), tmp_path / "tiny" / "1")

    served = scores_of(LocalPredictor(folder, threads=1), request)

    write_files(TINY, request, tmp_path)
    batch = np.load(tmp_path / "batch.npz")
    model = TINY.model(seed=1)
    model.load_state_dict(torch.load(tmp_path / "state.pt"))
    features = KeyedJaggedTensor(
        json.loads((tmp_path / "model.json").read_text())["keys"],
        torch.from_numpy(batch["values"]),
        lengths=torch.from_numpy(batch["lengths"]),
    )
    expected = torch.sigmoid(model(torch.from_numpy(batch["dense"]), features)).squeeze(1)
    # A step of int8 rows is 1/1024, and a score depends on three pooled vectors.
    np.testing.assert_allclose(served, expected.detach().numpy(), atol=2e-3)


def test_a_peers_batch_has_the_user_side_once_an_example(tmp_path):
    request = TINY.request(np.random.default_rng(0))

    write_files(TINY, request, tmp_path)

    batch = np.load(tmp_path / "batch.npz")
    history = request.values[:4].tolist()
    assert batch["values"].tolist() == history * 3 + request.values[4:].tolist()
    assert batch["lengths"].tolist() == [4, 4, 4, 1, 1, 1, 2, 2, 2]
    assert batch["dense"].shape == (3, 3)
    assert (batch["dense"][:, :2] == request.request_dense).all()
    assert (batch["dense"][:, 2:] == request.example_dense).all()
