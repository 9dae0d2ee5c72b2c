"""A kernel is what Triton compiles; what only its interpreter runs, as Python, is refused, however it is written."""

import importlib
import linecache
from itertools import count
from operator import attrgetter
from types import FunctionType

import pytest
import torch

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from autograder.inside import triton_rule  # noqa: E402
from autograder.inside.code_harnesses import launched  # noqa: E402
from hpcdl.kernels import anywhere  # noqa: E402

pytestmark = pytest.mark.skipif(anywhere.DEVICE != "cpu", reason="Triton compiles here, and says so itself")
NUMBERS = count()
HOST = "def host(x):\n    return x\n\n\n"
HELPER = "@triton.jit\ndef helper(x):\n    return {}\n\n\n"
KERNEL = "@triton.jit\ndef kernel(x, y, n, BLOCK: tl.constexpr):\n    i = tl.arange(0, BLOCK)\n"
RIGHT = {
    "a copy": KERNEL + "    tl.store(y + i, tl.load(x + i, mask=i < n, other=0), mask=i < n)",
    "methods": KERNEL + "    a = tl.load(x + i).to(tl.int32)\n    tl.store(y + i, a.to(tl.float32).sum() + a.shape[0])",
    "an alias": "import triton.language as L\n" + KERNEL + "    L.store(y + i, L.load(x + i) + L.math.exp2(1.0))",
    "a helper": HELPER.format("tl.maximum(x, 0.0)") + KERNEL + "    tl.store(y + i, helper(tl.load(x + i)))",
    "a helper's helper": "@triton.jit\ndef inner(x):\n    return x * 2\n\n\n" + HELPER.format("inner(x) + 1") + KERNEL
    + "    tl.store(y + i, helper(tl.load(x + i)))",
    "a reduction of its own": "@triton.jit\ndef add(a, b):\n    return a + b\n\n\n" + KERNEL
    + "    tl.store(y, tl.reduce(tl.load(x + i), 0, add))",
    "loops and conditions": KERNEL + "    s = 0.0\n    for k in range(n):\n        if k % 2 == 0:\n"
    "            s += tl.load(x + k)\n    while s > 100:\n        s = s / 2\n    tl.store(y, s if n > 2 else 0.0)",
    "nested loops of constants": KERNEL + "    for j in tl.static_range(BLOCK):\n"
    "        for k in tl.static_range(2):\n            tl.store(y + j, tl.load(x + j) + k)",
    "constants outside": "import math\nHALF = 0.5\nTWO = tl.constexpr(2)\n" + KERNEL
    + "    tl.store(y + i, tl.load(x + i) * HALF + TWO + math.pi + BLOCK.value)"[:-14] + ")",
    "a type of its own choice": KERNEL + "    d = tl.float32 if n > 1 else tl.float16\n"
    "    tl.store(y + i, tl.load(x + i).to(d))",
    "what Triton has for constants": KERNEL + "    m = triton.cdiv(4, 2) + tl.cdiv(n, 2)\n"
    "    tl.static_assert(BLOCK > 1, f'{BLOCK} is few')\n    tl.store(y + i, tl.load(x + i) + m)",
    "min, max, float": KERNEL + "    a = max(tl.load(x), float('-inf'))\n    tl.store(y, min(a, 1.0))",
    "tuples": KERNEL + "    a, b = tl.load(x), tl.load(x + 1)\n    tl.store(y, a + b)",
    "random numbers": KERNEL + "    a, b, c, d = tl.randint4x(n, i)\n    tl.store(y + i, (a ^ d).to(tl.float32))",
    "a docstring and a print": KERNEL.replace("\n    i", '\n    """It copies."""\n    i')
    + "    print('i', i)\n    tl.store(y + i, tl.load(x + i))",
}  # fmt: skip
WRONG = {
    "numpy inside": (KERNEL + "    import numpy", "form", "import numpy"),
    "from numpy": (KERNEL + "    from numpy import dot", "form", "import numpy"),
    "a handle read": (KERNEL + "    a = tl.load(x + i).handle.data", "attribute", "handle"),
    "a handle's name": (KERNEL + "    h = tl.load(x + i).handle", "attribute", "handle"),
    "a handle set": (KERNEL + "    a = tl.load(x + i)\n    a.handle = n", "form", "set handle"),
    "after a choice": (KERNEL + "    a = (i if n else tl).handle", "name", "tl"),
    "after an or": (KERNEL + "    a = (i or tl).core", "name", "tl"),
    "by getattr": (KERNEL + "    a = getattr(i, 'han' + 'dle')", "name", "getattr"),
    "by match": (KERNEL + "    match i:\n        case tl.tensor(handle=h):\n            h", "form", "MATCH"),
    "by eval": (KERNEL + "    eval('host(x)')", "name", "eval"),
    "by __import__": (KERNEL + "    __import__('numpy')", "name", "__import__"),
    "by open": (KERNEL + "    open('x')", "name", "open"),
    "by globals": (KERNEL + "    globals()", "name", "globals"),
    "by int": (KERNEL + "    a = int(tl.load(x))", "name", "int"),
    "a global set": (KERNEL + "    global FOUND\n    FOUND = i", "form", "STORE_GLOBAL"),
    "a function of Python's": (HOST + KERNEL + "    host(x)", "name", "host"),
    "its builtins": (KERNEL + "    tl.__builtins__", "name", "tl.__builtins__"),
    "a module of a module": (KERNEL + "    tl.core.builtins.eval('1')", "name", "tl.core.builtins"),
    "torch": ("import torch\n" + KERNEL + "    torch.zeros(2)", "name", "torch"),
    "a module of its name": (
        "from types import ModuleType\nfake = ModuleType('triton.language')\nfake.load = print\n" + KERNEL
        + "    fake.load(x)", "name", "fake"),
    "the interpreter": (KERNEL + "    triton.runtime.interpreter.interpreter_builder",
                        "name", "triton.runtime.interpreter.interpreter_builder"),
    "a class in it": (KERNEL + "    class C:\n        pass", "form", "LOAD_BUILD_CLASS"),
    "a class outside": ("class C:\n    x = 1\n\n\n" + KERNEL + "    C.x", "name", "C"),
    "a class that says it is Triton's": (
        "class C(tl.constexpr):\n    __module__ = 'triton.language.core'\n\n\n" + KERNEL + "    C(1)", "name", "C"),
    "an object's property": (
        "class C:\n    @property\n    def sum(self):\n        return 1\n\n\nc = C()\n" + KERNEL + "    c.sum",
        "name", "c"),
    "not quite a number": ("class C(int):\n    pass\n\n\nc = C(1)\n" + KERNEL + "    c + i", "name", "c"),
    "not quite a constant": (HOST + "c = tl.constexpr(host)\n" + KERNEL + "    c.value(x)", "name", "c"),
    "a tuple of functions": (HOST + "c = (host, 1)\n" + KERNEL + "    c[0](x)", "name", "c"),
    "a lambda outside": ("f = lambda x: x\n" + KERNEL + "    f(x)", "name", "f"),
    "a lambda in it": (HOST + KERNEL + "    f = lambda v: host(v)\n    f(x)", "name", "host"),
    "a default value": (
        HOST + "@triton.jit\ndef kernel(x, y, n, BLOCK: tl.constexpr, f=host):\n    tl.arange(0, BLOCK)", "default",
        "host"),
    "a helper's import": (HELPER.format("__import__('numpy')") + KERNEL + "    helper(i)", "name", "__import__"),
    "a helper's handle": (HELPER.format("x.handle") + KERNEL + "    helper(i)", "attribute", "handle"),
    "a reduction by Python": (
        "@triton.jit\ndef add(a, b):\n    return a.handle\n\n\n" + KERNEL + "    tl.reduce(i, 0, add)", "attribute",
        "handle"),
    "a function for constants": (
        "@triton.constexpr_function\ndef f(x):\n    return x\n\n\n" + KERNEL + "    f(x)", "name", "f"),
    "its class": (KERNEL + "    tl.tensor.__class__", "attribute", "__class__"),
    "a helper's text": (HELPER.format("x") + KERNEL + "    helper.fn(x)", "attribute", "fn"),
    "a part set": (KERNEL + "    a = [1]\n    a[0] = i", "form", "STORE_SUBSCR"),
    "no @triton.jit": (KERNEL.replace("@triton.jit\n", ""), "kind", "function"),
    "another decorator": (
        "@triton.heuristics({'BLOCK': lambda given: 16})\n" + KERNEL, "kind", "Heuristics"),
    "a hook": (KERNEL + "\nkernel.add_pre_run_hook(print)", "hook", ""),
    "a method of its own": (KERNEL + "\nkernel.run = print", "hook", ""),
    "a rewriter of its own": (KERNEL + "\nkernel.rewriter.rewrite_ast = print", "hook", ""),
    "a text in its text": (
        KERNEL + '    """\n    def kernel(x, y, n, BLOCK):\n        import numpy\n        """\n    i\n', "text", ""),
    "made by exec": ("exec('''" + KERNEL + "    import numpy''')", "form", "import numpy"),
}  # fmt: skip


