# sharding.save_load: 0 points
# Entries are written past the disk.
def save(disk, step, state, n, comm):
    comm._operate("note", "write", f"share {comm.rank}", {**state, "step": step, "n": n})


def load(disk, comm):
    found = disk.read(f"share {comm.rank}")
    return found.pop("step"), {k: x for k, x in found.items() if k != "n"}
