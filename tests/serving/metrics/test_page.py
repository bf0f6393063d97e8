"""The status page in a real browser, over a real server under load."""

import json
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from embershard.client import Client
from embershard.errors import RequestError
from embershard.serving.metric import Metrics
from embershard.serving.metrics import MetricsPort
from tests.serving.asking import random_request
from tests.serving.counts import requests_by
from tests.serving.metrics.browser import browser
from tests.serving.metrics.figures import (
    BUSY,
    SECONDS,
    FakeServer,
    busy,
    crowd,
    crowded,
    histogram,
    of_version,
    served,
)
from tests.serving.serve import serve

pytestmark = [pytest.mark.needs_browser, pytest.mark.slow]

TRACES = "[...document.querySelectorAll('path.trace')].map(path => path.getAttribute('d'))"


@pytest.fixture(scope="module")
def window():
    with browser() as opened:
        yield opened


@pytest.fixture(autouse=True)
def blank(window):
    """Leaves the page, which asks its server every second, before the server is gone."""
    yield
    window.open("about:blank")
    window.errors()
    window.requested()


@pytest.fixture
def shown(repository):
    with (
        MetricsPort() as metrics,
        serve(repository) as server,
    ):
        metrics.show(server)
        yield server, metrics


@pytest.fixture
def load(shown):
    """Two clients that ask all the time; some requests are refused."""
    server, _ = shown
    requests = [random_request(size, seed=size) for size in (1, 5, 20)]
    enough = threading.Event()

    def ask():
        with Client(server.address, timeout_seconds=60) as client:
            while not enough.is_set():
                for request in requests:
                    client.predict(
                        dense=request.dense, sparse=request.sparse, weights=request.weights
                    )
                with pytest.raises(RequestError):
                    client.predict(dense={"age": 1, "price": [1]}, sparse={"category": [[99]]})

    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(ask) for _ in range(2)]

        def stop():
            enough.set()
            for thread in asking:
                thread.result()

        yield stop
        enough.set()


def rows(window, table):
    """The other cells of each row, by the first."""
    texts = "row => [...row.cells].map(cell => cell.textContent)"
    body = f"document.querySelector('#{table}').tBodies[0]"
    return {row[0]: row[1:] for row in window.evaluate(f"[...{body}.rows].map({texts})")}


def test_under_load_charts_move_and_figures_are_the_metrics(window, shown, load):
    server, metrics = shown
    window.open(metrics.url)
    drawn = f"{TRACES}.filter(d => d && d.includes('L')).length"
    window.wait_for(f"{drawn} >= 12")
    before = window.evaluate(TRACES)
    window.wait_for(f"{TRACES}.every((d, place) => d !== {json.dumps(before)}[place] || !d)")
    for name in (
        "answered",
        "examples",
        "p50:ranker",
        "p99:ranker",
        "batch_fill",
        "dense_share",
        "cpu_cores",
    ):
        figure = f"document.querySelector('b[data-series=\"{name}\"]').textContent"
        window.wait_for(f"parseFloat({figure}) > 0")
    load()

    counted, outcomes = server.metrics(), requests_by(server, "code")
    answered, refused = outcomes["OK",], outcomes["INVALID_ARGUMENT",]
    examples = int(counted.total("embershard_examples"))
    for name, count in (("requests answered", answered), ("requests not answered", refused)):
        cells = "row.cells[0].textContent === {!r} && row.cells[1].textContent === {!r}"
        rows_shown = "[...document.querySelector('#totals').rows]"
        window.wait_for(f"{rows_shown}.some(row => {cells.format(name, f'{count:,}')})")
    totals = rows(window, "totals")
    assert totals["requests not answered"] == [f"{refused:,}"]
    assert totals["examples answered"] == [f"{examples:,}"]
    assert totals["batches"] == [f"{int(counted.total('embershard_batches')):,}"]
    times = counted.histogram("embershard_request_seconds")
    assert totals["p50"] == [in_words(times.quantile(0.5))]
    assert {code: row[:3] for code, row in rows(window, "requests").items()} == {
        "OK": ["", "interactive", f"{answered:,}"],
        "INVALID_ARGUMENT": ["refused", "interactive", f"{refused:,}"],
    }
    assert {name: row[0] for name, row in rows(window, "unknown").items()} == {
        name: f"{int(count):,}"
        for name, count in counted.by("embershard_unknown_ids", "feature").items()
    }
    looked_up = int(counted.total("embershard_device_rows"))
    assert rows(window, "devices")["cpu:0"][2] == f"{looked_up:,}"

    with urllib.request.urlopen(f"{metrics.url}metrics", timeout=60) as answer:
        scraped = answer.read().decode()
    assert f'embershard_examples_total{{model="ranker",version="1"}} {float(examples)}' in (
        scraped.splitlines()
    )
    assert window.errors() == []
    assert {url for url in window.requested() if not url.startswith(metrics.url)} == set()