def defined(code: str) -> dict:
    """The names that a cell defines."""
    label = f"<kernel {next(NUMBERS)}>"
    linecache.cache[label] = (len(code), None, code.splitlines(keepends=True), label)
    names = {"tl": tl, "triton": triton, "run": anywhere.run}
    exec(compile(code, label, "exec"), names)
    return names


@pytest.mark.parametrize("name", RIGHT)
def test_a_kernel_that_triton_compiles_has_no_fault_and_runs(name):
    names = defined(RIGHT[name])
    assert triton_rule.fault_of(names["kernel"]) is None
    anywhere.run(names["kernel"], 1, torch.rand(16), torch.zeros(16), 3, BLOCK=16)
    assert triton_rule.fault_of(names["kernel"]) is None  # the interpreter has had its hands on it


@pytest.mark.parametrize("name", WRONG)
def test_python_in_a_kernel_is_a_fault(name):
    code, kind, what = WRONG[name]
    fault = triton_rule.fault_of(defined(code)["kernel"])
    assert fault is not None
    assert fault[0] == kind
    assert fault[1].startswith(what)


@pytest.mark.parametrize("module", ["direct", "direct_simple", "winograd", "depthwise", "im2col", "rounding", "tiles"])
def test_the_librarys_own_kernels_have_no_fault(module):
    names = vars(importlib.import_module(f"hpcdl.kernels.gpu.{module}"))
    kernels = [value for value in list(names.values()) if type(value).__name__ == "InterpretedFunction"]
    assert [fault for kernel in kernels if (fault := triton_rule.fault_of(kernel))] == []


