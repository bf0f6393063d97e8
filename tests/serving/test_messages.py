"""Errors of the extension may quote any text, and arrive as an EmbershardError."""

import io
import shutil
import zipfile

import grpc
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.errors import PackageError
from embershard.serving import LocalPredictor
from tests.hostile.draft import Draft

PROGRAM = "programs/dense.pt"


def test_a_program_that_is_not_utf8_is_refused_with_its_words(package, tmp_path):
    draft = Draft(tmp_path / "1")
    shutil.rmtree(draft.folder)
    shutil.copytree(package, draft.folder)
    draft.replace(PROGRAM, with_code(package / PROGRAM, b"def forward", b"def f\xff\xfeward"))
    with pytest.raises(PackageError, match=r"^programs/dense\.pt: ") as refused:
        LocalPredictor(draft.folder, threads=1)
    assert r"def f\xff\xfeward(self" in str(refused.value)


HOSTILE = "x\x1b]0;owned\x07\n\x7f\x9b2J\u202e"
ESCAPED = r"x\u001b]0;owned\u0007\n\u007f\u009b2J\u202e"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("embershard.v1.Predictor/Predict", pb.PredictRequest(model=HOSTILE).SerializeToString()),
        (
            "inference.GRPCInferenceService/ModelMetadata",
            bytes([0x0A, len(HOSTILE.encode())]) + HOSTILE.encode(),  # Field 1, a text: its name.
        ),
    ],
    ids=["ours", "open-inference"],
)
def test_control_characters_of_a_model_name_are_escaped(server, method, message):
    with grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary(f"/{method}").future(message, timeout=60)
        assert call.code() is grpc.StatusCode.NOT_FOUND
        assert call.details().startswith(f"model '{ESCAPED}' is not served here")


def with_code(program, old: bytes, new: bytes) -> bytes:
    """The bytes of a TorchScript archive, after `old` has become `new` in all of its code."""
    changed = io.BytesIO()
    with zipfile.ZipFile(program) as before, zipfile.ZipFile(changed, "w") as after:
        for name in before.namelist():
            data = before.read(name)
            after.writestr(name, data.replace(old, new) if name.endswith(".py") else data)
    assert changed.getvalue() != program.read_bytes()
    return changed.getvalue()