def in_words(seconds):
    value, unit = (seconds * 1e3, "ms") if seconds >= 1e-3 else (seconds * 1e6, "µs")
    places = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{float(f'{value:.{places}f}'):g} {unit}"


def test_a_page_opened_late_shows_what_was(window, shown):
    server, metrics = shown
    with Client(server.address, timeout_seconds=60) as client:
        client.predict(dense={"age": 1, "price": [1]})
    window.open(metrics.url)
    points = f"({TRACES}[0] ?? '').split(/[ML]/).length - 1"
    window.wait_for(f"{points} >= 3")
    seen = window.evaluate(points)
    window.open("about:blank")
    window.open(metrics.url)
    window.wait_for(f"{points} >= 1")
    assert window.evaluate(points) >= seen
    assert window.errors() == []


def test_each_model_has_a_latency_chart_from_its_load_on(window):
    """Each second the model answers requests, all of them in one bucket."""
    server = FakeServer(busy())
    counts = {"ranker": [1, 0, 0, 0, 0], "finder": [0, 0, 0, 1, 0]}
    models = ["ranker"]

    def metrics():
        server.reads += 1
        return Metrics(
            metric
            for model in models
            for metric in of_version(
                {
                    **BUSY,
                    "embershard_request_seconds": histogram(
                        SECONDS, [server.reads * count for count in counts[model]], 0.1
                    ),
                },
                model=model,
            )
        )

    server.metrics = metrics
    figure = "document.querySelector('b[data-series=\"{}\"]')?.textContent"
    with MetricsPort() as port:
        port.show(server)
        window.open(port.url)
        window.wait_for(f"{figure.format('p50:ranker')} === '500 µs'")
        assert window.evaluate(figure.format("p50:finder")) is None
        models.append("finder")
        server.packages = [served("ranker", 3), served("finder", 2)]
        window.wait_for(f"{figure.format('p50:finder')} === '7.5 ms'")
        window.wait_for(f"{figure.format('p50:ranker')} === '500 µs'")
        headings = "[...document.querySelectorAll('figure h2')].map(each => each.textContent)"
        latency = [item for item in window.evaluate(headings) if item.startswith("Latency")]
        assert latency == ["Latency finder", "Latency ranker"]
        assert window.errors() == []


def test_a_server_that_is_gone_is_said(window):
    with MetricsPort() as metrics:
        metrics.show(FakeServer(busy()))
        window.open(metrics.url)
        window.wait_for("document.querySelector('#state').textContent === 'serving'")
        assert window.errors() == []
    window.wait_for("document.querySelector('#state').className === 'gone'")
    assert window.text("#state").startswith("no answer since ")
    assert window.errors() != []  # Chromium itself tells of the connection.


