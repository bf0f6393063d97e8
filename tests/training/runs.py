"""Small runs, for the tests of this folder."""

from embershard.data.synthetic import PlantedInput, SyntheticConfig, planted_click_log
from embershard.training import RunConfig

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
