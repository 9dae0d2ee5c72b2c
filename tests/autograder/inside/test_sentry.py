"""What leads out of a student's code into its worker is refused and flagged; what honest code does is not."""

import pytest

from autograder.authoring import Lab
from autograder.exercises import ready_made
from autograder.grading.run import run_exercise
from autograder.grading.seeds import seeds

IMPORTS = """
import builtins, concurrent.futures, contextlib, ctypes, functools, gc, importlib, inspect, logging, operator
import sys, threading, traceback, types
import torch, hpcdl.comm, hpcdl.memory.live_bytes as live, hpcdl.nn.mlp
"""
WAYS = {
    "a frame": "def f(x): return sys._getframe().f_back.f_back and x",
    "a frame by inspect": "def f(x): return inspect.currentframe().f_back and x",
    "the stack": "def f(x): return inspect.stack()[1].frame and x",
    "a frame by logging": "def f(x): return logging.currentframe() and x",
    "a frame by getattr": "def f(x): return getattr(sys, '_get' + 'frame')().f_back and x",
    "a frame by a trampoline": "go = functools.singledispatch(print)\ngo.register(int, sys._getframe)\n"
    "def f(x): return go(0).f_back and x",
    "a traceback's frame": "def f(x):\n    try:\n        1 / 0\n    except ZeroDivisionError as error:\n"
    "        return error.__traceback__.tb_frame.f_back and x",
    "frames of a traceback": "def f(x):\n    try:\n        1 / 0\n    except ZeroDivisionError as error:\n"
    "        return next(traceback.walk_tb(error.__traceback__))[0].f_back and x",
    "frames of the stack": "def f(x): return [frame for frame, _ in traceback.walk_stack(None)][-1] and x",
    "a generator's frame": "def g(): yield\ndef f(x): return g().gi_frame and x",
    "frames of all threads": "def f(x): return sys._current_frames() and x",
    "a trace function": "def f(x): return sys.settrace(lambda *_: None) or x",
    "a profile function": "def f(x): return sys.setprofile(lambda *_: None) or x",
    "a frame in a collector's callback": "gc.callbacks.append(lambda *_: sys._getframe())\n"
    "def f(x): return gc.collect() and x",
    "a file's name that is a class": "class Name(str): startswith = endswith = lambda *_: True\n"
    "def f(x): return compile('y = 1', Name('mine'), 'exec') and x",
    "another interpreter": "import _xxsubinterpreters as other\ndef f(x): return other.create() and x",
    "CPython's tests, by name": "def f(x): return importlib.import_module('_testcapi') and x",
    "a greenlet's frame": "import greenlet\ndef f(x): return greenlet.getcurrent().gr_frame or x",
    "all objects": "def f(x): return len(gc.get_objects()) and x",
    "all objects, elsewhere": "def f(x):\n    with concurrent.futures.ThreadPoolExecutor() as pool:\n"
    "        return pool.submit(gc.get_objects).result() and x",
    "who refers to it": "def f(x): return gc.get_referrers(x) and x",
    "what it refers to": "def f(x): return gc.get_referents(f) and x",
    "code of the library": "def f(x): return hpcdl.nn.mlp.sigma.__code__.co_consts and x",
    "code by attrgetter": "def f(x): return operator.attrgetter('__code__')(hpcdl.nn.mlp.sigma) and x",
    "code written": "def f(x):\n    live.meter.__code__ = (lambda *known: None).__code__\n    return x",
    "defaults written": "def f(x):\n    live.meter.__defaults__ = (1,)\n    return x",
    "a class of the machinery": "def f(x):\n    live.MemoryMeter.live = 0\n    return x",
    "a class at import": "live.MemoryMeter.peak = 0\ndef f(x): return x",
    "an object's class": "class Other(hpcdl.comm.Communicator): pass\n"
    "def f(x):\n    live.Bytes().__class__ = Other\n    return x",
    "a file's name": "def f(x):\n    exec(compile('y = 1', torch.__file__, 'exec'))\n    return x",
    "a file's name on code": "def f(x): return f.__code__.replace(co_filename=torch.__file__) and x",
    "foreign code with own names": "def f(x): return types.FunctionType(torch.nn.Linear.forward.__code__, {}) and x",
    "code by Numba": "from numba.core import bytecode\n"
    "def f(x): return bytecode.FunctionIdentity.from_function(hpcdl.nn.mlp.sigma).code and x",
    "code by Numba's helper": "from numba.core import bytecode\n"
    "def f(x): return torch.utils._pytree.tree_map(bytecode.get_code_object, [hpcdl.nn.mlp.sigma]) and x",
    "code of its own with a library's bytes": "import dis\ncode = dis.Bytecode(torch.nn.Linear.forward).codeobj\n"
    "def f(x): return types.FunctionType(code.replace(co_filename='mine'), {}) and x",
    "a library's code on its function": "import dis\ndef g(self, input): pass\n"
    "def f(x):\n    g.__code__ = dis.Bytecode(torch.nn.Linear.forward).codeobj\n    return x",
    "a library's code in bytes": "import dis, marshal\n"
    "def f(x): return marshal.dumps(dis.Bytecode(torch.nn.Linear.forward).codeobj) and x",
    "code from bytes": "import marshal\ndef f(x): return marshal.loads(b'N') is None and x",
    "a library's copy": "from torch.fx import _symbolic_trace\n"
    "def f(x): return _symbolic_trace._patch_function(torch.nn.Linear.forward, 2) and x",
    "frames by torch's compiler": "def f(x): return torch._C._dynamo.eval_frame.set_eval_frame(print) and x",
    "frames by torch's compiler, in Python": "import torch._dynamo.eval_frame as compiler\n"
    "def f(x): return compiler._TorchDynamoContext(print)(lambda: x)()",
    "a library in C": "def f(x): return ctypes.CDLL(None) and x",
    "memory read": "def f(x): return ctypes.string_at(id(x), 8) and x",
    "memory written": "def f(x): return ctypes.memset(x.data_ptr(), 0, 4) and x",
    "Python in C": "def f(x): return ctypes.pythonapi.PyFrame_GetBack and x",
    "a stack by a task": "import asyncio\nasync def look(): return asyncio.current_task().get_stack()\n"
    "def f(x): return asyncio.new_event_loop().run_until_complete(look()) and x",
    "variables by TorchScript": "def f(x):\n"
    "    found = torch._jit_internal.createResolutionCallbackFromFrame(3)('self')\n    return x",
    "variables by a trampoline": "def f(x):\n"
    "    torch.utils._pytree.tree_map(torch._jit_internal.createResolutionCallbackFromFrame, [3])\n    return x",
    "a trace function for threads": "def f(x):\n    threading.settrace(lambda *_: None)\n"
    "    thread = threading.Thread(target=int)\n    thread.start()\n    thread.join()\n    return x",
    "a profile function for threads": "def f(x):\n    threading.setprofile(lambda *_: None)\n"
    "    thread = threading.Thread(target=int)\n    thread.start()\n    thread.join()\n    return x",
    "a module's copy": "def f(x):\n"
    "    spec = importlib.util.spec_from_file_location('mine', hpcdl.nn.mlp.__file__)\n"
    "    spec.loader.exec_module(importlib.util.module_from_spec(spec))\n    return x",
    "a module's copy in a package": "def f(x):\n    torch.utils.__path__.append(torch.optim.__path__[0])\n"
    "    return importlib.import_module('torch.utils.sgd') and x",
    "a module once more": "def f(x): return importlib.reload(torch.optim.lr_scheduler) and x",
    "a module forgotten and imported": "def f(x):\n    del sys.modules['torch.optim.sgd']\n"
    "    import torch.optim.sgd\n    return x",
    "hooks moved by a flag": "def f(x): return torch._C._autograd._saved_tensors_hooks_set_tracing(True) or x",
    "hooks turned off": "def f(x): return torch._C._autograd._saved_tensors_hooks_disable('') or x",
    "variables by pandas": "from pandas.core.computation import scope\ndef f(x): return scope.Scope(2).scope and x",
    "an audit hook": "def f(x): return sys.addaudithook(lambda *_: None) or x",
}
HONEST = {
    "a traceback as text": "def f(x):\n    try:\n        1 / 0\n    except ZeroDivisionError:\n"
    "        assert 'ZeroDivisionError' in traceback.format_exc()\n    return x",
    "the stack as text": "def f(x): return x if traceback.format_stack() and traceback.extract_stack() else None",
    "a log with its line": "log = logging.getLogger('mine')\n"
    "def f(x):\n    log.warning('slow', stack_info=True)\n    return x",
    "named tuples and enums": "import collections, enum, dataclasses, typing\n"
    "def f(x):\n    P = collections.namedtuple('P', 'a b')\n    E = enum.Enum('E', 'a b')\n"
    "    T = typing.NamedTuple('T', [('a', int)])\n"
    "    D = dataclasses.make_dataclass('D', ['a'])\n    return x if P(1, 2).a and E.a and T(1) and D(1) else None",
    "code of its own": "def g(a): return a\ndef f(x):\n    g.__defaults__ = (1,)\n"
    "    return x if g.__code__.co_argcount and inspect.signature(g) and inspect.getfullargspec(g) else None",
    "a signature of the library": "def f(x): return inspect.signature(hpcdl.nn.mlp.sigma) and x",
    "a thread and a pool": "def f(x):\n    with concurrent.futures.ThreadPoolExecutor() as pool:\n"
    "        return pool.submit(lambda: x).result()",
    "a package that copies functions": "def f(x):\n    import ipyparallel.serialize\n    return x",
    "torch's compiler imported": "def f(x):\n    import torch._dynamo\n    return torch.compile(torch.relu)(x)",
    "builtins that the worker sets": "def f(x): return x if input is builtins.input and get_ipython() else None",
    "a signal handler, without a frame": "import signal\ndef f(x):\n    seen = []\n"
    "    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(frame))\n"
    "    signal.raise_signal(signal.SIGUSR1)\n    signal.signal(signal.SIGUSR1, before)\n"
    "    return x if seen == [None] else None",
    "compiled text": "def f(x): return eval(compile('x', '<mine>', 'eval'), {'x': x})",
    "a wrapped function": "@functools.wraps(torch.relu)\ndef g(x): return x\ndef f(x): return g(x)",
    "a collection of garbage": "def f(x):\n    gc.collect()\n    return x",
    "a table of NumPy's": "import numpy as np\ndef f(x): return torch.from_numpy(np.ascontiguousarray(x.numpy()))",
    "a function that Numba compiles": "from numba import njit\n@njit\ndef g(): return 1\ndef f(x): return x * g()",
    "a module of torch's": "def f(x):\n    import torch.nn.utils.parametrize\n    return torch.nn.Identity()(x)",
    "a package with decorators": "def f(x):\n    import sympy.multipledispatch\n    return x",
    "a package that loads its own": "def f(x):\n    import triton.language\n    return x",
    "a query of pandas": "import pandas as pd\n"
    "def f(x):\n    least = 1\n    d = pd.DataFrame({'a': [1, 2]})\n    d.eval('b = a + @least', inplace=True)\n"
    "    return x if len(d.query('b > @least + 1')) == 1 else None",
    "an attribute of comm's class": "class Mine:\n    pass\ndef f(x):\n    Mine.live = 3\n    return x",
}


