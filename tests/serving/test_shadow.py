"""A shadow version is compared with the version that answers; its failures reach no client."""

import re

import pytest
import torch

from embershard.client import Client
from embershard.export import export_model
from embershard.package.labels import write_label
from embershard.serving.metrics.history import History
from embershard.serving.metrics.port import exposition, status_json
from tests.serving.failures.busy import until
from tests.serving.serve import serve
from tests.serving.versions import SCHEMA, STEP, Telling, publish

ASKED = 40
DEAR = 1000.0
"""From this price on a program goes wrong: neither the exporter nor the server's check ask so."""


class Crashes(Telling):
    """Takes a place behind the end of a tensor."""

    def __init__(self):
        super().__init__(2)
        self.register_buffer("zeros", torch.zeros(1))

    def forward(self, dense, sparse):
        place = (dense[:, 0].abs() / DEAR).long()
        return {"score": super().forward(dense, sparse)["score"] + self.zeros[place]}


def counted(server, name):
    """A shadow metric of version 2."""
    return server.metrics().total(f"embershard_shadow_{name}", version=2)


def sampled_of(server):
    """Copied or dropped."""
    return counted(server, "requests") + counted(server, "dropped")


def test_scores_that_differ_are_measured(tmp_path):
    """Version 2 scores everything by STEP more: in metrics and on the page, too."""
    for version, label in ((1, "stable"), (2, "shadow")):
        publish(tmp_path, version)
        write_label(tmp_path, "ranker", label, version)
    with (
        serve(tmp_path, shadow_share=1.0, shadow_time=1.0) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        for row in range(ASKED):
            client.predict("ranker", dense={"price": [5.0, 6.0]}, sparse={"item": [[row], []]})
        until(lambda: sampled_of(server) == ASKED)
        sent = counted(server, "requests")
        assert sent > 0
        until(lambda: counted(server, "difference") == sent)
        metrics = exposition(server.metrics)().decode()
        status = status_json(server.metrics(), server.packages, "serving", History(server.metrics))
    assert counted(server, "failed") == 0
    (told,) = re.findall(
        r"^embershard_shadow_difference_sum\{.*version=\"2\"\} (.*)$", metrics, re.M
    )
    assert float(told) == pytest.approx(sent * STEP, rel=1e-4)
    assert (
        f'embershard_shadow_compared_total{{model="ranker",version="2"}} {float(sent)}' in metrics
    )
    # A copy waits for its client's answer and for idle time. That wait is not counted as queue
    # time.
    waits = server.metrics().histogram("embershard_queue_seconds", model="ranker")
    assert waits.observations == ASKED
    (line,) = [version for version in status["versions"] if version["version"] == 2]
    assert (line["shadow_sampled"], line["shadow_compared"]) == (ASKED, sent)
    assert line["shadow_difference"] == pytest.approx(STEP, rel=1e-4)


def test_a_shadow_that_fails_touches_no_answer(tmp_path):
    publish(tmp_path, 1)
    export_model(Crashes(), SCHEMA, tmp_path / "ranker" / "2", devices="1xcpu")
    write_label(tmp_path, "ranker", "stable", 1)
    write_label(tmp_path, "ranker", "shadow", 2)
    with (
        serve(tmp_path, shadow_share=1.0, shadow_time=1.0) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        alone = client.predict(
            "ranker", version=1, dense={"price": [DEAR]}, sparse={"item": [[3]]}
        )["score"]
        for _ in range(ASKED):
            answer = client.predict("ranker", dense={"price": [DEAR]}, sparse={"item": [[3]]})
            assert answer.version == 1
            assert answer["score"] == alone
        assert abs(float(alone[0]) - STEP - DEAR) < STEP / 10
        until(lambda: sampled_of(server) == ASKED + 1)
        until(lambda: counted(server, "failed") == counted(server, "requests"))
