"""Scripts that start all shards of a class: read, change and submit them to an engine.

Any shard may be killed and started again: it resumes. When all have ended, `autograder merge` collects the results.
"""

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

MINUTES = 240  # time limit of a shard


@dataclass(frozen=True)
class Job:
    """The grading of a class in `shards` parts.

    `options` are shared by `grade` and `merge`, `grading` are only for `grade`.
    """

    submissions: Path
    out: Path
    shards: int
    options: tuple[str, ...] = ()
    program: tuple[str, ...] = (sys.executable, "-m", "autograder")
    grading: tuple[str, ...] = ()

    def grade(self, number: str, *more: str) -> str:
        """Return the command of one shard; `number` is the shell expression for its number."""
        words = [
            *self.program,
            "grade",
            str(self.submissions),
            "--out",
            str(self.out),
            *self.options,
            *self.grading,
            *more,
        ]
        return f'{shlex.join(words)} --shard "{number}/{self.shards}"'

    def merge(self) -> str:
        return shlex.join([*self.program, "merge", str(self.submissions), "--out", str(self.out), *self.options])


def slurm(job: Job) -> str:
    return f"""#!/bin/bash
# Slurm: sbatch this file; then, with the number that it prints,
#   sbatch --dependency=afterok:NUMBER --wrap={shlex.quote(job.merge())}
#SBATCH --job-name=autograder
#SBATCH --array=1-{job.shards}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time={MINUTES}
#SBATCH --requeue
#SBATCH --output={_directive(f"{job.out}/".replace("%", "%%") + "shard-%a.log")}
exec {job.grade("$SLURM_ARRAY_TASK_ID")}
"""


def _directive(value: str) -> str:
    """Quote a value for sbatch, which knows double quotes and backslashes, but no other shell syntax."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def torchrun(job: Job) -> str:
    per_node = shlex.join([job.program[0], "-m", "torch.distributed.run"])
    shell = shlex.quote("exec " + job.grade("$((RANK + 1))", "--lanes", "1"))
    return f"""#!/bin/sh
# torchrun: {job.shards} ranks of one machine, a shard each. On K machines give each of them --nnodes K,
# --nproc-per-node {job.shards}/K and a --rdzv-endpoint instead of --standalone.
set -e
{per_node} --standalone --nproc-per-node {job.shards} --max-restarts 3 --no-python sh -c {shell}
{job.merge()}
"""


def kubernetes(job: Job) -> str:
    top = os.path.commonpath([job.submissions, job.out])
    inside = replace(job, program=("autograder",))
    return f"""# Kubernetes: kubectl apply -f this file. Put your image and your volume claim where CAPITALS stand;
# the volume holds the submissions and takes the results. When the job is complete, where the volume is:
#   {inside.merge()}
apiVersion: batch/v1
kind: Job
metadata:
  name: autograder
spec:
  completionMode: Indexed
  completions: {job.shards}
  parallelism: {min(job.shards, 16)}
  backoffLimit: {3 * job.shards}
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: shard
          image: IMAGE
          command: [sh, -c]
          args:
            - |-
              exec {inside.grade("$((JOB_COMPLETION_INDEX + 1))")}
          resources:
            requests: {{cpu: "2", memory: 4Gi}}
            limits: {{memory: 4Gi}}
          volumeMounts:
            - {{name: class, mountPath: {_yaml(top)}}}
      volumes:
        - name: class
          persistentVolumeClaim: {{claimName: CLAIM}}
"""


def submitit(job: Job) -> str:
    command = job.grade("$1", "--lanes", "1")
    return f'''"""submitit: python this file (local: on this machine, without Slurm). It waits for all shards."""

import subprocess
import sys

import submitit

COMMAND = {command!r}


def shard(number: int) -> None:
    subprocess.run(["sh", "-c", COMMAND, "shard", str(number)], check=True)


executor = submitit.AutoExecutor(folder={str(job.out / "submitit")!r}, cluster=sys.argv[1] if sys.argv[1:] else None)
executor.update_parameters(name="autograder", timeout_min=240, cpus_per_task=2, mem_gb=4)
jobs = executor.map_array(shard, range(1, {job.shards} + 1))
for job in jobs:
    job.result()
subprocess.run({job.merge()!r}, shell=True, check=True)
'''


def local(job: Job) -> str:
    shell = shlex.quote("exec " + job.grade("$1", "--lanes", "1"))
    return f"""#!/bin/sh
# One machine: a shard a core, until all are done.
set -e
seq {job.shards} | xargs -P "$(nproc)" -I NUMBER sh -c {shell} shard NUMBER
{job.merge()}
"""


def _yaml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


ENGINES: dict[str, Callable[[Job], str]] = {
    "slurm": slurm,
    "torchrun": torchrun,
    "kubernetes": kubernetes,
    "submitit": submitit,
    "local": local,
}
