"""Trainings that are ready to run, made of the strategies that spread one over ranks (such as `hpcdl.ddp`).

`trainer` is all of them together: `Trainer(comm, Configuration(model="gpt", mesh=(2, 2, 2, 1)))` trains on a mesh of
data, pipeline, tensor and sequence ranks with ZeRO's stages, and `hybrid` has its parts. `run_on(cluster, ...)` is such
a training on the engines of a notebook.

`train` is LeNet-5 data-parallel, from start to accuracy, with its pieces `momentum`, `checkpoint` and `devices`;
`program` is the same as a program: `mpiexec -n 4 hpcdl train`, `torchrun -m hpcdl.training`. `live` is a training that
obeys while it runs: pause, slow down or kill a rank; `scaling` measures it on 1, 2, 4, ... ranks beside what the cost
model predicts. `asynchronous` is LeNet-5 with parameter servers, also as a program. `large_batch` holds LARS, LAMB and
learning rates that grow with the batch; `mixed_precision` a loss scale that ranks agree on, and float32 masters; `fp8`
linear layers in eight bits.
`low_precision_runs` trains LeNet in fixed-point formats, and keeps the runs made before. `process_group` lets torch's
own DDP, FSDP2 and DTensor run on any machine of ours; `six_tools` is one training by each of them, and by ours.
`own_stack` is a training whose every brick can be exchanged, and that counts whose lines ran.
"""

from typing import TYPE_CHECKING

from hpcdl.lazy import exports

if TYPE_CHECKING:  # what a type checker and an editor read
    from hpcdl.training.hybrid.configuration import Configuration
    from hpcdl.training.hybrid.on_engines import run_on
    from hpcdl.training.large_batch import LAMB, LARS
    from hpcdl.training.mixed_precision import LossScaler, MasterWeights
    from hpcdl.training.momentum import Momentum
    from hpcdl.training.train import train_on_devices
    from hpcdl.training.trainer import Trainer

# Imported when first used: the command line knows the program's options without torch.
__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "Trainer": "trainer",
        "Configuration": "hybrid.configuration",
        "run_on": "hybrid.on_engines",
        "train_on_devices": "train",
        "Momentum": "momentum",
        "LAMB": "large_batch",
        "LARS": "large_batch",
        "LossScaler": "mixed_precision",
        "MasterWeights": "mixed_precision",
    },
)
