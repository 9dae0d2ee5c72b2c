"""An interruption waits for the import in progress: a module that was cut short would fail for good."""

import contextlib
import importlib
import random
import signal
import sys
import threading
import time

import pytest

from hpcdl import lazy
from hpcdl.comm import simulate
from hpcdl.interrupt import InterruptAfterImports, interrupt, whole_imports

MODULES = 8


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The name of a package of several modules, which look for each other where they are imported."""
    folder = tmp_path / "many_parts"
    folder.mkdir()
    parts = range(MODULES)
    (folder / "__init__.py").write_text("".join(f"import many_parts.part{i}\n" for i in parts) + "whole = True\n")
    for i in parts:
        before = f"import many_parts.part{i - 1}\nassert many_parts.part{i - 1}.x == {i - 1}\n" * (i > 0)
        (folder / f"part{i}.py").write_text(before + f"def f():\n    return {i}\nx = f()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "many_parts"
    forget("many_parts")


def forget(package: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def is_whole(package: str) -> bool:
    module = importlib.import_module(package)
    return module.whole and [getattr(module, f"part{i}").x for i in range(MODULES)] == list(range(MODULES))


class At:
    """Call `f` at the `number`-th line of modules that Python runs in the block, or of its import machinery, too."""

    def __init__(self, number: int, f, *, machinery: bool = True):
        self.number, self.f, self.lines, self.machinery = number, f, 0, machinery

    def trace(self, frame, event, arg):
        if event == "line" and (self.machinery or "many_parts" in frame.f_code.co_filename):
            self.lines += 1
            if self.lines == self.number:
                self.f()
        return self.trace

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *_):
        sys.settrace(self.before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def raise_async() -> None:
    interrupt(threading.get_ident(), KeyboardInterrupt)


def lines_of_import(package: str, **options: bool) -> int:
    importlib.import_module(package)  # its bytecode is written once
    forget(package)
    counted = At(0, None, **options)
    with counted:
        importlib.import_module(package)
    forget(package)
    return counted.lines


def test_ctrl_c_waits_for_an_import(package):
    """At 40 seeded lines of it; the interruption is raised after the import, and not lost."""
    number = lines_of_import(package)
    for line in random.Random(0).sample(range(1, number), 40):
        with pytest.raises(KeyboardInterrupt), whole_imports():  # noqa: PT012
            with At(line, press):
                importlib.import_module(package)
            threading.Event().wait(5)
        assert is_whole(package), f"interrupted at line {line} of {number}"
        forget(package)


def test_an_import_cut_short_is_repaired(package):
    """What makes this thread raise without a signal cannot be made to wait."""
    number, cut = lines_of_import(package, machinery=False), 0
    for line in range(1, number):
        before = set(sys.modules)
        with contextlib.suppress(KeyboardInterrupt):
            with At(line, raise_async, machinery=False):
                importlib.import_module(package)
            time.sleep(0)
        cut += package not in sys.modules
        lazy.repair_imports(before)
        assert is_whole(package), f"interrupted at line {line} of {number}"
        forget(package)
    assert cut > number / 2


def test_an_import_in_its_own_thread_is_whole(package, tmp_path):
    """Its caller may be interrupted by anything; the next call waits for the import that continues."""
    (tmp_path / package / "part0.py").write_text("import time\ntime.sleep(0.2)\ndef f():\n    return 0\nx = f()\n")
    timer = threading.Timer(0.05, interrupt, (threading.get_ident(), KeyboardInterrupt))
    timer.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        lazy.import_whole(package)
        while True:
            pass
    lazy.import_whole(package)
    assert is_whole(package)
    assert lazy.import_whole(package) is None


def test_an_import_that_fails_says_why(tmp_path, monkeypatch):
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        lazy.import_whole("json", "no_such_module")


def test_ctrl_c_waits_for_a_simulated_rank(package, tmp_path):
    """Whose import takes long, and however often one presses."""
    (tmp_path / package / "part0.py").write_text("import time\ntime.sleep(0.5)\ndef f():\n    return 0\nx = f()\n")

    def rank(comm):
        threading.Thread(target=presses, args=(threading.main_thread().ident,)).start()
        importlib.import_module(package)
        while True:
            pass

    def presses(main):
        for _ in range(3):
            time.sleep(0.1)
            signal.pthread_kill(main, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        simulate(rank, 1)
    assert is_whole(package)


def test_an_import_that_never_ends_is_interrupted(tmp_path, monkeypatch):
    (tmp_path / "endless.py").write_text("while True:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(lazy, "OWN_PATIENCE", 0.1)
    timer = threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt), whole_imports():
        importlib.import_module("endless")


def test_another_handler_of_ctrl_c_stays():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with whole_imports():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    with whole_imports():
        assert isinstance(signal.getsignal(signal.SIGINT), InterruptAfterImports)


def test_what_runs_when_an_object_goes_is_not_interrupted():
    """What is raised there is printed by Python, and lost: the interruption comes after it."""

    class Going:
        def __del__(self):
            press()
            went.append(self)

    went = []
    with pytest.raises(KeyboardInterrupt), whole_imports():  # noqa: PT012
        Going()
        threading.Event().wait(5)
    assert len(went) == 1
