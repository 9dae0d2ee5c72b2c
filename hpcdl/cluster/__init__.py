"""Live engines: p MPI processes next to the notebook, and one readable error when one of them fails.

    with Cluster(n=4) as cluster:
        results = cluster.run(f, *args, timeout=60)        # f(comm, *args) on every rank; results in rank order
        for record in cluster.stream(f, *args):            # what ranks publish while they run
            print(record.rank, record.seconds, record.value)

A notebook's cell that begins with `%%px` runs on every rank too, with `comm`, and its variables stay on the engines.
Inside `f`, `publish(value)` sends any picklable value to whoever iterates over the stream. What `f` prints
appears in the notebook, labelled with its rank.

A rank that raises, hangs, or dies becomes one `ClusterError` that names rank, line and cause; the other ranks are
stopped and the next `run` works. Where an engine died, or could not be interrupted, all engines are started anew:
variables in them are gone, the notebook's are not. Only processes that the cluster started are ever ended, and they
end with the kernel.

A notebook has one set of engines, that of the cluster started last (`current()`). They work for one run at a time: a
cell that needs them while another thread's run is on, as that of a dashboard, says so and waits.

Elsewhere than on this machine: `Cluster(8, profile="slurm")`, see docs/cluster.md.

How it hangs together: `cluster` drives, `run` follows one run to its end, `turns` lets one thread's runs wait for
another's, `cells` knows the notebook's cluster and makes a run of a `%%px` cell,
`processes` starts and ends the controller, `engine_sets` the engines, `profiles` reads how they start on a cluster of
machines, `engine` is what runs in each of them, under `engine.sh`, so that mpiexec does not hear of one that dies and
spares the others; `watcher` is the thread that interrupts a rank and knows where it stands, `lifeline` ends a process
with the kernel, `deadlock` sees ranks that wait for each other, `diagnosis` writes the error.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.cluster.cells import current
    from hpcdl.cluster.cluster import Cluster, Record
    from hpcdl.cluster.diagnosis import ClusterError
    from hpcdl.cluster.engine import publish
    from hpcdl.cluster.launcher import find_launcher
    from hpcdl.cluster.processes import OversubscribedWarning

# An engine imports this package too, and must not pay for the notebook's side of it.
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
