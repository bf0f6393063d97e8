"""Row layouts: sizes, known bytes, agreement with FBGEMM, and refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from embershard.errors import InputError
from embershard.package.row_format import RowFormat
from tests.cases import cases, refused


@cases(
    ("weights", "dim", "expected"),
    {
        "int8": ("int8", 16, 20),
        "int4": ("int4", 16, 12),
        "fp16-has-no-header": ("fp16", 16, 32),
        "fp32-has-no-header": ("fp32", 16, 64),
        "no-padding": ("int4", 4, 6),
        "int8-padded-to-4": ("int8", 1, 8),
        "int4-padded-to-8": ("int4", 7, 8),
        "fp16-padded-to-8": ("fp16", 6, 16),
        "fp32-padded-to-12": ("fp32", 10, 48),
        "largest": ("fp32", 65536, 262144),
    },
)
def test_row_bytes(weights, dim, expected):
    assert RowFormat(weights, dim).row_bytes == expected


@cases(
    ("weights", "columns", "expected"),
    {
        "int8-68-becomes-80": ("int8", 64, 80),
        "int4-36-becomes-48": ("int4", 64, 48),
        "fp16-needs-none": ("fp16", 64, 128),
        "fp32-of-1-is-one-unit": ("fp32", 1, 16),
        "a-part-of-the-columns": ("int8", 13, 32),
    },
)
def test_rows_on_a_device_are_padded_to_16_bytes(weights, columns, expected):
    assert RowFormat(weights, 64).device_row_bytes(columns) == expected


# Scale 0.5 and bias -1 in float16, little endian: 0x3800 and 0xbc00.
HEADER = [0x00, 0x38, 0x00, 0xBC]


@cases(
    ("weights", "row", "values"),
    {
        "int8": ("int8", [*HEADER, 0, 1, 2, 255], [-1.0, -0.5, 0.0, 126.5]),
        "int4-low-nibble-first": ("int4", [*HEADER, 0x21, 0xF3], [-0.5, 0.0, 0.5, 6.5]),
        "fp16": ("fp16", [*HEADER, 0x00, 0x00, 0xFF, 0x7B], [0.5, -1.0, 0.0, 65504.0]),
        "int8-of-1": ("int8", [*HEADER, 1, 9, 9, 9], [-0.5]),
        "int4-of-3": ("int4", [*HEADER, 0x21, 0xF3], [-0.5, 0.0, 0.5]),
        "fp16-of-1": ("fp16", [0x00, 0x38, *[0xFF] * 6], [0.5]),
        # 1.0 is 0x3f800000 and -2.5 is 0xc0200000 in float32.
        "fp32-of-2": (
            "fp32",
            [*[0x00, 0x00, 0x80, 0x3F], *[0x00, 0x00, 0x20, 0xC0], *[0xFF] * 8],
            [1.0, -2.5],
        ),
    },
)
def test_known_bytes_without_their_padding(weights, row, values):
    result = RowFormat(weights, len(values)).dequantize_rows(np.array([row], np.uint8))

    assert result.dtype == np.float32
    assert result.tolist() == [values]


@given(hnp.arrays(np.uint8, (3, 12)))
def test_int4_rows_agree_with_a_loop_over_nibbles(rows):
    rows[:, 1] &= 0x3B  # Scales and biases are finite.
    rows[:, 3] &= 0xBB
    actual = RowFormat("int4", 16).dequantize_rows(rows)

    for row, values in zip(rows, actual, strict=True):
        scale, bias = np.frombuffer(row[:4].tobytes(), "<f2").astype(np.float32)
        codes = [(int(row[4 + at // 2]) >> (4 * (at % 2))) & 15 for at in range(16)]
        expected = np.array(codes, np.float32) * scale + bias
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("bits", [4, 8])
def test_agrees_with_fbgemm(bits):
    torch = pytest.importorskip("torch")
    pytest.importorskip("fbgemm_gpu")
    weights = torch.randn(7, 64, generator=torch.Generator().manual_seed(0))
    header_last = torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(weights, bits)
    expected = torch.ops.fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat(header_last, bits)

    rows = header_last.roll(4, dims=1).numpy()

    actual = RowFormat(f"int{bits}", 64).dequantize_rows(rows)
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-6, atol=1e-7)


@cases(
    ("build", "parts"),
    {
        "weights": (lambda: RowFormat("int2", 8), ["int8, int4, fp16, fp32", "'int2'"]),
        "dim-0": (lambda: RowFormat("int8", 0), ["dim", "got 0"]),
        "dim-too-large": (lambda: RowFormat("int8", 65537), ["dim", "got 65537"]),
        "width": (
            lambda: RowFormat("int8", 8).dequantize_rows(np.zeros((2, 8), np.uint8)),
            ["uint8 [N, 12]", "got uint8 [2, 8]"],
        ),
        "dtype": (
            lambda: RowFormat("int8", 8).dequantize_rows(np.zeros((2, 12), np.int8)),
            ["uint8 [N, 12]", "got int8"],
        ),
    },
)
def test_refusals(build, parts):
    with refused(InputError, *parts):
        build()
