"""No object that guards a worker can be reached from an answer, by any chain of attributes."""

import pytest
import torch

from autograder.inside.hiding import HIDDEN

CRAWLER = """
import functools, sys, threading, torch, types, weakref
import hpcdl.collectives.ring

FUNCTIONS = "__closure__", "__defaults__", "__kwdefaults__", "__dict__", "__wrapped__"
PARTS = {
    types.FunctionType: FUNCTIONS, types.MethodType: ("__self__", "__func__"), types.CellType: ("cell_contents",),
    types.BuiltinFunctionType: ("__self__",), functools.partial: ("func", "args", "keywords"),
    property: ("fget", "fset", "fdel"), staticmethod: ("__func__",), classmethod: ("__func__",),
    weakref.ref: ("__callback__",), functools._lru_cache_wrapper: ("__wrapped__", "__dict__"),
}
OURS = "autograder", "hpcdl", "weakref", "threading", "linecache", "importlib", "__main__", "__mp_main__"
PLAIN = str, int, float, bytes, bool, type(None), complex, torch.Tensor


def parts(x):
    kind = type(x)
    if kind in PLAIN:
        return
    if isinstance(x, (dict, types.MappingProxyType)):
        yield from [*x.values(), *(key for key in x if type(key) not in PLAIN)]
    elif isinstance(x, (list, tuple, set, frozenset)):
        yield from x if len(x) < 3000 else ()
    elif isinstance(x, types.ModuleType):
        yield vars(x) if x.__name__.startswith(OURS) else None
    elif isinstance(x, type):
        if str(x.__module__).startswith(OURS):
            yield from (dict(vars(x)), type.__subclasses__(x))
    else:
        for known, names in PARTS.items():
            if isinstance(x, known):
                yield from (getattr(x, name, None) for name in names)
        if isinstance(x, types.FunctionType) and str(x.__globals__.get("__name__")).startswith(OURS):
            yield x.__globals__
        if kind is weakref.ref:
            yield x()
        yield getattr(x, "__dict__", None)
        slots = [vars(each).get("__slots__", ()) for each in kind.__mro__]
        for name in [name for each in slots for name in ((each,) if type(each) is str else each)]:
            yield getattr(x, name, None)
        if kind.__weakrefoffset__:
            yield weakref.getweakrefs(x)


def classes(kind):
    for each in type.__subclasses__(kind):
        yield each
        if each is not type:
            yield from classes(each)


def crawl(hidden, *given):
    roots = [sys.modules, sys.meta_path, sys.path_hooks, weakref.finalize._registry, globals()]
    roots += [dict(vars(each)) for each in {*classes(object)} if str(each.__module__).startswith("autograder")]
    roots += [hpcdl.collectives.ring.ring_all_reduce, torch._C._set_grad_enabled, threading.enumerate(), *given]
    optimizer = sys.modules.get("torch.optim.optimizer")
    roots += [sys.gettrace(), vars(torch.UntypedStorage).get("resize_"), vars(optimizer) if optimizer else 0]
    seen, found = {}, set()
    while roots:
        x = roots.pop()
        if id(x) in seen:
            continue
        seen[id(x)] = x
        owner = str(type(x).__module__)
        if isinstance(x, (types.FunctionType, types.ModuleType)):
            owner = str((x.__globals__ if isinstance(x, types.FunctionType) else vars(x)).get("__name__"))
        if owner.startswith(tuple(hidden)):
            found.add((owner, type(x).__name__))
            continue
        try:
            roots.extend(parts(x))
        except Exception:
            pass
    return len(seen), sorted(found)


def f(hidden, comm):
    return crawl(hidden, comm)
"""
MEASURED = """
METER = "hpcdl.memory.live_bytes", "autograder.inside.held"
reached = []


def note(*given):
    storages = [x.untyped_storage() for x in given if isinstance(x, torch.Tensor)]
    found = crawl(METER, *given, *[weakref.getweakrefs(x) for x in storages])[1]
    reached.extend(name for _, name in found if name in ("MemoryMeter", "Held", "Bytes"))


def peak(q):
    y = q * 2
    note(q, y)
    return len(reached)


class Adam:
    def __init__(self, params, comm, lr):
        note(params, *params, comm)

    def step(self):
        note(self)
        self.m = self.v = self.t = len(reached)


class Sharded:
    def __init__(self, layers, weights, comm):
        note(layers, *weights, comm)
        self.shares, self.grads = [], []

    def forward(self, x, order):
        note(x)
        return len(reached)

    def backward(self, dy, order):
        return len(reached)
"""


@pytest.mark.labs  # it looks at 50,000 objects: five seconds; test_sentry.py tries single ways in the first tier
def test_nothing_leads_to_what_guards(remote):
    started = remote(CRAWLER, opened=())
    started.start_check(60)
    ((count, found),) = started.student.ranks("f", 1, lambda rank: (list(HIDDEN),)).results
    assert found == []
    assert count > 10_000


@pytest.mark.labs  # as above
def test_nothing_leads_to_a_meter_while_it_measures(remote):
    """Its hooks, weak references and methods instead of torch's show no object behind them."""
    started = remote(CRAWLER + MEASURED, opened=())
    started.start_check(100)
    x = torch.ones(2, 2)
    run = lambda name, harness, *given: started.student.ranks(name, 1, lambda rank: given, harness=harness).results[0]  # noqa: E731
    assert run("peak", "peak", x)[0] == 0
    assert run("Adam", "optimizing", [x], [[x]], 0.1)[3] == [0, 0, 0]
    y, dx, *_ = run("Sharded", "gathered", [(2, 2)], [x.flatten()], x, x, [0], [[1.0], [1.0]], 0.0, True, False)
    assert (y, dx) == (0, 0)
