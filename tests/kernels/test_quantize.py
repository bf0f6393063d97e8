"""Quantized rows: known bytes, agreement with a numpy oracle, and refusals."""

import numpy as np
import pytest
import torch

from embershard.errors import InputError
from embershard.kernels import quantize_rows
from embershard.package.row_format import RowFormat
from tests.cases import cases, refused

BITS = {"int8": 8, "int4": 4}


def quantize_in_numpy(weights, bits):
    """Quantizes each row by its minimum and maximum: fp16 scale, fp16 bias, then codes. For int4
    the low nibble comes first."""
    rows = []
    for row in np.asarray(weights, dtype=np.float32):
        bias = np.float16(row.min())
        scale = np.float16((row.max() - np.float32(bias)) / np.float32(2**bits - 1))
        if scale == 0:
            scale = np.float16(1)
        steps = (row - np.float32(bias)) * (np.float32(1) / np.float32(scale))
        codes = np.clip(np.rint(steps), 0, 2**bits - 1).astype(np.uint8)
        if bits == 4:
            codes = codes[0::2] | codes[1::2] << 4
        rows.append(np.concatenate([np.array([scale, bias]).view(np.uint8), codes]))
    return np.stack(rows)


def random_weights(num_rows, dim, *, scale=1.0):
    return scale * torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(num_rows))


@pytest.mark.parametrize("weight_type", ["int8", "int4"])
@cases(
    "weights",
    {
        "normal": random_weights(50, 16),
        "small-values": random_weights(50, 4, scale=1e-2),
        "large-values": random_weights(50, 128, scale=3e3),
        "one-value": torch.full((2, 8), 0.75),
        "widest-range": torch.tensor([[-65504.0, 65504.0] * 4]),
        "no-rows": torch.zeros(0, 8),
    },
)
def test_rows_are_those_of_the_numpy_oracle_byte_for_byte(weights, weight_type):
    rows = quantize_rows(weights, weight_type)

    dim = weights.shape[1]
    assert rows.dtype == torch.uint8
    assert rows.is_contiguous()
    assert rows.shape == (len(weights), 4 + dim * BITS[weight_type] // 8)
    if len(weights):
        np.testing.assert_array_equal(rows.numpy(), quantize_in_numpy(weights, BITS[weight_type]))


@cases(
    "weights",
    {
        "1e-3": random_weights(50, 16, scale=1e-3),
        "1e-5": random_weights(50, 16, scale=1e-5),
        "1e-6": random_weights(50, 16, scale=1e-6),
        "100+-0.01": 100 + random_weights(50, 16, scale=1e-2),
        "-7e3+-3": random_weights(50, 16, scale=3) - 7e3,
        "range-below-fp16": torch.linspace(0, 1e-6, 8)[None],
    },
)
@pytest.mark.parametrize("weight_type", ["int8", "int4"])
def test_rows_of_a_narrow_range_read_back_within_half_a_step(weights, weight_type):
    result = RowFormat(weight_type, weights.shape[1]).dequantize_rows(
        quantize_rows(weights, weight_type).numpy()
    )

    least, most = (end.numpy().astype(np.float64) for end in weights.aminmax(dim=1))
    steps = 2 ** BITS[weight_type] - 1
    # Scale and bias may each be rounded by the distance of two fp16 values. A value may then be
    # rounded by half a step.
    scale = (most - least + np.spacing(np.abs(least).astype(np.float16))) / steps
    scale += np.spacing(scale.astype(np.float16))
    errors = np.abs(result - weights.numpy().astype(np.float64)).max(axis=1)
    assert (errors <= 0.501 * scale).all(), (errors / scale).max()


def test_a_narrow_int8_row_rounds_bias_down_and_scale_up():
    # -1e-6 lies between -17 and -16 times 2**-24. The scale is the smallest of fp16.
    rows = quantize_rows(torch.tensor([[-1e-6, 0.0, 2.0**-24, 1e-6]]), "int8")

    assert rows.tolist() == [[0x01, 0x00, 0x11, 0x80, 0, 17, 18, 34]]


def test_int8_row_is_scale_bias_codes():
    rows = quantize_rows(torch.tensor([[-1.0, 0.0, 1.0, 126.5]]), "int8")  # scale 0.5, bias -1

    # 0.5 is 0x3800 in fp16, -1.0 is 0xbc00; little-endian
    assert rows.tolist() == [[0x00, 0x38, 0x00, 0xBC, 0, 2, 4, 255]]


def test_int4_row_packs_the_low_nibble_first():
    rows = quantize_rows(torch.tensor([[0.0, 1.0, 2.0, 15.0]]), "int4")  # scale 1, bias 0

    assert rows.tolist() == [[0x00, 0x3C, 0x00, 0x00, 0x10, 0xF2]]


def test_fp16_row_is_the_values_without_a_header():
    rows = quantize_rows(torch.tensor([[0.5, -1.0, 0.0, 65504.0]]), "fp16")

    assert rows.tolist() == [[0x00, 0x38, 0x00, 0xBC, 0x00, 0x00, 0xFF, 0x7B]]


def test_fp32_row_is_the_values_bit_for_bit():
    weights = torch.tensor([[1.0, -2.5, 3.4e38, 1e-45]])

    rows = quantize_rows(weights, "fp32")

    assert rows.tolist() == [list(weights.numpy().tobytes())]


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 6, 7, 10, 100])
@pytest.mark.parametrize("weight_type", ["int8", "int4"])
def test_padding_leaves_scale_and_bias_of_a_row_as_they_are(weight_type, dim):
    # Values are near 7: a zero in the padding would widen every row's range. Ranges are multiples
    # of 1/4, which are not too narrow.
    weights = (4 * random_weights(50, dim)).round() / 4 + 7

    rows = quantize_rows(weights, weight_type).numpy()

    expected = quantize_in_numpy(np.repeat(weights.numpy(), 2, axis=1), BITS[weight_type])
    np.testing.assert_array_equal(rows[:, :4], expected[:, :4])
    actual = RowFormat(weight_type, dim).dequantize_rows(rows)
    alone = RowFormat(weight_type, 4)
    for column in range(dim):  # Each value reads back as in a row of this range without padding.
        wide = torch.stack(
            [weights.amin(1), weights.amax(1), weights[:, column], weights[:, column]], dim=1
        )
        read_back = alone.dequantize_rows(quantize_rows(wide, weight_type).numpy())
        np.testing.assert_array_equal(actual[:, column], read_back[:, 2])


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 6, 7, 10, 100])
def test_fp32_rows_of_any_dim_read_back_bit_for_bit(dim):
    weights = random_weights(9, dim, scale=1e6)

    rows = quantize_rows(weights, "fp32").numpy()

    np.testing.assert_array_equal(RowFormat("fp32", dim).dequantize_rows(rows), weights.numpy())


