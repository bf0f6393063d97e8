"""`embershard inspect` describes a package."""

from embershard.package import Package, PackageWriter, describe_package
from tests.cases import cases
from tests.hostile.draft import GOLDEN, Draft
from tests.package.building import ROWS, fill, publish


def lines_of(package):
    """The lines of a description, with single blanks."""
    return [" ".join(line.split()) for line in describe_package(package).splitlines()]


def test_a_description_names_tables_inputs_and_outputs(tmp_path):
    lines = lines_of(Package.open(publish(tmp_path / "m" / "1")))

    assert lines[0] == (
        "small 1 format 0 1 table, 1 sparse and 0 dense inputs 0.024 MB (fp32 0.048 MB)"
    )
    assert "table rows dim weights MB fp32 MB mse max error plan default" in lines
    assert "user 3,000 4 int8 0.024 0.048 1.0e-06 2.0e-03 cpu:0" in lines
    assert (
        "user sparse example vocab of 3,000 numbers (0, 1, 2, ...), unknown: reject sum of user"
        in lines
    )
    assert "score example [N]" in lines


def test_every_kind_of_input_is_described():
    lines = lines_of(Package.open(GOLDEN))

    assert "price dense example default 0.25" in lines
    assert (
        "user sparse request vocab of 4 strings or large numbers, unknown: oov sum of users"
        in lines
    )
    assert "tags sparse, weighted request hash to 7, at most 3 (last) sum of tags" in lines
    assert "item sparse example identity of 600, unknown: reject mean of items" in lines
    assert "profile request [1, 2]" in lines


def test_transforms_are_described(tmp_path):
    draft = Draft(tmp_path / "1")
    boundaries = [0.5, 1, 2, 3, 4, 5, 6, 7, 8]
    transforms = [
        {"kind": "clip", "low": 0, "high": 2.5},
        {"kind": "log1p"},
        {"kind": "bucketize", "boundaries": boundaries},
    ]
    draft.edit_manifest(lambda document: document["inputs"][1].update(transforms=transforms))

    assert (
        "price dense example default 0.25, clip(0, 2.5), log1p(), "
        "bucketize(0.5, 1, 2, 3, 4, 5, 6, 7, ...)"
    ) in lines_of(Package.open(draft.folder))


@cases(
    ("ids", "words"),
    {
        "numbers": (range(3000, 0, -1), "numbers (1, 2, 3, ...)"),
        "text": ([f"u{number}" for number in range(3000)], "strings or large numbers"),
        "large": (range(1 << 60, (1 << 60) + 3000), "strings or large numbers"),
    },
)
def test_the_kind_of_a_vocabularys_ids_is_said(tmp_path, ids, words):
    with PackageWriter(tmp_path / "m" / "1") as writer:
        package = writer.publish(fill(writer, [ROWS], ids=ids))
    expected = f"user sparse example vocab of 3,000 {words}, unknown: reject sum of user"
    assert expected in lines_of(Package.open(package))


def test_columns_line_up():
    lines = describe_package(Package.open(GOLDEN)).splitlines()
    head = next(line for line in lines if line.startswith("table"))
    items = next(line for line in lines if line.startswith("items"))
    assert items.index("int4") == head.index("weights")
    assert items.index("cpu:0") == head.index("plan")


def test_the_size_of_each_dense_program_is_said():
    package = Package.open(GOLDEN)
    (program,) = package.manifest.programs
    size = (package.path / program.file).stat().st_size
    assert f"programs torchscript float32 on cpu ({size / 1e6:.3f} MB)" in lines_of(package)
