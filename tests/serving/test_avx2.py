"""Outputs that are equal bit for bit are so on processors without AVX-512, too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.processor import processor_flags

HERE = Path(__file__).parent
SAME_BITS = (
    "test_bad_input.py::test_what_the_cases_spoil_is_good",
    "test_local.py::test_arrays_may_have_any_strides_and_lie_in_torch",
    "test_local.py::test_layers_give_a_row_the_same_bits_in_any_place",
    "test_plans.py::test_every_strategy_gives_the_scores_of_one_device",
    "test_plans.py::test_a_server_keeps_its_plan_while_others_are_added",
    "test_sequences.py::test_a_plan_over_two_devices_does_not_change_one_bit",
    "test_server.py::test_the_client_rides_out_an_overload",
    "test_splits.py::test_plan_and_residency_do_not_change_one_bit",
    "test_torchrec.py::test_scores_are_those_of_our_own_protocol",
    "failures/test_2_input_in_several_chunks.py::test_the_answer_is_the_same",
    "open_inference/test_refusals.py::test_typed_contents_give_the_same",
)
"""Tests that compare bits of what a layer computed."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif("avx512f" not in processor_flags(), reason="all tests run so here")
def test_they_are_with_avx2_forced():
    tests = [str(HERE / name) for name in SAME_BITS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"EMBERSHARD_ISA": "avx2"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert "skipped" not in ran.stdout.splitlines()[-1]
