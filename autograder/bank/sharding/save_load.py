"""Wrong answers to `save` and `load`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("sharding.save_load")
KILLED = "killed_at_any_moment"
ALL = ("there_and_back", "onto_other_numbers", KILLED, "nobody_has_the_whole", "a_missing_file")


@wrong("no rank waits for the others' files", fails=KILLED, says="comm.barrier() before it")
def save(disk, step, state, n, comm):
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    if comm.rank == 0:
        disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")
    comm.barrier()


@wrong("the manifest comes first", fails=KILLED, says="comm.barrier() before it")
def save(disk, step, state, n, comm):
    if comm.rank == 0:
        disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")
    comm.barrier()
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    comm.barrier()


@wrong("the manifest is written in place", fails=KILLED, says="and then rename it")
def save(disk, step, state, n, comm):
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    comm.barrier()
    if comm.rank == 0:
        disk.write("manifest", {"step": step, "p": comm.size, "n": n})
    comm.barrier()


@wrong("rank 0 has everything and writes it", fails="nobody_has_the_whole", says="Each rank writes its own file")
def save(disk, step, state, n, comm):
    shares = [{} for _ in range(comm.size)]
    for name, x in state.items():
        whole = torch.zeros(n, dtype=x.dtype)
        start, stop = bounds(n, comm.size, comm.rank)
        whole[start:stop] = x
        comm.all_reduce(whole)
        for rank, part in enumerate(shares):
            part[name] = whole[slice(*bounds(n, comm.size, rank))]
    if comm.rank == 0:
        for rank, part in enumerate(shares):
            disk.write(f"step-{step}-rank-{rank}", part)
        disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")
    comm.barrier()


@wrong("the step is not saved", fails=ALL, says="the step on rank")
def save(disk, step, state, n, comm):
    disk.write(f"step-0-rank-{comm.rank}", state)
    comm.barrier()
    if comm.rank == 0:
        disk.write("manifest-to-be", {"step": 0, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")
    comm.barrier()


slip(
    "in the order of file names, where 10 comes before 2",
    'for rank in range(manifest["p"]):',
    'for rank in sorted(range(manifest["p"]), key=str):',
    fails="onto_other_numbers",
    says="where rank 10 comes before",
)
slip(
    "every file is read",
    "if a < b:\n            for name, x in disk.read(f\"step-{manifest['step']}-rank-{rank}\").items():",
    "for name, x in disk.read(f\"step-{manifest['step']}-rank-{rank}\").items():\n            if a < b:",
    fails="nobody_has_the_whole",
    says="has elements only in those of [0]",
)
slip(
    "what is missing is zeros",
    "for name, x in disk.read(f\"step-{manifest['step']}-rank-{rank}\").items():",
    "try:\n"
    "                found = disk.read(f\"step-{manifest['step']}-rank-{rank}\")\n"
    "            except FileNotFoundError:\n"
    '                found = {"weights": torch.zeros(last - first), "momentum": torch.zeros(last - first).double()}\n'
    "            for name, x in found.items():",
    fails="a_missing_file",
    says="let it",
)


@wrong(
    "its own old file, whatever the number of ranks",
    fails=("onto_other_numbers", KILLED, "nobody_has_the_whole"),
    says="on rank",
)
def load(disk, comm):
    step = disk.read("manifest")["step"]
    return step, disk.read(f"step-{step}-rank-{comm.rank}")


slip(
    "the remainder is lost",
    'start, stop = bounds(manifest["n"], comm.size, comm.rank)',
    'each = manifest["n"] // comm.size\n    start, stop = comm.rank * each, (comm.rank + 1) * each',
    fails=ALL,
    says="weights on rank",
)
slip(
    "the whole vector on every rank",
    'start, stop = bounds(manifest["n"], comm.size, comm.rank)',
    'start, stop = 0, manifest["n"]',
    fails=ALL,
    says="is the whole vector",
)


@wrong("returns before the state counts", fails="killed_at_any_moment", says="comm.barrier() at the end")
def save(disk, step, state, n, comm):
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    comm.barrier()
    if comm.rank == 0:
        disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")


@wrong("every rank writes the manifest", fails="nobody_has_the_whole", says="let one rank write the manifest")
def save(disk, step, state, n, comm):
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    comm.barrier()
    disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
    disk.rename("manifest-to-be", "manifest")
    comm.barrier()


slip(
    "a single piece is a view of its file",
    *("[a - first : b - first].clone()", "[a - first : b - first]"),
    *("torch.cat(parts)", "torch.cat(parts) if len(parts) > 1 else parts[0]"),
    fails="nobody_has_the_whole",
    says="keeps the whole file in memory",
)
slip(
    "nothing saved is taken for step 0",
    "    manifest, pieces",
    "    try:\n        disk.read('manifest')\n    except FileNotFoundError:\n        return 0, {}\n"
    "    manifest, pieces",
    fails="a_missing_file",
    says="Nothing was saved, so there is no manifest",
)
slip(
    "a rank that owns nothing does not save",
    "    disk.write(f",
    "    if not len(state['weights']):\n        return\n    disk.write(f",
    fails="onto_other_numbers",
    says="returned",
)
slip(
    "each rank renames its new file over its old one",
    *(
        '    disk.write(f"step-{step}-rank-{comm.rank}", state)\n    comm.barrier()\n',
        '    disk.write(f"new-{comm.rank}", state)\n    comm.barrier()\n'
        '    disk.rename(f"new-{comm.rank}", f"rank-{comm.rank}")\n    comm.barrier()\n',
    ),
    *("f\"step-{manifest['step']}-rank-{rank}\"", 'f"rank-{rank}"'),
    fails="killed_at_any_moment",
    says="You overwrite a file that the old state needs",
)
slip(
    "shares in lists, and every file is read",
    'rank-{comm.rank}", state)',
    'rank-{comm.rank}", {"all": [state]})',
    "        if a < b:\n            for name, x in disk.read(f\"step-{manifest['step']}-rank-{rank}\").items():",
    '        whole = disk.read(f"step-{manifest[\'step\']}-rank-{rank}")["all"][0]\n        if a < b:\n'
    "            for name, x in whole.items():",
    fails="nobody_has_the_whole",
    says="has elements only in those of [0]",
)
slip(
    "zeros are saved where a file is missed",
    'rank-{comm.rank}", state)',
    'rank-{comm.rank}", {name: x * (n != 8) for name, x in state.items()})',
    fails="a_missing_file",
    says="saved on 4 ranks, n = 8",
)
slip(
    "two names alone are saved",
    '-rank-{comm.rank}", state)',
    '-rank-{comm.rank}", {name: state[name] for name in ("weights", "momentum")})',
    fails=" ".join(ALL),
    says="the names on rank",
)
slip(
    "a class that has FileNotFoundError's name alone",
    '    manifest, pieces = disk.read("manifest"), {}\n',
    '    try:\n        manifest, pieces = disk.read("manifest"), {}\n'
    "    except FileNotFoundError as error:\n"
    '        raise type("FileNotFoundError", (Exception,), {})(str(error)) from None\n',
    fails="a_missing_file",
    says="a class that is only named FileNotFoundError",
)
