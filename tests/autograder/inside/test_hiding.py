"""No object that guards a worker can be reached from an answer, by any chain of attributes."""

import pytest

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


def f(hidden, comm):
    roots = [sys.modules, sys.meta_path, sys.path_hooks, weakref.finalize._registry, globals()]
    roots += [dict(vars(each)) for each in {*classes(object)} if str(each.__module__).startswith("autograder")]
    roots += [hpcdl.collectives.ring.ring_all_reduce, torch._C._set_grad_enabled, threading.enumerate(), comm]
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
"""


@pytest.mark.labs  # it looks at 50,000 objects: five seconds; test_sentry.py tries single ways in the first tier
def test_nothing_leads_to_what_guards(remote):
    started = remote(CRAWLER, opened=())
    started.start_check(60)
    ((count, found),) = started.student.ranks("f", 1, lambda rank: (list(HIDDEN),)).results
    assert found == []
    assert count > 10_000
