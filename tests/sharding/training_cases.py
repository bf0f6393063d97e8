"""Training runs that worker processes make; see workers.py."""

from embershard.errors import EmbershardError
from embershard.training import load_checkpoint, train
from tests.training.runs import config, dataset


class StoppedError(Exception):
    """Raised by a run's progress callback."""


def sharded_config(folder, kind, **training):
    run = config(folder, **training)
    changed = {
        "model": {"embedding_dim": 8, "dense_layers": [8], "over_layers": [8, 1]},
        "checkpoint": {"folder": str(folder), "last_every_steps": 7},
        "sharding": {"tables": {"user": kind, "*": "row_wise"}},
    }
    return type(run).model_validate(run.model_dump(mode="json", exclude_unset=True) | changed)


def train_run(env, folder, kind, *, stop_at=None, resume=False, seed_of_rank_1=0, **training):
    """Result and weights of a run. None: it was stopped after step ``stop_at``. A text: the run's
    error message."""
    seed = seed_of_rank_1 if env.rank == 1 else 0
    run = sharded_config(folder, kind, seed=seed, dense_optimizer="adam", **training)

    def stop(now):
        if now.step == stop_at:
            raise StoppedError

    try:
        result = train(run, dataset(), env=env, progress=stop, resume=resume)
    except StoppedError:
        return None
    except EmbershardError as error:
        return str(error)
    return result, load_checkpoint(result.checkpoint).module.state_dict()
