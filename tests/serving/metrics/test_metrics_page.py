"""docs/metrics.md lists what is exposed, all of it and nothing else."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from embershard.serving.metric import Metrics, log_lines_dropped
from embershard.serving.metrics.port import exposition

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
NAME = r"(?:embershard|nv_inference|process)_\w+"


def listed():
    """Kind, unit and labels of each metric, by name, as the page's table has them."""
    rows = re.findall(rf"^\| `({NAME})` \| (\w+) \|([^|]*)\|", PAGE, re.MULTILINE)
    assert len(rows) == len({name for name, *_ in rows})
    return {name: (kind, third.strip()) for name, kind, third in rows}


def scraped(server):
    return exposition(lambda: Metrics([*server.metrics(), log_lines_dropped(0)]))().decode()


def exposed(server):
    """Kind and labels of each metric, by the name that its samples begin with."""
    results = {}
    for family in text_string_to_metric_families(scraped(server)):
        for sample in family.samples:
            name = family.name if family.type == "histogram" else sample.name
            labels = set(sample.labels) - {"model", "version", "le"}
            kind = {"unknown": "untyped"}.get(family.type, family.type)
            results[name] = kind, labels
    return results


def test_documented_and_exposed_metrics_are_the_same(server):
    documented, result = listed(), exposed(server)
    assert set(documented) == set(result)
    for name, (kind, third) in documented.items():
        assert (kind, set(re.findall("`(\\w+)`", third))) == result[name], name


def test_every_reason_is_listed_with_its_code_and_tritons_name(server):
    rows = re.findall(r"^\| `([A-Z_]+)` \| `?(\w*)`? ?\| `?([A-Z]*)`? ?\|", PAGE, re.MULTILINE)
    metrics = server.metrics()
    requests = metrics.find("embershard_requests", priority="background")
    assert sorted((code, reason) for code, reason, _ in rows) == sorted(
        (request.labels["code"], request.labels["reason"]) for request in requests
    )
    tritons = metrics.by("nv_inference_request_failure", "reason")
    assert {name for _, reason, name in rows if reason} == set(tritons)
