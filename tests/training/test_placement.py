"""Placement of the tables of a run on ranks and hosts."""

from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.training import RunConfig
from embershard.training.placement import plan_of
from tests.cases import cases


@cases("cut", {name: name for name in ("table_wise", "table_row_wise", "table_column_wise")})
def test_the_tables_of_a_tower_lie_on_one_host(cut):
    rows = {"user": 80, "item": 40, "history": 100, "genre": 10, "shop": 20}
    tables = [
        EmbeddingBagConfig(name=name, num_embeddings=size, embedding_dim=8, feature_names=[name])
        for name, size in rows.items()
    ]
    config = RunConfig.model_validate(
        {
            "data": {"name": "synthetic"},
            "model": {
                "name": "dmt",
                "embedding_dim": 8,
                "dense_layers": [8],
                "towers": [["user", "item"], ["history", "genre"], ["shop"]],
            },
            "sharding": {"tables": {"*": cut}},
            "checkpoint": {"folder": "x"},
        }
    )
    bags = EmbeddingBagCollection(tables, device="meta")
    plan = plan_of(config, {"bags": bags}, world_size=4, local_size=2).plan["bags"]
    hosts = {name: {rank // 2 for rank in plan[name].ranks} for name in rows}
    # 120 rows go to host 0, then 110 and 20 to host 1, the emptiest each time.
    assert hosts == {"user": {0}, "item": {0}, "history": {1}, "genre": {1}, "shop": {1}}
