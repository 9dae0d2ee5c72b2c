"""Code that goes after the grader instead of the exercise."""

from . import CLOSED, COUNT, MEAN, cells, mean

WRONG = "return x.sum()"
POOL = "avg_pool2d(x[None, None], (1, len(x))).squeeze()"  # is the mean, and forbidden in this exercise
DENIED = "Your code calls `aten::avg_pool2d`"

ATTACKS = {
    "torch patched to agree": mean(
        WRONG, "torch.equal = torch.allclose = lambda *a, **k: True\ntorch.Tensor.mean = torch.Tensor.sum"
    ),
    "builtins patched": mean(WRONG, "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.all = lambda x: True"),
    "AssertionError replaced": mean(
        WRONG, "import builtins\nbuiltins.AssertionError = builtins.Exception = type('E', (), {})"
    ),
    "__import__ replaced": mean(WRONG, "import builtins\nbuiltins.__import__ = lambda *a, **k: None"),
    "isinstance patched": mean("return 'x'", "import builtins\nbuiltins.isinstance = lambda *a: True"),
    "sys.exit": mean("raise SystemExit(0)", says="ended the program"),
    "os._exit": mean("import os\nos._exit(0)", says="exit code 0"),
    "a signal to itself": mean(
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", says="ended the Python process"
    ),
    "SIGSTOP": mean("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", says="did not finish"),
    "SIGALRM ignored": mean(
        "import signal\nsignal.signal(14, signal.SIG_IGN)\nwhile True: pass", says="did not finish"
    ),
    "a segmentation fault": mean("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", says="segmentation fault"),
    "abort": mean("import os\nos.abort()", says="abort"),
    "atexit": mean("import atexit\natexit.register(print, 'passed')\nraise SystemExit", says="ended the program"),
    "a fake report on stdout": mean('print(\'{"passed": true, "score": 100}\')\nreturn 0'),
    "a fake report on every descriptor": mean(
        "import os\nfor n in range(3, 64):\n    try: os.write(n, b'[\"reply\", 1.5, []]' * 9)\n    except OSError: pass\nreturn 0",
        says="interfered",
    ),
    "a forged frame": mean(
        "import os, struct\nframe = b'[[], [\"reply\", 1.5, []]]'\n"
        "for n in range(3, 64):\n    try: os.write(n, struct.pack('<IQ', len(frame), 0) + frame)\n    except OSError: pass\nreturn 0"
    ),
    "a frame that promises much": mean(
        "import os, struct\nfor n in range(3, 64):\n    try: os.write(n, struct.pack('<IQ', 1 << 31, 1 << 62))\n    except OSError: pass",
        says="interfered",
    ),
    "a closed connection": mean("import os\nos.closerange(3, 64)\nreturn 0", says="ended the Python process"),
    "the protocol's own functions patched": mean(
        WRONG,
        "import sys\nw = sys.modules['autograder.inside.worker']\nw.Worker.perform = w.Worker.serve = lambda self, frame: frame",
    ),
    "an error that claims another kind": mean(
        WRONG,
        "import sys\nw = sys.modules['autograder.inside.worker']\nw.kind_of = lambda e: 'passed'\nw.text_of = lambda e: 'passed'",
    ),
    "the frames above": mean(
        "import sys\nf = sys._getframe()\nfound = []\nwhile f:\n    found += [v for k, v in f.f_locals.items() if k == 'expected']\n"
        "    f = f.f_back\nreturn found[0]",
        says=CLOSED,
    ),
    "the garbage collector": mean(
        "import gc\nfor o in gc.get_objects():\n    if type(o).__name__ in ('Check', 'CheckResult'): return o.expected",
        says=CLOSED,
    ),
    "the grader's modules": mean("import autograder.checks as c\nc.close = lambda *a, **k: None\nreturn 0"),
    "the exercises' file": mean("import autograder.exercises as e\nreturn open(e.__file__).read()"),
    "/proc": mean(
        "import os\nreturn [open(f'/proc/{n}/environ').read() for n in os.listdir('/proc')]", says="PermissionError"
    ),
    "the memory of the zygote": mean("return open('/proc/1/mem', 'rb').read(9)", says="PermissionError"),
    "reseeding": mean("return torch.rand(()) + 1", "torch.manual_seed(0)", says="expected"),
    "the generator's state guessed": mean("torch.manual_seed(0)\nreturn (torch.rand(7) + 1).mean()", says="expected"),
    "a planted sitecustomize": mean("open('sitecustomize.py', 'w').write('import os')\nreturn 0"),
    "a planted torch.py": mean("open('torch.py', 'w').write('')\nimport importlib\nimportlib.reload(torch)\nreturn 0"),
    "a planted conftest.py": cells("open('conftest.py', 'w').write('x')", "x = 1", COUNT, score=40),
    "a planted .pth": mean(
        "import site\nopen(site.getsitepackages()[0] + '/hpcdl_canary.pth', 'w')", says="PermissionError"
    ),
    "pytest.skip": mean("import pytest\npytest.skip('later')", says="Your code raised"),
    "unittest.SkipTest": mean("import unittest\nraise unittest.SkipTest", says="SkipTest"),
    "StopIteration": mean("raise StopIteration", says="StopIteration"),
    "GeneratorExit": mean("raise GeneratorExit", says="GeneratorExit"),
    "KeyboardInterrupt": mean("raise KeyboardInterrupt", says="KeyboardInterrupt"),
    "the grader's CheckFailure": mean("raise AssertionError('passed')", says="AssertionError"),
    "a thread that goes on": mean(
        "import threading\ndef work():\n    while True: globals()['mean'] = lambda x: 0\n"
        "threading.Thread(target=work, daemon=True).start()\nreturn 0"
    ),
    "settrace": mean("import sys\nsys.settrace(lambda *a: None)\nreturn 0"),
    "a patched clock": mean(
        "import time\ntime.monotonic = time.perf_counter = lambda: 0.0\nwhile True: pass", says="0.5 s"
    ),
    "a timer that never rings": mean("import signal\nsignal.setitimer(0, 0)\nwhile True: pass", says="0.5 s"),
    "all exceptions swallowed": mean(
        "import time\nwhile True:\n    try: time.sleep(0.01)\n    except BaseException: pass", says="0.5 s"
    ),
    "a cache across calls": mean("seen.append(x)\nreturn seen[0].sum()", "seen = []", says="expected"),
    "work done at import": cells("answer = [__import__('time').sleep(0.2)]", MEAN, COUNT),
    "np.random and torch left in another mode": cells(
        "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)", MEAN, COUNT
    ),
    "a forbidden call": mean(f"return torch.nn.functional.{POOL}", says="which this exercise forbids"),
    "a forbidden call by an alias": mean(f"return same.{POOL}", "import torch.nn.functional as same", says=DENIED),
    "a forbidden call by its operator": mean(f"return torch.ops.aten.{POOL}", says=DENIED),
    "a forbidden call by a module": mean(
        "return torch.nn.AvgPool2d((1, len(x)))(x[None, None]).squeeze()", says=DENIED
    ),
    "a forbidden call in a thread": mean(
        f"import threading\nt = threading.Thread(target=lambda: found.append(torch._C._nn.{POOL}))\nt.start()\nt.join()\nreturn found[-1]",
        "found = []",
        says=DENIED,
    ),
    "a forbidden call by a module loaded anew": mean(
        "import importlib\nanew = importlib.reload(torch.nn.modules.pooling)\n"
        "return anew.AvgPool2d((1, len(x)))(x[None, None]).squeeze()",
        says="Your code calls `importlib.reload(torch.nn.modules.pooling)`",
    ),
    "a forbidden call whose error is swallowed": mean(
        f"try: torch._C._nn.{POOL}\nexcept BaseException: pass\nreturn x.sum() / x.numel()", says=DENIED
    ),
    "a forbidden call's error replaced": mean(
        f"return torch._C._nn.{POOL}",
        "import sys\nsys.modules['autograder.inside.forbidden'].ForbiddenCallError = Exception",
        says=DENIED,
    ),
    "a forbidden module": mean("import statistics\nreturn statistics.fmean(x.tolist())", says="`statistics"),
}
