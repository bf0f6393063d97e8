"""Tables lie in memory for which the system was asked to use huge pages."""

from pathlib import Path

import pytest
import torch

from embershard.kernels import FusedOptimizer, FusedTables
from embershard.kernels.huge_pages import HUGE_PAGE_BYTES, move_to_huge_pages

pytestmark = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(),
    reason="needs Linux with transparent huge pages",
)


def is_advised(address):
    """True if the mapping that holds an address has the flag of ``MADV_HUGEPAGE``."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "VmFlags:":
            return "hg" in rest.split()
    raise AssertionError(f"no mapping holds {address:#x}")


def inner(tensor):
    """Address of the first huge page that lies completely in a tensor."""
    return -(-tensor.data_ptr() // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


def test_zeros_stay_zeros_between_values_that_stay():
    memory = torch.ones(4 * HUGE_PAGE_BYTES // 4)
    zeros = memory[7:-5].zero_()
    move_to_huge_pages(zeros)
    assert is_advised(inner(zeros))
    assert not zeros.any()
    assert memory[:7].all()
    assert memory[-5:].all()
    zeros.fill_(2.0)
    assert zeros.sum().item() == 2.0 * len(zeros)


def test_less_than_a_huge_page_stays_as_it_is():
    small = torch.zeros(100)
    move_to_huge_pages(small)
    assert not small.any()


def test_weights_and_state_of_fused_tables_ask_for_huge_pages():
    tables = FusedTables(
        [(1 << 15, 64)],
        [0],
        optimizer=FusedOptimizer(name="adagrad"),
        device=torch.device("cpu"),
    )
    assert is_advised(inner(tables.weights[0]))
    assert is_advised(inner(tables.states[0]["momentum1"]))
    assert not tables.weights[0].any()