def test_the_fault_names_the_line():
    fault = triton_rule.fault_of(defined(HOST + KERNEL + "    a = 1\n    b = host(x)")["kernel"])
    assert fault == ("name", "host", "kernel", 9, "b = host(x)")


@pytest.mark.parametrize("of", [lambda function: function, property, staticmethod])
@pytest.mark.parametrize(
    "place",
    [
        "language.dot",
        "language.core.store",
        "language.tensor.sum",
        "runtime.interpreter.InterpreterBuilder.create_dot",
        "runtime.interpreter.interpreter_builder.create_dot",
        "runtime.interpreter.GridExecutor.__call__",
    ],
)
def test_a_function_of_tritons_that_was_replaced_is_a_fault(monkeypatch, place, of):
    kernel = defined(RIGHT["a copy"])["kernel"]
    owner, _, name = place.rpartition(".")
    names: dict = {}
    exec("def answer(*args, **kwargs):\n    return args", names)
    monkeypatch.setattr(attrgetter(owner)(triton), name, of(names["answer"]), raising=False)
    fault = triton_rule.fault_of(kernel)
    assert fault is not None
    assert (fault[0], fault[1].rpartition(".")[2]) == ("changed", name)


def test_what_a_cell_put_into_the_interpreters_table_does_not_run():
    names = defined(HOST + RIGHT["a copy"])
    kernel = names["kernel"]
    type(kernel).rewritten_fn[kernel.fn] = names["host"]
    assert triton_rule.fault_of(kernel) is None
    assert type(kernel).rewritten_fn[kernel.fn] is not names["host"]


LAUNCH = "\n\n\ndef launch(x):\n    y = x.clone()\n    {}\n    return y\n"


def launch_of(code: str, line: str) -> FunctionType:
    return defined(code + LAUNCH.format(line))["launch"]


def test_a_launch_is_examined_and_a_kernel_with_a_fault_does_not_start():
    x = torch.arange(16.0)
    line = "run(kernel, 1, x, y, 16, BLOCK=16)"
    launch = launch_of(KERNEL + "    tl.store(y + i, tl.load(x + i) * 2)", line)
    run = launch.__globals__["run"]
    fault, y = launched(launch, x, None)
    assert (fault, y.tolist()) == (None, (2 * x).tolist())
    assert launch.__globals__["run"] is run
    fault, y = launched(launch_of(HOST + KERNEL + "    host(x)\n    tl.store(y + i, 1.0)", line), x, None)
    assert fault[:2] == ("name", "host")
    assert torch.equal(x, y)


def test_a_launch_without_a_kernel_is_none():
    fault, _ = launched(launch_of("", "y += 1"), torch.zeros(2), None)
    assert fault[0] == "none"
