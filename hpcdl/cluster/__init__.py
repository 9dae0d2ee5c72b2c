"""Live engines: p MPI processes next to the notebook, and one readable error when one of them fails.

    with Cluster(n=4) as cluster:
        results = cluster.run(f, *args, timeout=60)        # f(comm, *args) on every rank; results in rank order
        for record in cluster.stream(f, *args):            # what ranks publish while they run
            print(record.rank, record.seconds, record.value)

A notebook's cell that begins with `%%px` runs on every rank too, with `comm`, and its variables stay on the engines.
Inside `f`, `publish(value)` sends any picklable value to the loop over the stream. What `f` prints
appears in the notebook, labelled with its rank.

A rank that raises, hangs, or dies becomes one `ClusterError` that names rank, line and cause; the other ranks are
stopped and the next `run` works. If an engine died or could not be interrupted, all engines restart: their variables
are lost, the notebook's are not. The cluster ends only processes that it started, and they end with the kernel.

A notebook has one set of engines, from the cluster started last (`current()`). They serve one run at a time: a cell
that needs them during another thread's run, for example a dashboard's, says so and waits.

On other machines: `Cluster(8, profile="slurm")`, see docs/cluster.md.

The parts: `cluster` is the main class. `run` follows one run to its end, and `turns` makes one thread's runs wait for
another's. `cells` knows the notebook's cluster and turns a `%%px` cell into a run. `processes` starts and ends the
controller, `engine_sets` the engines; `surroundings` finds what keeps them from starting, and `profiles` reads how they
start on a cluster of machines. `engine` runs in each of them under `engine.sh`, which hides a dying engine from mpiexec
to save the others. On this machine MPICH's engines are forked from one `template`, which imports torch once for all; a
`stand_in` holds each one's place. `watcher` is the thread that interrupts a rank and knows its current line, `lifeline`
ends a process with the kernel, `deadlock` detects ranks that wait for each other, and `diagnosis` writes the error.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # for type checkers and editors
    from hpcdl.cluster.cells import current
    from hpcdl.cluster.cluster import Cluster, Record
    from hpcdl.cluster.diagnosis import ClusterError
    from hpcdl.cluster.engine import publish
    from hpcdl.cluster.launcher import find_launcher
    from hpcdl.cluster.processes import OversubscribedWarning

# An engine imports this package too, but does not need the notebook's side.
__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "Cluster": "cluster",
        "Record": "cluster",
        "current": "cells",
        "ClusterError": "diagnosis",
        "OversubscribedWarning": "processes",
        "find_launcher": "launcher",
        "publish": "engine",
    },
)
