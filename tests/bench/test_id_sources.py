"""Sources of ids, and their order of precedence."""

from pathlib import Path

import numpy as np
import pytest

from embershard.bench.id_sources import find_id_sources
from embershard.client.prediction import served_model
from embershard.errors import InputError
from embershard.package import Package
from tests.bench.fake_predictor import described
from tests.repository.sources import ROOT

GOLDEN = ROOT / "tests" / "golden" / "format_0" / "tiny" / "1"


def golden_model():
    """The golden package as a server describes it: `user` is a vocabulary of alice, bob, ..."""
    package = Package.open(GOLDEN)
    message = described()
    del message.inputs[:]
    message.schema = int(package.manifest.fingerprint, 16)
    for item in package.schema().sparse:
        message.inputs.add(name=item.name, scope=1).sparse.SetInParent()
    return served_model(message), package


def test_the_server_is_asked_first_of_those_without_an_option():
    sources = find_id_sources(served_model(described()), ranges={"": (5, 6)})
    assert {name: source.size for name, source in sources.items()} == {
        "user": 1000,
        "history": 500,
        "item": 500,
        "tags": 8,
    }
    assert sources["item"].ids_at(np.array([0, 499])).tolist() == [0, 499]


def test_a_range_for_a_feature_goes_before_all():
    source = find_id_sources(served_model(described()), ranges={"item": (-3, 6)})["item"]
    assert source.size == 10
    assert source.ids_at(np.array([0, 9])).tolist() == [-3, 6]


def test_a_range_for_all_stands_in_where_nobody_knows():
    model, _ = golden_model()
    sources = find_id_sources(model, ranges={"": (10, 29)})
    assert {(source.first, source.size) for source in sources.values()} == {(10, 20)}


def test_the_package_lists_its_vocabularies_and_knows_its_rows():
    model, package = golden_model()
    sources = find_id_sources(model, ranges={}, package=GOLDEN)
    for item in package.schema().sparse:
        source = sources[item.name]
        ids = source.ids_at(np.arange(source.size))
        assert item.ids is not None
        assert (item.ids.lookup(ids) >= 0).all()
    assert any(source.listed is not None for source in sources.values())
    assert any(source.listed is None for source in sources.values())


def test_ids_that_nobody_knows_are_refused():
    model, _ = golden_model()
    with pytest.raises(
        InputError, match=r"feature 'user': expected .* --package PATH .* --id-range"
    ):
        find_id_sources(model, ranges={})


def test_a_package_of_another_schema_is_refused():
    with pytest.raises(InputError, match="expected the server's schema 0000000000000abc"):
        find_id_sources(served_model(described()), ranges={}, package=Path(GOLDEN))


def test_a_range_for_no_input_is_refused():
    with pytest.raises(InputError, match="'price' is no sparse input of 'ranker'"):
        find_id_sources(served_model(described()), ranges={"price": (0, 1)})
