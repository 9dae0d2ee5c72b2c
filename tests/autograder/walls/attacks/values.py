"""Values that claim to be what they are not."""

from . import mean


def lying(base: str, body: str) -> str:
    lines = "\n    ".join(body.splitlines())
    return f"class Value({base}):\n    {lines}\n"


YES = "def __eq__(self, other): return True\n__ne__ = __lt__ = lambda self, other: False\n__hash__ = None"

ATTACKS = {
    "always equal": mean("return Value()", lying("object", YES), says="Value"),
    "a float that is always equal": mean("return Value(1)", lying("float", YES), says="Value"),
    "an int that is always equal": mean("return Value(1)", lying("int", YES), says="Value"),
    "a str that is always equal": mean("return Value('1')", lying("str", YES), says="Value"),
    "a tensor subclass that lies": mean(
        "return torch.zeros(()).as_subclass(Value)",
        lying("torch.Tensor", "@classmethod\ndef __torch_function__(cls, f, types, args=(), kwargs=None): return True"),
        says="Value",
    ),
    "a class that says it is Tensor": mean("return Value()", lying("object", "__class__ = torch.Tensor")),
    "a metaclass that says it is Tensor": mean(
        "return M('Tensor', (), {})()",
        "class M(type):\n    def __eq__(cls, other): return True\n    __hash__ = type.__hash__",
    ),
    "a lazy value": mean("return Value()", lying("object", "def __float__(self): return float(self.x)")),
    "a pickle bomb": mean("return Value()", lying("object", "def __reduce__(self): import os; return os._exit, (0,)")),
    "an endless generator": mean("while True:\n    yield 1", says="does its loop end"),
    "an endless generator that sleeps": mean("import time\nwhile True:\n    time.sleep(1)\n    yield 1", says="0.5 s"),
    "a list in itself": mean("a = []\na.append(a)\nreturn a"),
    "a list too deep": mean("a = []\nfor _ in range(100_000):\n    a = [a]\nreturn a", says="deep"),
    "a list too long": mean("return [0] * 10_000_000", says="parts"),
    "a text too long": mean("return 'x' * 50_000_000"),
    "an integer too long": mean("return 1 << 10_000_000"),
    "a tensor too large by expand": mean("return torch.zeros(1).expand(1 << 40)", says="MiB"),
    "NaN": mean("return x.sum() * float('nan')", says="nan"),
    "infinity": mean("return torch.tensor(float('inf'))", says="inf"),
    "complex": mean("return x.mean() + 0j", says="complex"),
    "meta": mean("return torch.empty((), device='meta')", says="meta"),
    "sparse": mean("return torch.zeros(3).to_sparse()", says="sparse"),
    "another shape": mean("return x", says="shape"),
    "another dtype": mean("return x.mean().double()", says="float64"),
    "lower precision inside": mean("return x.half().mean().float()", says="expected"),
    "None": mean("pass", says="None"),
    "the input itself": mean("x.fill_(1)\nreturn x", says="shape"),
    "the input changed": mean("y = x.mean()\nx.zero_()\nreturn y", score=80, says="changed its argument"),
    "the input changed so that its mean is known": mean("x.fill_(1)\nreturn torch.tensor(1.0)", says="expected"),
    "the input's type changed": mean("x.data = torch.zeros(3, dtype=torch.int8)\nreturn x"),
    "a __repr__ that raises": mean(
        "return Value()", lying("object", "def __repr__(self): raise ValueError"), says="Value"
    ),
    "a __repr__ that loops": mean(
        "return Value()", lying("object", "def __repr__(self):\n    while True: pass"), says="Value"
    ),
    "an exception whose text is a gigabyte": mean(
        "raise ValueError('x' * (1 << 28))", says="Your code raised ValueError"
    ),
    "an exception whose text raises": mean(
        "raise E", "class E(Exception):\n    def __str__(self): raise E", says="cannot be shown"
    ),
    "HTML in an exception": mean("raise ValueError('<script>alert(1)</script>')", says="<script>alert"),
    "a lookup table": mean("return {7: 1.5}[x.numel()]", says="expected"),
    "a constant": mean("return torch.tensor(1.5)", says="expected"),
    "a wrong answer that varies": mean("return torch.rand(()) + 1", says="expected"),
}
