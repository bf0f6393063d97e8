"""Programs as files."""

import pytest
import torch

from embershard.export.torchscript import save_program


def test_a_full_disk_is_an_error_of_the_system_that_names_the_file(tmp_path, file_limit):
    with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
        program = torch.jit.script(torch.nn.Linear(100, 100))
    with pytest.raises(OSError, match=r"File too large"), file_limit(20_000):
        save_program(program, tmp_path / "dense.pt")
