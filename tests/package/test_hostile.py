"""Damaged packages are refused, and the message names file and field."""

import pytest

from embershard.errors import PackageError
from embershard.package.reader import verify_package
from tests.hostile.cases import CASES
from tests.hostile.draft import Draft


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_the_python_reader_refuses(case, tmp_path):
    package = case.build(tmp_path)

    with pytest.raises(PackageError) as refused:
        verify_package(package)

    assert case.is_named_by(str(refused.value)), refused.value


def test_the_undamaged_package_is_read(tmp_path):
    draft = Draft(tmp_path / "whole")
    draft.edit_manifest(lambda document: None)

    verify_package(draft.folder)
