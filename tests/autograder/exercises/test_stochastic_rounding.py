"""Lab 06's oracles against known answers, its formats across the boundary, and the reference with any seed."""

import doctest
import types

import ml_dtypes
import numpy as np
import pytest
import torch

from autograder import exercises
from autograder.authors import build
from autograder.boundary.decode import Decoder
from autograder.boundary.encode import Encoder
from autograder.boundary.protocol import Frame, ProtocolError
from autograder.checks import number_formats
from autograder.exercises.stochastic_rounding.rounding_kernel import numbered_bits
from autograder.grading.selfcheck import cells_of
from autograder.inside import source
from hpcdl.numerics import rounding
from hpcdl.numerics.rounding import BF16, FP8_E4M3, FP8_E5M2, FP16, Fixed, Float
from hpcdl.numerics.rounding.philox import random_bits

pytestmark = pytest.mark.labs

LAB = exercises.load("stochastic_rounding")
ML = {
    BF16: ml_dtypes.bfloat16,
    FP16: np.float16,
    FP8_E4M3: ml_dtypes.float8_e4m3fn,
    FP8_E5M2: ml_dtypes.float8_e5m2,
}


# Oracles


def test_philox_gives_the_known_answer():
    # Of the table of known answers in Random123, for counter and key 0.
    assert number_formats.philox(0, [0]).tolist() == [[0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]]


@pytest.mark.parametrize("seed", [0, 7, 0xDEADBEEF_00000007])
def test_an_element_has_the_random_bits_that_the_library_gives_it(seed):
    assert numbered_bits(seed, 100).tolist() == random_bits(seed, 0, 100).tolist()


@pytest.mark.parametrize("fmt", ML, ids=str)
def test_the_values_of_a_floating_point_format_are_those_of_ml_dtypes(fmt):
    width = np.dtype(ML[fmt]).itemsize
    codes = np.arange(1 << 8 * width, dtype=np.uint8 if width == 1 else np.uint16).view(ML[fmt])
    with np.errstate(invalid="ignore"):  # signalling NaN
        codes = codes.astype(np.float64)
    assert number_formats.values(fmt).tolist() == np.unique(codes[np.isfinite(codes)]).tolist()


@pytest.mark.parametrize("fmt", [*ML, Fixed(4, 4), Fixed(2, 14)], ids=str)
def test_oracles_nearest_is_the_librarys(fmt):
    values = number_formats.values(fmt)
    for part in (0.25, 0.5, 0.75):
        x = (values[:-1] + (values[1:] - values[:-1]) * part).float()
        assert torch.equal(number_formats.nearest(x, fmt).float(), rounding.round_nearest(x, fmt))
        lower, upper = number_formats.beside(x, fmt)
        assert torch.equal(number_formats.odds(x, fmt), torch.full_like(lower, part))
        assert all(map(torch.equal, rounding.neighbours(x, fmt), (lower.float(), upper.float())))


# The boundary


def crossed(value):
    writer = Encoder()
    node = writer.write(value)
    return Decoder(Frame([node], writer.buffers)).read(node)


@pytest.mark.parametrize("fmt", [*ML, Fixed(4, 12), Fixed(1, 23)], ids=str)
def test_a_format_crosses_as_itself(fmt):
    assert crossed([fmt]) == [fmt]
    assert type(crossed(fmt)) is type(fmt)


def test_a_format_that_a_student_made_crosses_by_its_type_name_alone():
    assert str(crossed(Float("BF16", 3, 3, torch.float16))) == "<Float object>"


@pytest.mark.parametrize(
    "node", [["fixed", -1, 3], ["fixed", 20, 20], ["fixed", True, 3], ["fixed", 4], ["format", "BF17"], ["format", 3]]
)
def test_a_forged_format_is_refused(node):
    with pytest.raises(ProtocolError):
        Decoder(Frame([node])).read(node)


# The reference


@pytest.fixture(scope="module")
def reference() -> dict:
    """The names of the solved notebook that its graded functions need."""
    names = [name for exercise in LAB.exercises.values() for name in exercise.functions]
    cells, _ = source.needed(cells_of(build.solved("stochastic_rounding")), names)
    namespace: dict = {"__name__": "reference"}
    for label, code in cells:
        if "rounding_kernel" not in code:  # Triton reads a kernel's source from its cell: the selfcheck runs it
            exec(compile(code, label, "exec"), namespace)
    return namespace


PLAIN = [name for name in LAB.exercises if name not in ("rounding_kernel", "unmask_rounding")]


@pytest.mark.parametrize("name", PLAIN)
def test_the_worked_example_in_the_docstring_is_true(reference, name):
    (example,) = doctest.DocTestFinder(recurse=False).find(reference[name], name, globs=reference)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_reference_passes_every_check_with_any_seed(reference, seed):
    student = types.SimpleNamespace(**{name: reference[name] for name in PLAIN})
    for name in PLAIN:
        for check in LAB.exercises[name].checks.values():
            check.function(student, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("fmt", [*ML, Fixed(4, 4)], ids=str)
def test_the_reference_rounds_as_the_library_does(reference, fmt):
    x = torch.randn(5000, generator=torch.Generator().manual_seed(1)) * torch.tensor([1e-3, 1.0, 5.0])[:, None]
    assert torch.equal(reference["round_nearest_even"](x, fmt), rounding.round_nearest(x, fmt))
    assert all(map(torch.equal, reference["neighbours"](x, fmt), rounding.neighbours(x, fmt)))