@pytest.mark.parametrize("weight_type", ["int8", "int4", "fp16", "fp32"])
def test_strided_weights_give_the_rows_of_their_copy(weight_type):
    strided = random_weights(6, 16)[::2, ::2]

    expected = quantize_rows(strided.clone().contiguous(), weight_type)

    assert torch.equal(quantize_rows(strided, weight_type), expected)


@cases(
    ("weights", "weight_type", "parts"),
    {
        "other-type": (torch.zeros(1, 4), "int2", ["int8, int4, fp16, fp32", "got 'int2'"]),
        "no-values": (torch.zeros(1, 0), "int8", ["dim", "got 0"]),
        "one-row-flat": (torch.zeros(4), "int8", ["(num_rows, dim)", "got (4,)"]),
        "double": (torch.zeros(1, 4).double(), "fp16", ["got torch.float64 on cpu"]),
        "no-storage": (torch.zeros(1, 4, device="meta"), "int8", ["torch.float32 on meta"]),
        "nan": (
            torch.tensor([[0.0] * 4, [0, 0, torch.nan, 0]]),
            "int4",
            ["row 1, column 2", "got nan"],
        ),
        "fp32-infinity": (torch.tensor([[0.0, torch.inf]]), "fp32", ["column 1", "got inf"]),
        "infinity": (torch.tensor([[0.0, -torch.inf, 0, 0]]), "fp16", ["column 1", "got -inf"]),
        "over-fp16": (torch.tensor([[65505.0, 0, 0, 0]]), "fp16", ["65504", "got 65505"]),
    },
)
def test_weights_that_cannot_be_stored_are_refused(weights, weight_type, parts):
    with refused(InputError, *parts):
        quantize_rows(weights, weight_type)
