"""Small runs, for the tests of this folder."""

import torch

from embershard.data.synthetic import PlantedInput, SyntheticConfig, planted_click_log
from embershard.training import RunConfig, load_checkpoint

INPUTS = (
    PlantedInput(name="user", scope="request", ids=60),
    PlantedInput(name="history", scope="request", ids=30, max_length=4),
    PlantedInput(name="item", scope="example", ids=40),
)


def dataset(examples=2000, seed=0):
    return planted_click_log(SyntheticConfig(examples=examples, seed=seed, inputs=INPUTS)).dataset


def config(folder, **training):
    settings = {"batch_size": 64, "epochs": 2, "evaluate_every_steps": 10, "threads": 1}
    return RunConfig.model_validate(
        {
            "data": {"name": "synthetic"},
            "model": {"embedding_dim": 4, "dense_layers": [4], "over_layers": [8, 1]},
            "training": settings | training,
            "checkpoint": {"folder": str(folder)},
        }
    )


def saving(folder, every=5, **training):
    """A run that saves checkpoints to resume from."""
    run = config(folder, **training)
    checkpoint = run.checkpoint.model_copy(update={"last_every_steps": every})
    return run.model_copy(update={"checkpoint": checkpoint})


def interrupt_at(step):
    """A ``progress`` of `train` that interrupts it after a step, as Ctrl-C does."""

    def interrupt(now):
        if now.step == step:
            raise KeyboardInterrupt

    return interrupt


def weights_of(result):
    return load_checkpoint(result.checkpoint).module.state_dict()


def same(weights, others):
    return weights.keys() == others.keys() and all(
        torch.equal(weights[name], others[name]) for name in others
    )
