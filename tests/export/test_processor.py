"""What a machine's processor is called, and what a program asks of it."""

import platform

import pytest

from embershard.errors import UnavailableError
from embershard.export.compiled_package import instructions_of, target_of
from tests.cases import cases


def cpuinfo(tmp_path, text):
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    return file


def test_instruction_sets_are_read_and_other_abilities_left_out(tmp_path):
    text = (
        "processor\t: 0\nflags\t\t: fpu avx2 fma ht sse4_2 hypervisor avx512f\n\nprocessor\t: 1\n"
    )
    assert instructions_of(cpuinfo(tmp_path, text)) == ["avx2", "avx512f", "fma", "sse4_2"]


def test_arm_calls_them_features(tmp_path):
    text = "BogoMIPS\t: 50\nFeatures\t: fp asimd evtstrm sve bf16\n"
    assert instructions_of(cpuinfo(tmp_path, text)) == ["asimd", "bf16", "fp", "sve"]


@pytest.mark.parametrize("text", [None, "processor : 0\n"], ids=["no-file", "no-line"])
def test_a_machine_that_does_not_say_is_refused(tmp_path, text):
    file = tmp_path / "none" if text is None else cpuinfo(tmp_path, text)
    with pytest.raises(UnavailableError, match="expected a line 'flags' or 'Features'"):
        instructions_of(file)


@cases(
    ("instructions", "name"),
    {
        "avx2": (["avx2", "fma"], "-avx2"),
        "avx512": (["avx2", "avx512bw", "avx512f", "avx512vl", "fma"], "-avx512"),
        "bf16": (["avx2", "avx512_bf16", "avx512f", "fma"], "-avx512_bf16"),
        "arm": (["asimd", "fp"], "-asimd"),
        "plain": (["sse2"], ""),
    },
)
def test_a_target_is_named_after_the_widest_instructions(instructions, name):
    assert target_of(instructions) == platform.machine() + name