def result_of(session, forbid=()):
    lab = Lab("watched", number=0, title="Watched")
    lab.exercise("f", points=1, minutes=1, forbid=forbid).check(points=1)(lambda student, rng: student.f(torch_zeros()))
    return run_exercise(lab.exercises["f"], session, seeds(b"", ""))


def torch_zeros():
    import torch

    return torch.zeros(3)


@pytest.mark.parametrize("way", WAYS)
def test_a_way_out_is_refused_and_told(remote, way):
    for package in ("greenlet", "pandas"):
        if package in way:
            pytest.importorskip(package)
    session = remote(IMPORTS, WAYS[way])
    result = result_of(session)
    told = result.forbidden or list(session.early)
    assert told, result.checks[0]
    assert result.points == 0 or session.early


@pytest.mark.parametrize("code", HONEST.values(), ids=HONEST)
def test_honest_code_is_left_alone(remote, code):
    if "pandas" in code:
        pytest.importorskip("pandas")
    session = remote(IMPORTS, code)
    result = result_of(session)
    assert result.passed, result.checks[0]
    assert (result.forbidden, session.early, session.problems) == ([], {}, {})


C_FUNCTIONS = {
    "kept from a cell": ("from scipy.ndimage import _nd_image as kept", "kept.correlate", "scipy.ndimage"),
    "taken out of sys.modules": (
        "import sys\nimport statistics\nkept = sys.modules.pop('statistics')",
        "kept.fmean",
        "statistics",
    ),
    "of NumPy": ("import numpy\nkept = numpy._core.multiarray", "kept.correlate", "numpy._core.multiarray.correlate"),
    "of NumPy, public": ("import numpy as kept", "kept.gradient", "numpy.gradient"),
    "that only calls others": ("import torch as kept", "kept.ops.aten.gradient", "aten::gradient"),
}


