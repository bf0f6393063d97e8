"""PLE and MMoE against the papers' gates and experts, example by example."""

import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.models import build_model
from tests.cases import cases, refused
from tests.models.inputs import DENSE, arguments_of, model_of, perceptrons, pooled, sparse

TASKS = ("click", "buy")


def gated(state, gate, x, outputs):
    """Sum of the experts' outputs, weighted by a softmax over the products of the gate."""
    raw = (state[f"{gate}.weight"] @ x).exp()
    return sum(part * output for part, output in zip(raw / raw.sum(), outputs, strict=True))


def experts(state, prefix, x, count):
    return [
        perceptrons(state, f"{prefix}.{number}", x, 2, activate_last=True)
        for number in range(count)
    ]


def test_logits_are_those_of_the_papers_two_levels():
    model = model_of("ple", TASKS, levels=2, task_experts=2, shared_experts=3, expert_layers=(6, 5))
    state = model.state_dict()

    expected = []
    for example, dense in enumerate(DENSE):
        features = torch.cat([dense, *pooled(model, example)])
        click, buy, shared = features, features, features
        for level in (0, 1):
            at = f"levels.{level}"
            of_click = experts(state, f"{at}.experts.0", click, 2)
            of_buy = experts(state, f"{at}.experts.1", buy, 2)
            of_all = experts(state, f"{at}.experts.2", shared, 3)
            click = gated(state, f"{at}.gates.0", click, of_click + of_all)
            buy = gated(state, f"{at}.gates.1", buy, of_buy + of_all)
            if level == 0:
                shared = gated(state, f"{at}.gates.2", shared, of_click + of_buy + of_all)
        towers = [perceptrons(state, f"towers.{t}", x, 2) for t, x in enumerate((click, buy))]
        expected.append(torch.cat(towers))

    assert_close(model(DENSE, sparse()), torch.stack(expected), rtol=1e-5, atol=1e-5)
    assert "levels.1.gates.2.weight" not in state


def test_one_level_of_shared_experts_is_mmoe():
    model = model_of("ple", TASKS, levels=1, task_experts=0, shared_experts=3, expert_layers=(6, 5))
    state = model.state_dict()

    expected = []
    for example, dense in enumerate(DENSE):
        features = torch.cat([dense, *pooled(model, example)])
        outputs = experts(state, "levels.0.experts.2", features, 3)
        mixed = [gated(state, f"levels.0.gates.{task}", features, outputs) for task in (0, 1)]
        towers = [perceptrons(state, f"towers.{task}", x, 2) for task, x in enumerate(mixed)]
        expected.append(torch.cat(towers))

    assert_close(model(DENSE, sparse()), torch.stack(expected), rtol=1e-5, atol=1e-5)


@cases(
    ("changed", "parts"),
    {
        "no-level": ({"levels": 0}, ["at least one level and one expert", "got levels 0"]),
        "no-expert": (
            {"task_experts": 0, "shared_experts": 0},
            ["got levels 2, task_experts 0, shared_experts 0"],
        ),
        "two-logits": ({"tower_layer_sizes": [2]}, ["one logit for each tower"]),
    },
)
def test_arguments_that_do_not_fit_are_refused(changed, parts):
    with refused(InputError, *parts):
        build_model("ple", arguments_of("ple") | changed)
