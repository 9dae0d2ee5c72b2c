"""The lecture's table of derivatives is true: torch's autograd is the oracle."""

import pytest
import torch

from hpcdl.numerics.common_functions import TABLE


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.printed)
def test_a_row_has_the_slope_of_its_function(row):
    x = row.points().requires_grad_()
    assert len(x) == (100 if row.negative else 50)
    (slope,) = torch.autograd.grad(row.f(x).sum(), x)
    torch.testing.assert_close(row.slope(x), slope, rtol=1e-12, atol=1e-12)


def test_the_table_has_the_lectures_rows():
    assert [row.printed for row in TABLE if not row.negative] == ["√x", "log_c x", "ln x", "x^x"]
    assert len(TABLE) == 14