@pytest.mark.parametrize(("cell", "call", "forbid"), C_FUNCTIONS.values(), ids=C_FUNCTIONS)
def test_a_function_without_a_door_is_refused(remote, cell, call, forbid):
    result = result_of(remote(cell, f"def f(x):\n    {call}(x)\n    return x"), (forbid,))
    assert result.points == 0
    assert result.forbidden, result.checks[0]


def test_an_extension_module_past_its_finder_is_refused(remote):
    cell = "import sys\nsys.meta_path[:] = [each for each in sys.meta_path if isinstance(each, type)]"
    session = remote(cell + "\nfrom scipy.ndimage import _nd_image\ndef f(x): return x")
    assert "a copy of _nd_image" in "".join(session.early) or result_of(session).forbidden


ENGINE = "def run(y, x):\n    engine = torch.autograd.Variable._execution_engine\n" + (
    "    return engine.run_backward((y,), (torch.ones_like(y),), False, False, (x,), allow_unreachable=True,\n"
    "                               accumulate_grad=False)[0]\n"
)
SUMS = {  # no tensor is saved, so a backward pass reads none
    "on the engine": "def f(x):\n    a = leaf()\n    return run(a.sum(), a)",
    "with graphs turned on": (
        "def f(x):\n    with torch.enable_grad():\n        a = leaf()\n        return run(a.sum(), a)"
    ),
    "with graphs turned on in C": (
        "on = torch._C._set_grad_enabled\ndef f(x):\n    on(True)\n    a = leaf()\n    return run(a.sum(), a)"
    ),
    "without inference mode": (
        "def f(x):\n    with torch.inference_mode(False):\n        a = leaf()\n        return run(a.sum(), a)"
    ),
    "in a thread": (
        "def f(x):\n    with concurrent.futures.ThreadPoolExecutor() as pool:\n"
        "        def go():\n            a = leaf()\n            return run(a.sum(), a)\n"
        "        return pool.submit(go).result()"
    ),
    "as an operator": "def f(x):\n    a = leaf()\n    torch.ops.aten._backward(a.sum(), [a])\n    return a.grad",
    "by TorchScript": (
        "def back(y: torch.Tensor):\n    y.backward()\n"
        "def f(x):\n    a = leaf()\n    torch.jit.script(back)(a.sum())\n    return a.grad"
    ),
    "of a function of one's own": (
        "class Own(torch.autograd.Function):\n    forward = staticmethod(lambda ctx, a: a.clone())\n"
        "    backward = staticmethod(lambda ctx, d: d)\n"
        "def f(x):\n    a = leaf()\n    return run(Own.apply(a), a)"
    ),
}


