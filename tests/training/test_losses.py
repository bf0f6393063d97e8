"""The loss of a batch with several tasks, against values by hand."""

import math

import pytest
import torch

from embershard.data import Batch, TaskConfig
from embershard.training.losses import loss_of

CLICK, SECONDS = TaskConfig(weight=2), TaskConfig(loss="mse", weight=0.5)
NAN = math.nan


def batch(labels, weights=None):
    weights = None if weights is None else torch.tensor(weights)
    return Batch(torch.zeros(len(labels), 0), None, torch.tensor(labels), weights)


def test_one_task_has_the_sum_of_its_losses():
    logits = torch.tensor([[0.0], [2.0]])
    by_hand = math.log(2) + math.log(1 + math.exp(2))
    assert loss_of(logits, batch([1.0, 0.0]), [TaskConfig()]).item() == pytest.approx(by_hand)


def test_tasks_and_rows_count_by_their_weights():
    logits = torch.tensor([[0.0, 3.0], [0.0, 1.0]])
    rows = batch([[1.0, 1.0], [0.0, 4.0]], weights=[1.0, 10.0])
    # Squared errors of 4 and 9.
    by_hand = 2 * 11 * math.log(2) + 0.5 * (1 * 4 + 10 * 9)
    assert loss_of(logits, rows, [CLICK, SECONDS]).item() == pytest.approx(by_hand)


def test_a_label_that_does_not_count_has_no_gradient():
    logits = torch.tensor([[1.0, 2.0], [torch.inf, 3.0], [-1.0, 1e30]], requires_grad=True)
    loss = loss_of(logits, batch([[1.0, 5.0], [NAN, 4.0], [0.0, NAN]]), [CLICK, SECONDS])
    loss.backward()
    assert math.isfinite(loss.item())
    # 2 * (sigmoid(x) - y) for clicks, 0.5 * 2 * (x - y) for seconds.
    first, last = 2 * (1 / (1 + math.exp(-1)) - 1), 2 / (1 + math.exp(1))
    expected = torch.tensor([[first, -3.0], [0.0, -1.0], [last, 0.0]])
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.parametrize("examples", [1, 7, 512, 4097])
def test_one_task_has_the_bits_of_torchs_own_loss(examples):
    random = torch.Generator().manual_seed(examples)
    labels = (torch.rand(examples, generator=random) < 0.3).float()
    results = []
    for own in (True, False):
        logits = torch.randn(examples, 1, generator=torch.Generator().manual_seed(1))
        logits.requires_grad_()
        rows = Batch(torch.zeros(examples, 0), None, labels)
        loss = (
            loss_of(logits, rows, [TaskConfig()])
            if own
            else torch.nn.functional.binary_cross_entropy_with_logits(
                logits.squeeze(1), labels, reduction="sum"
            )
        )
        (loss / examples).backward()
        results.append((loss.detach(), logits.grad))
    (loss, gradient), (expected, expected_gradient) = results
    assert torch.equal(loss, expected)
    assert torch.equal(gradient, expected_gradient)


def test_a_rank_without_rows_has_no_loss():
    logits = torch.zeros(0, 2, requires_grad=True)
    rows = Batch(torch.zeros(0, 0), None, torch.zeros(0, 2))
    loss = loss_of(logits, rows, [CLICK, SECONDS])
    loss.backward()
    assert loss.item() == 0
