"""Pinned memory and streams, which need a CUDA device."""

import pytest
import torch

from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor, kjt_is_equal

pytestmark = pytest.mark.needs_gpu

LENGTHS = torch.tensor([2, 0, 1, 3])


def test_pinned_batches_move_without_blocking():
    kjt = KeyedJaggedTensor(["a", "b"], torch.arange(6), torch.ones(6), lengths=LENGTHS)
    pinned = kjt.pin_memory()
    assert pinned.values().is_pinned()
    assert pinned.weights().is_pinned()
    assert pinned.lengths().is_pinned()
    assert JaggedTensor(torch.ones(6), lengths=LENGTHS).pin_memory().values().is_pinned()

    moved = pinned.to(torch.device("cuda"), non_blocking=True)

    assert moved.device().type == "cuda"
    assert kjt_is_equal(moved.to(torch.device("cpu")), kjt)
    assert kjt_is_equal(moved.permute([1, 0]).to(torch.device("cpu")), kjt.permute([1, 0]))


def test_streams_are_recorded():
    stream = torch.cuda.Stream()
    device = torch.device("cuda")
    kjt = KeyedJaggedTensor(["a", "b"], torch.arange(6), lengths=LENGTHS).to(device)
    kjt.record_stream(stream)
    kjt["a"].record_stream(stream)
    KeyedTensor(["a"], [2], torch.ones(3, 2, device=device)).record_stream(stream)
