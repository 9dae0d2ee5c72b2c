"""A kernel's fault is told in a sentence with its line, whatever the student's process says of it."""

import pytest

from autograder.checks import CheckFailure
from autograder.checks.triton_kernels import RULE, compiles


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (("form", "import numpy", "k", 4, "import numpy"), "Line 4 of `k` imports `numpy`."),
        (
            ("form", "set data", "k", 4, "a.data = b"),
            "Line 4 of `k` sets `.data`; results go to memory, with `tl.store`.",
        ),
        (("form", "STORE_SUBSCR", "k", 4, "a[0] = b"), "Line 4 of `k` sets a part of a value; results go to memory"),
        (("form", "STORE_GLOBAL", "k", 4, "a = b"), "Line 4 of `k` sets a global name."),
        (("form", "LOAD_BUILD_CLASS", "k", 4, ""), "Line 4 of `k` is Python that Triton does not compile."),
        (("name", "f", "k", 4, "f(x)"), "Line 4 of `k` uses `f`, which is neither in `tl` nor a function under"),
        (("attribute", "handle", "k", 4, "a.handle"), "Line 4 of `k` reads `.handle`, which no tensor of Triton's has"),
        (("default", "f", "k", 0, ""), "`k` has the default value `f`, which is not a number."),
        (("kind", "function", "", 0, ""), "`kernel` is a function: write it as a function under @triton.jit"),
        (("hook", "", "k", 0, ""), "`k` has a hook or a method of its own"),
        (("text", "SyntaxError: invalid", "k", 0, ""), "Triton cannot read the text of `k`: SyntaxError: invalid."),
        (("changed", "triton.language.dot", "", 0, ""), "`triton.language.dot` is no longer Triton's own"),
        (("none", "", "", 0, ""), "`start` starts no kernel. It comes with the lab"),
        (("what?",), "`kernel` is no kernel that Triton compiles."),
        ((1, 2, 3, 4, 5, 6), "`kernel` is no kernel that Triton compiles."),
        ("no fault", "`kernel` is no kernel that Triton compiles."),
        ((["form"], {}, None, object(), 1.5), "`kernel` is no kernel that Triton compiles."),
    ],
)
def test_a_fault_is_told(fault, sentence):
    with pytest.raises(CheckFailure) as failure:
        compiles(fault, "kernel", "start")
    assert failure.value.message.startswith(sentence)
    assert failure.value.why == RULE


def test_without_a_fault_there_is_nothing_to_tell():
    compiles(None, "kernel", "start")
