"""Lab `frameworks`: its eight exercises.

Oracle: one process without any framework, in float64 to 1e-12; the trace of the simulated machine, virtual seconds.
torch's DDP, FSDP2 and DTensor are the real ones: they run on a process group whose messages that machine carries.
What cannot run within the walls, DeepSpeed, is graded by its configuration, and Ray's loop on a stand-in for ray.train.
"""

from autograder.authoring import Lab
from autograder.exercises.frameworks import broken, config, ddp, elastic, fsdp, horovod, tensor, which_when
from hpcdl.lazy import COMPILER

lab = Lab(
    "frameworks",
    title="Six tools, one step",
    exercises=(
        ddp.exercise,
        fsdp.exercise,
        tensor.exercise,
        horovod.exercise,
        elastic.exercise,
        broken.exercise,
        which_when.exercise,
        config.exercise,
    ),
    slow_modules=(COMPILER, "torch.testing._internal.distributed.multi_threaded_pg"),  # torch's optimizers and groups
)