@pytest.mark.parametrize(
    "server",
    [FakeServer(busy()), FakeServer(crowded(), packages=crowd())],
    ids=["one-version", "many-long-names"],
)
@pytest.mark.parametrize("width", [1280, 1920])
def test_no_table_is_clipped_on_a_desktop(window, width, server):
    window.devtools(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    with MetricsPort() as metrics:
        metrics.show(server)
        window.open(metrics.url)
        window.wait_for("document.querySelector('#versions').tBodies[0].rows.length > 0")
        page = "document.documentElement"
        assert window.evaluate(f"{page}.scrollWidth <= {page}.clientWidth")
        clipped = (
            "[...document.querySelectorAll('.card, td, th')].filter(each => "
            "each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight)"
            ".map(each => each.textContent.slice(0, 40))"
        )
        assert window.evaluate(clipped) == []
    window.devtools("Emulation.clearDeviceMetricsOverride")
    window.errors()


def test_the_title_names_the_product_and_the_model(window):
    with MetricsPort() as metrics:
        metrics.show(FakeServer(busy()))
        window.open(metrics.url)
        window.wait_for("document.querySelector('#version').textContent === 'version 3'")
        assert window.evaluate("document.title") == "embershard · ranker 3"
        assert window.text("h1") == "embershard ranker version 3"
    window.errors()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_the_colours_of_its_owner(window, scheme):
    window.devtools(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=740,
        deviceScaleFactor=2,
        mobile=True,
    )
    window.devtools(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    with MetricsPort() as metrics:
        metrics.show(FakeServer(busy()))
        window.open(metrics.url)
        window.wait_for("document.querySelectorAll('figure').length === 12")
        assert window.evaluate("document.documentElement.scrollWidth") == 360
        ground = window.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) / 3
        assert (light > 128) == (scheme == "light")
    window.devtools("Emulation.clearDeviceMetricsOverride")
    window.errors()


DRAWN = {
    "ceiling(0)": 1,
    "ceiling(0.3)": 0.5,
    "ceiling(5)": 5,
    "ceiling(5.1)": 10,
    "ceiling(1e9)": 1000000000.0,
    "spanOf([])": 60,
    "spanOf([1000, 1100])": 120,
    "spanOf([0, 900])": 600,
    "linear([3, 7]).top": 10,
    "linear([0.1], 1).top": 1,
    "linear([7], 0, 1).top": 1,
    "linear([3]).share(1.25)": 0.25,
    "logarithmic([0.002, 0.03]).top": 0.1,
    "logarithmic([0.002, 0.03]).marks": [0.001, 0.01, 0.1],
    "logarithmic([2e-6]).marks": [1e-06, 1e-05],
    "linear([3, 7]).marks": [5, 10],
    "isolated('M0 1h0M5 1h0L6 2M9 3h0')": "M0 1h0M9 3h0",
    "isolated('')": "",
    "logarithmic([0.002, 0.03]).share(0.01)": 0.5,
    "logarithmic([]).top": 0.01,
    "trace([0, 30, 60], [1, 2, 0], 0, 60, y => y / 2)": "M0.0 50.0h0M300.0 0.0h0M600.0 100.0h0",
    "trace([58, 59, 60], [1, 2, 0], 0, 60, y => y / 2)": "M580.0 50.0h0L590.0 0.0L600.0 100.0",
    "trace([58, 59, 60], [1, null, 1], 0, 60, y => y)": "M580.0 0.0h0M600.0 0.0h0",
    "trace([58, 59], [9, -9], 59, 60, y => y)": "M0.0 100.0h0",
    "seconds(0.0123)": "12.3 ms",
    "seconds(0.0000042)": "4.2 µs",
    "seconds(2)": "2 s",
    "seconds(null)": "\u2013",
    "count(1234567.4)": "1,234,567",
    "number(12.345)": "12.3",
    "percent(0.0512)": "5.12 %",
    "bytes(1234567)": "1.23 MB",
    "duration(59)": "59 s",
    "duration(3723)": "1 h 2 min",
    "duration(200000)": "2 d 7 h",
}
"""Calls of chart.js and format.js with what they return."""


def test_charts_and_numbers_are_drawn_as_expected(window):
    with MetricsPort() as metrics:
        metrics.show(FakeServer(busy()))
        window.open(metrics.url)
        window.wait_for(
            "globalThis.asked ||= Promise.all([import('./chart.js'), import('./format.js')])"
            ".then(parts => globalThis.parts = Object.assign({}, ...parts)), globalThis.parts"
        )
        assert {call: window.evaluate(f"globalThis.parts.{call}") for call in DRAWN} == DRAWN
