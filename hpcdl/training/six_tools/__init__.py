"""One training, by torch's tools and by ours: the same model, seed and samples, so that only the tool differs.

    torchrun --nproc-per-node 2 -m hpcdl.training.six_tools          # on gloo: of each run a line of JSON from rank 0
    simulate(train, 2, WAYS["FSDP2"], LENET)                         # on simulated ranks: who sends what

- `tasks`: what is trained: LeNet-5, a small transformer, four wide layers.
- `ways`: of each tool a function that prepares the model; its lines are what the tool asks of its user.
- `runs`: the steps, the same for all.
- `on_ray`: Ray starts processes of its own, and has a function of its own.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.training.six_tools.on_ray import fit
    from hpcdl.training.six_tools.runs import sent, serial, steps, train
    from hpcdl.training.six_tools.tasks import LENET, TASKS, TRANSFORMER, Task, wide
    from hpcdl.training.six_tools.ways import DEEPSPEED, RATE, WAYS, Prepare, Prepared, installed

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "DEEPSPEED": "ways",
        "LENET": "tasks",
        "Prepare": "ways",
        "Prepared": "ways",
        "RATE": "ways",
        "TASKS": "tasks",
        "TRANSFORMER": "tasks",
        "Task": "tasks",
        "WAYS": "ways",
        "fit": "on_ray",
        "installed": "ways",
        "sent": "runs",
        "serial": "runs",
        "steps": "runs",
        "train": "runs",
        "wide": "tasks",
    },
)
