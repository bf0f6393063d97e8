"""What the extension says may quote anything, and arrives as an error of ours."""

import io
import shutil
import zipfile

import pytest

from embershard.errors import PackageError
from embershard.serving import LocalPredictor
from tests.hostile.draft import Draft

PROGRAM = "programs/dense.pt"


def test_a_program_whose_code_is_not_utf8_is_refused_with_its_words(package, tmp_path):
    draft = Draft(tmp_path / "1")
    shutil.rmtree(draft.folder)
    shutil.copytree(package, draft.folder)
    draft.replace(PROGRAM, with_code(package / PROGRAM, b"def forward", b"def f\xff\xfeward"))
    with pytest.raises(PackageError, match=r"^programs/dense\.pt: ") as refused:
        LocalPredictor(draft.folder, threads=1)
    assert r"def f\xff\xfeward(self" in str(refused.value)


def with_code(program, old: bytes, new: bytes) -> bytes:
    """The bytes of a TorchScript archive, after `old` has become `new` in all of its code."""
    changed = io.BytesIO()
    with zipfile.ZipFile(program) as before, zipfile.ZipFile(changed, "w") as after:
        for name in before.namelist():
            data = before.read(name)
            after.writestr(name, data.replace(old, new) if name.endswith(".py") else data)
    assert changed.getvalue() != program.read_bytes()
    return changed.getvalue()
