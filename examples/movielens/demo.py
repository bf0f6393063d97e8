"""Trains on real ratings, exports to int8, serves, and sends requests. `make demo` runs this."""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embershard.client import Client, Lists, Prediction
from embershard.commands import Parser
from embershard.console import export_bar, training_bar
from embershard.data import (
    ClientRequest,
    MovieLens,
    client_requests,
    load_movielens,
    movielens_folder,
)
from embershard.data.movielens_features import age_band, year_band
from embershard.export import export_checkpoint
from embershard.ids import hash_string
from embershard.package import Package
from embershard.serving import Server, ServerOptions
from embershard.training import TrainingResult, area_under_curve, read_config, train

HERE = Path(__file__).parent
CANDIDATES = 100
RECOMMENDATIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Results with the served model."""

    test_auc: float
    latency_ms: NDArray[np.float64]
    """Latency of each ranking request, measured by the client."""

    examples_per_second: float
    user: int
    titles: list[str]
    best: ClientRequest
    """A request about only those titles."""


def main() -> None:
    args = _arguments()
    config = read_config(HERE / "movielens.toml")
    movielens = load_movielens(movielens_folder(args.data))
    with training_bar("dlrm on movielens") as progress:
        trained = train(config, movielens.dataset, overwrite=True, progress=progress)
    ended = "stopped early at" if trained.stopped_early else "ended with"
    print(f"{ended} step {trained.steps}, best at step {trained.best_step}", flush=True)
    out = _next_version(Path("repository") / "movielens")
    with export_bar(f"int8 -> {out}") as export_progress:
        export_checkpoint(trained.checkpoint, out, weights="int8", progress=export_progress)
    repository, version = out.parent.parent, int(out.name)
    options = ServerOptions(port=0)
    with Server(repository, model="movielens", version=version, options=options) as server:
        print(f"serving   movielens {version} on {server.address}", flush=True)
        with Client(server.address, timeout_seconds=10) as client:
            served = _send_requests(client, movielens)
    _print_table(movielens, trained, Package.open(out), served)
    request = repository / "request.json"
    request.write_text(_request_text(movielens, served.best))
    _print_next(repository, request)


def _arguments() -> argparse.Namespace:
    parser = Parser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of MovieLens-100K (default: a cache)")
    return parser.parse_args()


def _next_version(model: Path) -> Path:
    versions = [int(child.name) for child in model.glob("*") if child.name.isdigit()]
    return model / str(max(versions, default=0) + 1)


def _send_requests(client: Client, movielens: MovieLens) -> Served:
    scores = np.empty(len(movielens.test), np.float32)
    for request in client_requests(movielens.test):
        scores[request.positions] = _predict(client, request)["score"]

    users = [int(user) for user in movielens.test_users]
    ranking = [movielens.ranking_request(user, candidates=CANDIDATES) for user in users]
    latency_ms = np.empty(len(ranking))
    answers = []
    started = time.perf_counter()
    for place, ranked in enumerate(ranking):
        sent = time.perf_counter()
        answers.append(_predict(client, ranked.request)["score"])
        latency_ms[place] = 1000 * (time.perf_counter() - sent)
    seconds = time.perf_counter() - started

    known = users.index(movielens.known_test_users[0])
    best = np.argsort(-answers[known])[:RECOMMENDATIONS]
    return Served(
        best=_select_examples(movielens, ranking[known].request, best),
        test_auc=area_under_curve(scores, movielens.test.labels),
        latency_ms=latency_ms,
        examples_per_second=CANDIDATES * len(ranking) / seconds,
        user=users[known],
        titles=[movielens.title(int(item)) for item in ranking[known].items[best]],
    )


def _predict(client: Client, request: ClientRequest) -> Prediction:
    sparse = {name: Lists(column.lengths, column.values) for name, column in request.sparse.items()}
    return client.predict("movielens", dense=request.dense, sparse=sparse)


def _select_examples(
    movielens: MovieLens, request: ClientRequest, examples: NDArray[np.int64]
) -> ClientRequest:
    sparse = {
        item.name: request.sparse[item.name].take(examples)
        if item.scope == "example"
        else request.sparse[item.name]
        for item in movielens.dataset.schema.sparse
    }
    return ClientRequest(request.dense[examples], sparse, request.positions[examples])


def _request_text(movielens: MovieLens, request: ClientRequest) -> str:
    """Format a request for `embershard predict`, with one line for each input."""
    schema, text_of = movielens.dataset.schema, _texts(movielens)
    dense: dict[str, object] = {}
    for place, number in enumerate(schema.dense):
        values = [round(value, 4) for value in request.dense[:, place].tolist()]
        dense[number.name] = values[0] if number.scope == "request" else values
    sparse: dict[str, object] = {}
    for item in schema.sparse:
        column = request.sparse[item.name]
        ids = [text_of.get(value, value) for value in column.values.tolist()]
        ends = np.cumsum(column.lengths).tolist()
        lists = [ids[end - size : end] for end, size in zip(ends, column.lengths, strict=True)]
        sparse[item.name] = lists[0] if item.scope == "request" else lists
    parts = {
        part: ",\n".join(
            f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in inputs.items()
        )
        for part, inputs in (("dense", dense), ("sparse", sparse))
    }
    inner = ",\n".join(f' "{part}": {{\n{lines}\n }}' for part, lines in parts.items())
    return f"{{\n{inner}\n}}\n"


def _texts(movielens: MovieLens) -> dict[int, str]:
    """Strings of users and items by their ids."""
    log = movielens.log
    texts: set[str] = set()
    for user in log.user_table.values():
        texts |= {age_band(user.age), user.gender, user.occupation, user.zip_code[:3]}
    for item in log.item_table.values():
        texts |= {year_band(item.year), *item.genres}
    return {hash_string(text): text for text in texts}


def _print_next(repository: Path, request: Path) -> None:
    print(
        f"""
serve it, then score these titles from another terminal:
  .venv/bin/embershard serve {repository} --model movielens
  .venv/bin/embershard predict 127.0.0.1:50051 {request}"""
    )


def _print_table(
    movielens: MovieLens, trained: TrainingResult, package: Package, served: Served
) -> None:
    data = movielens.dataset
    baseline = area_under_curve(movielens.test_baseline, movielens.test.labels)
    tables = package.manifest.tables
    fp32_bytes = sum(table.fp32_bytes for table in tables)
    int8_bytes = sum(table.table_bytes for table in tables)
    p50, p99 = np.percentile(served.latency_ms, [50, 99])
    rows = f"{len(data.train):,} train, {len(data.valid):,} validation, {len(data.test):,} test"
    requests = f"{len(served.latency_ms)} users x {CANDIDATES} items in turn"
    fp32, int8 = f"{trained.test.auc:.4f}", f"{served.test_auc:.4f}"
    print(
        f"""
rows           {rows}
                      fp32   int8, served
test AUC            {fp32}         {int8}   baseline without a model {baseline:.4f}
table bytes      {fp32_bytes:>9,}      {int8_bytes:>9,}
p50 / p99 ms             -    {f"{p50:.2f} / {p99:.2f}":>11}   {requests}
examples/s               -      {served.examples_per_second:>9,.0f}

user {served.user} may like"""
    )
    for title in served.titles:
        print(f"  {title}")


if __name__ == "__main__":
    main()
