"""Finds names in PromQL queries that no server exports."""

from collections.abc import Mapping

import promql_parser as promql


def unknown_names(query: str, series: Mapping[str, set[str]], added: set[str]) -> list[str]:
    """Series and labels of a query that do not exist, one message each.

    Args:
        series: labels of every series by its name, as a server exports them.
        added: labels that Prometheus adds to every series.

    Raises:
        ValueError: ``query`` is no PromQL.
    """
    results: list[str] = []

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.VectorSelector):
            results.extend(_of_selector(node, series, added))
        elif isinstance(node, (promql.AggregateExpr, promql.BinaryExpr)):
            labels = added | _labels(node, series)
            results.extend(f"{kind} {name}: no such label" for kind, name in _grouped(node, labels))

    promql.walk(promql.parse(query), visit)
    return results


def _of_selector(
    node: promql.VectorSelector, series: Mapping[str, set[str]], added: set[str]
) -> list[str]:
    if node.name not in series:
        return [f"{node.name}: no such series"]
    labels = series[node.name] | added
    return [
        f"{node.name}: no label {matcher.name}"
        for matcher in node.matchers.matchers
        if matcher.name not in labels
    ]


def _labels(node: promql.Expr, series: Mapping[str, set[str]]) -> set[str]:
    """Labels of all series below a node."""
    labels: set[str] = set()

    def visit(below: promql.Expr) -> None:
        if isinstance(below, promql.VectorSelector):
            labels.update(series.get(below.name, set()))

    promql.walk(node, visit)
    return labels


def _grouped(
    node: promql.AggregateExpr | promql.BinaryExpr, labels: set[str]
) -> list[tuple[str, str]]:
    """Labels in `by` or `on` that do not exist, with that keyword."""
    kind, modifier = "by", node.modifier
    if isinstance(node, promql.BinaryExpr):
        kind, modifier = "on", modifier and modifier.matching
    return [(kind, name) for name in (modifier.labels if modifier else []) if name not in labels]
