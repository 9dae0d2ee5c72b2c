"""Wrong answers to `save` and `load`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "sharding.save_load"
KILLED = "killed_at_any_moment"
ALL = ("there_and_back", "onto_other_numbers", KILLED, "nobody_has_the_whole", "a_missing_file")


@wrong(HERE, "no rank waits for the others' files", fails=KILLED, says="comm.barrier() before it")
def save(disk, step, state, n, comm):
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    if comm.rank == 0:
        disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")
    comm.barrier()


@wrong(HERE, "the manifest comes first", fails=KILLED, says="comm.barrier() before it")
def save(disk, step, state, n, comm):
    if comm.rank == 0:
        disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")
    comm.barrier()
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    comm.barrier()


@wrong(HERE, "the manifest is written in place", fails=KILLED, says="and then rename it")
def save(disk, step, state, n, comm):
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    comm.barrier()
    if comm.rank == 0:
        disk.write("manifest", {"step": step, "p": comm.size, "n": n})
    comm.barrier()


@wrong(HERE, "rank 0 has everything and writes it", fails="nobody_has_the_whole", says="Each rank writes its own file")
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


@wrong(HERE, "the step is not saved", fails=ALL, says="the step on rank")
def save(disk, step, state, n, comm):
    disk.write(f"step-0-rank-{comm.rank}", state)
    comm.barrier()
    if comm.rank == 0:
        disk.write("manifest-to-be", {"step": 0, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")
    comm.barrier()


@wrong(
    HERE,
    "in the order of file names, where 10 comes before 2",
    fails="onto_other_numbers",
    says="where rank 10 comes before",
)
def load(disk, comm):
    manifest, pieces = (disk.read("manifest"), {})
    start, stop = bounds(manifest["n"], comm.size, comm.rank)
    for rank in sorted(range(manifest["p"]), key=str):
        first, last = bounds(manifest["n"], manifest["p"], rank)
        a, b = (max(start, first), min(stop, last))
        if a < b:
            for name, x in disk.read(f"step-{manifest['step']}-rank-{rank}").items():
                pieces.setdefault(name, []).append(x[a - first : b - first].clone())
    return (manifest["step"], {name: torch.cat(parts) for name, parts in pieces.items()})


@wrong(HERE, "every file is read", fails="nobody_has_the_whole", says="has elements only in those of [0]")
def load(disk, comm):
    manifest, pieces = (disk.read("manifest"), {})
    start, stop = bounds(manifest["n"], comm.size, comm.rank)
    for rank in range(manifest["p"]):
        first, last = bounds(manifest["n"], manifest["p"], rank)
        a, b = (max(start, first), min(stop, last))
        for name, x in disk.read(f"step-{manifest['step']}-rank-{rank}").items():
            if a < b:
                pieces.setdefault(name, []).append(x[a - first : b - first].clone())
    return (manifest["step"], {name: torch.cat(parts) for name, parts in pieces.items()})


@wrong(HERE, "what is missing is zeros", fails="a_missing_file", says="let it")
def load(disk, comm):
    manifest, pieces = disk.read("manifest"), {}
    start, stop = bounds(manifest["n"], comm.size, comm.rank)
    for rank in range(manifest["p"]):
        first, last = bounds(manifest["n"], manifest["p"], rank)
        a, b = max(start, first), min(stop, last)
        if a < b:
            try:
                found = disk.read(f"step-{manifest['step']}-rank-{rank}")
            except FileNotFoundError:
                found = {"weights": torch.zeros(last - first), "momentum": torch.zeros(last - first).double()}
            for name, x in found.items():
                pieces.setdefault(name, []).append(x[a - first : b - first].clone())
    return manifest["step"], {name: torch.cat(parts) for name, parts in pieces.items()}


@wrong(
    HERE,
    "its own old file, whatever the number of ranks",
    fails=("onto_other_numbers", KILLED, "nobody_has_the_whole"),
    says="on rank",
)
def load(disk, comm):
    step = disk.read("manifest")["step"]
    return step, disk.read(f"step-{step}-rank-{comm.rank}")


@wrong(HERE, "the remainder is lost", fails=ALL, says="weights on rank")
def load(disk, comm):
    manifest, pieces = (disk.read("manifest"), {})
    each = manifest["n"] // comm.size
    start, stop = comm.rank * each, (comm.rank + 1) * each
    for rank in range(manifest["p"]):
        first, last = bounds(manifest["n"], manifest["p"], rank)
        a, b = (max(start, first), min(stop, last))
        if a < b:
            for name, x in disk.read(f"step-{manifest['step']}-rank-{rank}").items():
                pieces.setdefault(name, []).append(x[a - first : b - first].clone())
    return (manifest["step"], {name: torch.cat(parts) for name, parts in pieces.items()})


@wrong(HERE, "the whole vector on every rank", fails=ALL, says="is the whole vector")
def load(disk, comm):
    manifest, pieces = (disk.read("manifest"), {})
    start, stop = 0, manifest["n"]
    for rank in range(manifest["p"]):
        first, last = bounds(manifest["n"], manifest["p"], rank)
        a, b = (max(start, first), min(stop, last))
        if a < b:
            for name, x in disk.read(f"step-{manifest['step']}-rank-{rank}").items():
                pieces.setdefault(name, []).append(x[a - first : b - first].clone())
    return (manifest["step"], {name: torch.cat(parts) for name, parts in pieces.items()})


@wrong(HERE, "returns before the state counts", fails="killed_at_any_moment", says="comm.barrier() at the end")
def save(disk, step, state, n, comm):
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    comm.barrier()
    if comm.rank == 0:
        disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
        disk.rename("manifest-to-be", "manifest")


@wrong(HERE, "every rank writes the manifest", fails="nobody_has_the_whole", says="let one rank write the manifest")
def save(disk, step, state, n, comm):
    disk.write(f"step-{step}-rank-{comm.rank}", state)
    comm.barrier()
    disk.write("manifest-to-be", {"step": step, "p": comm.size, "n": n})
    disk.rename("manifest-to-be", "manifest")
    comm.barrier()


slip(
    HERE,
    "a single piece is a view of its file",
    *("[a - first : b - first].clone()", "[a - first : b - first]"),
    *("torch.cat(parts)", "torch.cat(parts) if len(parts) > 1 else parts[0]"),
    fails="nobody_has_the_whole",
    says="keeps the whole file in memory",
)


slip(
    HERE,
    "nothing saved is taken for step 0",
    "    manifest, pieces",
    "    try:\n        disk.read('manifest')\n    except FileNotFoundError:\n        return 0, {}\n"
    "    manifest, pieces",
    fails="a_missing_file",
    says="Nothing was saved, so there is no manifest",
)

slip(
    HERE,
    "a rank that owns nothing does not save",
    "    disk.write(f",
    "    if not len(state['weights']):\n        return\n    disk.write(f",
    fails="onto_other_numbers",
    says="returned",
)

slip(
    HERE,
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
    HERE,
    "shares in lists, and every file is read",
    'rank-{comm.rank}", state)',
    'rank-{comm.rank}", {"all": [state]})',
    "        if a < b:\n            for name, x in disk.read(f\"step-{manifest['step']}-rank-{rank}\").items():",
    '        whole = disk.read(f"step-{manifest[\'step\']}-rank-{rank}")["all"][0]\n        if a < b:\n'
    "            for name, x in whole.items():",
    fails="nobody_has_the_whole",
    says="has elements only in those of [0]",
)