@pytest.mark.thinned(8, 4)
@pytest.mark.parametrize("way", SUMS)
def test_a_backward_pass_through_sums_gains_nothing(remote, way):
    session = remote(IMPORTS, f"{ENGINE}def leaf(): return torch.ones(3, requires_grad=True)", SUMS[way])
    result = result_of(session, ready_made.DERIVATIVES)
    assert result.points == 0, result.checks[0]


def test_an_answer_without_derivatives_may_turn_graphs_off(remote):
    code = "@torch.no_grad()\ndef f(x):\n    with torch.no_grad(), torch.inference_mode():\n        return x + 1"
    result = result_of(remote(IMPORTS, code), ready_made.DERIVATIVES)
    assert (result.points, result.forbidden) == (1, [])


TEXTS = {
    "inspect": "inspect.getsource(torch.optim.SGD)",
    "linecache": "''.join(linecache.getlines(FILE))",
    "open": "open(FILE).read()",
    "pathlib": "pathlib.Path(FILE).read_text()",
    "a descriptor": "os.read(os.open(FILE, os.O_RDONLY), 9999).decode()",
    "a link": "os.symlink(FILE, 'notes.txt') or open('notes.txt').read()",
    "the loader": "module.__loader__.get_source(module.__name__)",
    "pkgutil": "pkgutil.get_data('torch.optim', 'lr_scheduler.py').decode()",
    "tokenize": "tokenize.open(FILE).read()",
    "a line of a traceback": "'def ' * bool(traceback.FrameSummary(FILE, 12, 'f').line)",
    "compiled code": "'def ' * len(marshal.loads(open(module.__cached__, 'rb').read()[16:]).co_consts)",
    "the library's": "open(hpcdl.nn.mlp.__file__).read()",
    "a folder like a compiler's": (
        "(lambda g: exec(compile('t = open(FILE).read()', '/a/numba/own.py', 'exec'), g) or g['t'])({'FILE': FILE})"
    ),
    "torch's own reader": "torch._sources.get_source_lines_and_file(torch.optim.SGD)[0][0].replace('class', 'def')",
    "IPython": "importlib.import_module('IPython.core.oinspect').getsource(torch.optim.SGD)",
    "cloudpickle": (
        "(lambda c: c.register_pickle_by_value(module) or 'def ' * len(c.dumps(module._format_param)))("
        "__import__('cloudpickle'))"
    ),
}


@pytest.mark.thinned(8, 4)
@pytest.mark.parametrize("way", TEXTS)
def test_a_librarys_text_cannot_be_read(remote, way):
    cells = "import linecache, marshal, os, pathlib, pkgutil, tokenize\nimport torch.optim.lr_scheduler as module"
    answer = "def f(x): return x if 'def ' in TEXT else 1 / 0"
    session = remote(IMPORTS, f"{cells}\nFILE = module.__file__", f"TEXT = ''\nTEXT = {TEXTS[way]}", answer)
    assert result_of(session).points == 0
    assert set(session.problems) <= {"cell 3"}


def test_modules_are_still_imported_and_shown_in_tracebacks(remote):
    code = (
        "def f(x):\n    import torch.nn.utils.prune\n    try:\n        torch.ones(2) @ torch.ones(3)\n"
        "    except RuntimeError:\n        assert 'torch.ones(2)' in traceback.format_exc()\n"
        "    assert 'return x' in inspect.getsource(f)\n    return x"
    )
    result = result_of(remote(IMPORTS, code))
    assert (result.points, result.forbidden) == (1, []), result.checks[0]
