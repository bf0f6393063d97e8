"""Errors in docs/protocols.md: the tree, the map from gRPC, and messages are the real ones."""

import re
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
import torch

import embershard
from embershard import cli, errors
from embershard.client import Client
from embershard.client import status as retry_module
from embershard.client.status import ERRORS, error_of
from embershard.data import load_movielens
from embershard.jagged import KeyedJaggedTensor
from embershard.package import Package, add_plan, make_plan
from embershard.planner import PlannerError
from embershard.serving import LocalPredictor, Server, ServerOptions
from embershard.training import read_config
from tests.serving.asking import named, random_request
from tests.serving.models import make_ranker

PAGE = (Path(__file__).parents[2] / "docs/protocols.md").read_text().split("\n## Errors\n")[1]
BLOCKS = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TREE, *EXAMPLE_BLOCKS = BLOCKS
EXAMPLES = [line for block in EXAMPLE_BLOCKS for line in block.splitlines()]


def test_the_tree_is_that_of_the_library():
    shown, above = dict[str, str](), list[str]()
    for line in TREE.splitlines():
        depth, name = re.fullmatch(r"([│├└─ ]*)(?:planner\.)?(\w+).*", line).groups()
        above[len(depth) // 4 :] = [name]
        shown[name] = above[-2] if len(above) > 1 else "Exception"
    known = {**vars(errors), "PlannerError": PlannerError}
    real = {
        name: value.__bases__[0].__name__
        for name, value in known.items()
        if isinstance(value, type) and issubclass(value, errors.EmbershardError)
    }
    assert shown == real


def test_every_status_is_listed_with_what_is_raised():
    rows = re.findall(r"^\| ([A-Z_]+) \| (\w+Error)", PAGE, re.MULTILINE)
    assert dict(rows) == {code.name: kind.__name__ for code, kind in ERRORS.items()}
    assert len(rows) == len(ERRORS)


def test_commands_print_the_line_that_the_page_gives(tmp_path, capsys):
    (form,) = re.findall(r"`(embershard <.*?>)`, on standard error and end with 1", PAGE)
    assert cli.main(["inspect", str(tmp_path / "nowhere")]) == 1
    message = f"{tmp_path}/nowhere: missing folder of a package"
    parts = {"<command>": "inspect", "<class>": "PackageError", "<message>": message}
    for name, value in parts.items():
        form = form.replace(name, value)
    assert capsys.readouterr().err == form + "\n"


def test_each_class_that_a_caller_can_act_on_has_an_example():
    shown = {line.partition(":")[0] for line in EXAMPLES}
    known = {name for name, var in vars(errors).items() if isinstance(var, type)}
    bases = {"EmbershardError", "InputError", "RetryError"}
    elsewhere = {"LostRankError"}  # Training's: docs/sharding.md.
    assert shown == known - bases - elsewhere - {"InternalError"}


@pytest.fixture
def said(client, server, repository, tmp_path, monkeypatch):
    """What the library says where the page's examples would say it."""
    monkeypatch.chdir(tmp_path)
    dense = {"age": 1, "price": [1, 2]}

    def predict(model="ranker", **inputs):
        return lambda: client.predict(model, **{"dense": dense, **inputs})

    def late():
        times = iter([0.0, 0.0])
        clock = SimpleNamespace(monotonic=lambda: next(times, 9.0))
        with monkeypatch.context() as patch, Client(server.address, timeout_seconds=8) as impatient:
            patch.setattr(retry_module, "time", clock)
            impatient.predict(dense=dense)

    Path("run.toml").write_text(
        '[data]\nname = "movielens"\n\n[training]\npatience = 0\n\n[checkpoint]\nfolder = "c"\n'
    )
    Path("ml-100k").mkdir()
    shutil.copytree(repository / "ranker" / "1", "longer")
    with Path("longer/plans/default.json").open("a") as plan:
        plan.write(" ")
    shutil.copytree(repository / "ranker" / "1", "gpus")
    mixed = make_plan(Package.open("gpus"), ["cpu:0", "cuda:0"], name="gpus", strategy="table")
    add_plan("gpus", mixed)
    causes = [
        predict(sparse={"itm": [[1]]}),
        predict(sparse={"category": [[0], [6]]}),
        predict(dense={"age": 1, "price": [1, 2, float("nan")]}),
        predict(sparse={"item": [[1], [2], [3]]}),
        predict(dense={"age": 1, "price": np.zeros(5000)}),
        lambda: KeyedJaggedTensor(["item"], torch.tensor([1]), lengths=torch.tensor([1]))["itm"],
        predict("rankr"),
        predict(outputs=["scor"]),
        lambda: Server(repository, options=ServerOptions(port=0, plan="8xcuda")),
        lambda: ask_without_token(repository),
        lambda: read_config(Path("run.toml")),
        lambda: ServerOptions(port=70000),
        lambda: load_movielens(Path("ml-100k")),
        lambda: embershard.export_model(*make_ranker(), "repository/ranker/latest"),
        lambda: Package.open("ml-100k"),
        lambda: Package.open("longer"),
        lambda: LocalPredictor("gpus", plan="gpus"),
        lambda: overload(repository),
        lambda: listen_where_another_does(repository),
        late,
    ]
    return {without_port(told(cause)) for cause in causes}


def told(cause):
    with pytest.raises(errors.EmbershardError) as caught:
        cause()
    return f"{type(caught.value).__name__}: {caught.value}"


def without_port(text):
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:50051", text)


def overload(repository):
    message = named(random_request(2048)).SerializeToString()
    options = ServerOptions(port=0, threads=1, max_queued_examples=2048)
    with (
        Server(repository, options=options) as small,
        grpc.insecure_channel(small.address) as channel,
    ):
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        calls = [predict.future(message, timeout=60) for _ in range(60)]
        refused = [call.exception() for call in calls if call.code() is not grpc.StatusCode.OK]
        raise error_of(refused[0], address=small.address)


def ask_without_token(repository):
    Path("token").write_text("0123456789abcdef")
    options = ServerOptions(port=0, threads=1, token_file="token")
    with (
        Server(repository, options=options) as guarded,
        Client(guarded.address, timeout_seconds=60) as stranger,
    ):
        stranger.get_model(timeout_seconds=60)


def listen_where_another_does(repository):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        Server(repository, options=ServerOptions(port=taken.getsockname()[1]))


def test_the_examples_are_what_is_said(said):
    def changing_numbers_aside(texts):  # A package's sizes, and how full the queue is just then.
        sizes = [
            re.sub(r"bytes: expected \d+, got \d+", "bytes: expected N, got N", t) for t in texts
        ]
        return {re.sub(r"\d+ examples are waiting", "N examples are waiting", t) for t in sizes}

    assert changing_numbers_aside(EXAMPLES) == changing_numbers_aside(said)
