"""Row-wise Adagrad as an optimizer that the caller steps."""

import pytest
import torch

from embershard.errors import InputError
from embershard.sharding import RowWiseAdagrad, load_state, save_state
from tests.cases import cases


def table():
    module = torch.nn.Embedding(2, 2)
    module.weight.data.fill_(1.0)
    return module


def test_a_row_steps_by_the_root_of_its_mean_square():
    module = table()
    optimizer = RowWiseAdagrad(module.parameters(), lr=0.5, eps=1.0)
    for _ in range(2):
        module.weight.grad = torch.tensor([[1.0, 7.0], [0.0, 0.0]])
        optimizer.step()
    # Means of squares are 25, then 50: steps of 0.5 / (5 + 1) and 0.5 / (50 ** 0.5 + 1).
    rate = 0.5 / 6 + 0.5 / (50**0.5 + 1)
    torch.testing.assert_close(
        module.weight.detach(), torch.tensor([[1 - rate, 1 - 7 * rate], [1.0, 1.0]])
    )
    assert optimizer.state[module.weight]["sum"].tolist() == [[50.0], [0.0]]


def test_eps_is_torchrecs_unless_given():
    module = table()
    optimizer = RowWiseAdagrad(module.parameters(), lr=1.0)
    module.weight.grad = torch.full((2, 2), 1e-10)
    optimizer.step()
    # 1 - 1e-10 / (1e-10 + 1e-10)
    torch.testing.assert_close(module.weight.detach(), torch.full((2, 2), 0.5))
    with pytest.raises(TypeError):  # TorchRec's third argument is lr_decay.
        RowWiseAdagrad(module.parameters(), 1.0, 1e-8)


def test_weights_without_gradient_stay_and_step_returns_the_loss():
    module = table()
    optimizer = RowWiseAdagrad(module.parameters())
    assert optimizer.step(lambda: module.weight.sum()).item() == 4
    assert torch.equal(module.weight, torch.ones(2, 2))
    assert not optimizer.state


def test_state_is_saved_and_loaded(tmp_path):
    module = table()
    optimizer = RowWiseAdagrad(module.parameters())
    module.weight.grad = torch.ones(2, 2)
    optimizer.step()
    save_state(module, tmp_path / "state", optimizer=optimizer)
    other = table()
    read = RowWiseAdagrad(other.parameters())
    assert load_state(other, tmp_path / "state", optimizer=read) == []
    assert read.state[other.weight]["sum"].tolist() == [[1.0], [1.0]]


@cases(
    ("shape", "settings", "message"),
    {
        "dimensions": ((3,), {}, r"RowWiseAdagrad: params: expected rows and .*, got shape \(3,\)"),
        "rate": ((3, 2), {"lr": -1.0}, r"^RowWiseAdagrad: lr: expected a finite .* 0, got -1\.0$"),
        "eps": ((3, 2), {"eps": 0.0}, r"^RowWiseAdagrad: eps: .* number over 0, got 0\.0$"),
    },
)
def test_what_it_cannot_train_is_refused(shape, settings, message):
    group = {"params": [torch.nn.Parameter(torch.zeros(shape))], **settings}
    optimizer = RowWiseAdagrad(table().parameters())
    for make in (
        lambda: RowWiseAdagrad(**group),
        lambda: RowWiseAdagrad([group]),
        lambda: optimizer.add_param_group(group),
    ):
        with pytest.raises(InputError, match=message):
            make()
    assert len(optimizer.param_groups) == 1
