import pytest
import torch

from embershard.kernels import permute_segments

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.needs_gpu)]


def permuted(device, order, counts, values):
    result = permute_segments(
        torch.tensor(order, dtype=torch.int32, device=device),
        torch.tensor(counts, device=device),
        torch.tensor(values, device=device),
        torch.tensor(values, dtype=torch.float32, device=device) / 10,
    )
    return [tensor.cpu() for tensor in result]


@pytest.mark.parametrize("device", DEVICES)
def test_segments_come_in_the_order_given_and_several_times(device):
    # Two segments of two bags: [1], [2] and [], [3].
    counts, values, weights = permuted(device, [1, 0, 1], [[1, 1], [0, 1]], [1, 2, 3])
    assert counts.tolist() == [[0, 1], [1, 1], [0, 1]]
    assert values.tolist() == [3, 1, 2, 3]
    torch.testing.assert_close(weights, torch.tensor([0.3, 0.1, 0.2, 0.3]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("order", "counts", "shape"),
    [([], [[1, 1], [0, 1]], (0, 2)), ([], [2, 1], (0,))],
    ids=["of-bags", "of-values"],
)
def test_no_segment_may_be_chosen(device, order, counts, shape):
    result, values, weights = permuted(device, order, counts, [1, 2, 3])
    assert result.shape == shape
    assert values.tolist() == []
    assert weights.tolist() == []


@pytest.mark.parametrize("device", DEVICES)
def test_segments_of_no_bags_come_as_often_as_chosen(device):
    result, values, weights = permuted(device, [1, 0, 1], [[], []], [])
    assert result.shape == (3, 0)
    assert values.tolist() == []
    assert weights.tolist() == []
