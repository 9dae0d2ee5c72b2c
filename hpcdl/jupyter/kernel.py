"""In the labs' kernels, using a name before the lab's first cell has imported it gives one helpful sentence.

The kernel of the lab that `hpcdl lab 01` opens imports the same ahead, while the browser still loads the page.
`kernels/python3/kernel.json` is Jupyter's own kernel with this extension of IPython; JUPYTER_PATH leads servers there.
"""

import ast
import json
import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from hpcdl import labs
from hpcdl.interrupt import InterruptAfterImports
from hpcdl.jupyter import LAB
from hpcdl.saying import saying

PROOF = "check"  # every lab's first cell imports it: if it exists, that cell has run


def load_ipython_extension(shell: Any) -> None:
    """IPython calls this when the kernel starts."""
    shell.set_custom_exc((NameError, KeyboardInterrupt), show)
    say_imports(shell)
    wait_for_imports(shell)
    lab = os.environ.get(LAB)
    if lab and lab == os.environ.get("JPY_SESSION_NAME"):  # the notebook that this kernel is for
        with suppress(Exception):  # its first cell will say it to the user
            import_ahead(first_cell(Path(lab)))


def wait_for_imports(shell: Any) -> None:
    """Let ■ wait for an import: an interrupted module would fail until the kernel is restarted."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return
    before = kernel.pre_handler_hook

    def hook() -> None:
        before()
        signal.signal(signal.SIGINT, InterruptAfterImports())

    kernel.pre_handler_hook = hook


def say_imports(shell: Any) -> None:
    """Say in a lab's first cell what it does, once it takes more than two seconds."""
    if not hasattr(shell, "events"):
        return
    line = ExitStack()

    def begin(info: Any) -> None:
        if PROOF not in shell.user_ns and f"import {PROOF}" in (info.raw_cell or ""):
            line.enter_context(saying("Importing torch and what the lab needs"))

    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", lambda result: line.close())


def show(shell: Any, kind: type, error: BaseException, trace: TracebackType, tb_offset: int | None = None) -> None:
    """Show a NameError as the sentence that helps, an interruption as where it was, anything else as IPython does."""
    sentence = stopped(trace, shell.user_ns) if isinstance(error, KeyboardInterrupt) else ""
    if isinstance(error, NameError):
        sentence = advice(error, trace, shell.user_ns)
    if sentence and not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = lambda: [sentence]  # type: ignore[attr-defined]  # IPython asks the error itself
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def stopped(trace: TracebackType, namespace: dict) -> str:
    """Return where the notebook's own code was when ■ was pressed, without frames of libraries."""
    from hpcdl.comm.location import SourceLine

    where, frame = "", trace
    while frame:
        code = frame.tb_frame.f_code
        if frame.tb_frame.f_globals is namespace:
            where = f" at {SourceLine(code.co_filename, frame.tb_lineno, code.co_name).shown()}"
        frame = frame.tb_next  # type: ignore[assignment]  # None at the end
    return f"You stopped this cell{where}"


def advice(error: NameError, trace: TracebackType, namespace: dict) -> str:
    """Say what to do about a name that the notebook's first cell would have imported; empty for other names."""
    while trace.tb_next:
        trace = trace.tb_next
    theirs = trace.tb_frame.f_globals is namespace
    if PROOF in namespace or not theirs or error.name not in imported_first():
        return ""
    return (
        f"`{error.name}` is not there yet: run the lab's first cell, which imports it. "
        "After a restart of the kernel, Run → Run All Above Selected Cell brings back all that stands above."
    )


def imported_first() -> set[str]:
    """Return the names that the first cell of some lab imports."""
    return {name for path in labs.notebooks(labs.shipped()) for name in imports(first_cell(path))}


def first_cell(path: Path) -> str:
    """Return the first cell of code in a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return next(("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"), "")


def import_ahead(code: str) -> None:
    """Import what the imports of `code` name, and bind nothing."""
    exec(compile(ast.Module(_imports(code), []), "<imports of the first cell>", "exec"), {})


def imports(code: str) -> set[str]:
    """Return the names that the imports of `code` bind."""
    return {(alias.asname or alias.name).partition(".")[0] for node in _imports(code) for alias in node.names}


def _imports(code: str) -> list:
    return [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
