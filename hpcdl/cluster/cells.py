"""`%%px`: run a notebook cell on every rank, with everything a run has: labels, a time limit, one readable error."""

import ast
import shlex
import threading
import weakref
from typing import TYPE_CHECKING

from IPython import get_ipython

if TYPE_CHECKING:
    from hpcdl.cluster.cluster import Cluster
    from hpcdl.comm.mpi import MPIComm

_comm: "MPIComm | None" = None  # on an engine: the cells' communicator, the same object from cell to cell
_epoch: int | None = None  # on an engine: the number of failed runs when `_comm` was made
_current: "weakref.ref[Cluster] | None" = None  # in the notebook: the cluster started last
_door = threading.Lock()  # only one cluster at a time may take over


def take_over(cluster: "Cluster") -> None:
    """Make `cluster` the notebook's, for `%px` and `%%px`, and stop the previous one; do nothing without IPython.

    Two sets of engines would share the same cores, and each holds the memory of a kernel.
    """
    global _current
    shell = get_ipython()
    if shell is None:
        return
    with _door:
        if (earlier := current()) not in (None, cluster):
            print(
                f"Note: the {earlier.n} engines that were started before are stopped: a notebook has one set of them."
            )
            earlier.stop()
        _current = weakref.ref(cluster)
    shell.register_magic_function(px, "line_cell")


def current() -> "Cluster | None":
    """Return the notebook's cluster, started last; None if it is stopped or gone, or without IPython."""
    cluster = _current() if _current else None
    return None if cluster is None or cluster.stopped else cluster


def px(line: str, cell: str | None = None) -> None:
    """Run a statement (`%px x = 1`) or a cell on every rank, in one persistent namespace per rank, which has `comm`.

    The cell's first line is `%%px` or `%%px --timeout 10` (seconds; default 60). The last expression is printed.
    """
    timeout, source = (60.0, line) if cell is None else (_timeout(line), f"# %%px {line}\n{cell}")
    cluster = _current() if _current else None
    if cluster is None:
        raise RuntimeError("%px: the cluster is gone; start another: cluster = Cluster(n=4).start()")
    shell = get_ipython()
    code = shell.transform_cell(source)
    number = len(shell.user_ns["In"]) - 1  # of this cell; `execution_count` may already be the next one's
    name = shell.compile.cache(code, number, raw_code=source)
    ast.parse(code, name)  # the notebook reports syntax errors, not every rank
    cluster.run(execute, code, name, cluster.failures, timeout=timeout)


def _timeout(line: str) -> float:
    match shlex.split(line):
        case []:
            return 60.0
        case ["--timeout", seconds]:
            return float(seconds)
    raise ValueError(f"%%px: it says {line!r}; it takes --timeout SECONDS and nothing else")


def execute(comm: "MPIComm", code: str, name: str, epoch: int) -> None:
    """Run `code` in this engine's namespace, and print the value of a last expression."""
    from IPython.lib.pretty import pretty

    namespace = get_ipython().user_ns
    namespace["comm"] = _lasting(comm, epoch)
    tree = ast.parse(code, name)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, name, "exec"), namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
        if value is not None and not code.rstrip().endswith(";"):
            print(pretty(value))


def _lasting(comm: "MPIComm", epoch: int) -> "MPIComm":
    """Return the cells' communicator: earlier cells' objects hold it, so it stays, with new channels after a failed
    run."""
    global _comm, _epoch
    from hpcdl.cluster import engine
    from hpcdl.comm.mpi import MPIComm

    if epoch != _epoch:
        duplicate, request = comm.mpi.Idup()
        comm.finish(request, "start of the cell")
        _comm, _epoch = _comm or MPIComm(duplicate), epoch
        _comm.renew(duplicate)
    assert _comm is not None  # the first cell created it
    engine.follow(_comm)
    return _comm
