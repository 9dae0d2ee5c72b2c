"""Numbers as one says them."""

import pytest

from hpcdl.widgets.kit import units


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (0.00123456, "0.00123"),
        (6.0, "6"),
        (12.345, "12.3"),
        (99.96, "100"),
        (1017.3, "1,020"),
        (1e4, "10,000"),
    ],
)
def test_three_digits_written_out(value, said):
    assert units.number(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(200, "200 s"), (0.01, "10 ms"), (403e-6, "403 µs"), (5e-9, "5 ns"), (0.9999, "1 s")]
)
def test_a_time_has_the_unit_that_fits(value, said):
    assert units.seconds(value) == said


@pytest.mark.parametrize(
    ("sentence", "gaps"),
    [("after 19.5 s and 18 s.", 2), ("340 MB/s: 9 % of 3 ms", 3), ("4 stages, 2 steps, 3 %s", 0), ("7 images/s", 1)],
)
def test_no_line_ends_between_a_number_and_its_unit(sentence, gaps):
    joined = units.joined(sentence)
    assert joined.count(units.NO_BREAK) == gaps
    assert joined.replace(units.NO_BREAK, " ") == sentence


def test_sizes_and_rates():
    assert units.nbytes(100) == "100 bytes"
    assert units.nbytes(12_345) == "12.3 KB"
    assert units.nbytes(1e12, "/s") == "1 TB/s"
