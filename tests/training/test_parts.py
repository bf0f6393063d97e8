"""Parts of a run."""

from embershard.training.parts import model_arguments
from tests.training.runs import config, dataset


def test_a_table_has_the_rows_of_its_id_map():
    run = config("unused")
    arguments = model_arguments(run.model, run.training, dataset())
    assert [(t["name"], t["num_embeddings"], t["pooling"]) for t in arguments["tables"]] == [
        ("user", 60, "sum"),
        ("history", 30, "mean"),
        ("item", 40, "sum"),
    ]
