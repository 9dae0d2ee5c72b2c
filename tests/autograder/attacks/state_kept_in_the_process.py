# sharding.save_load: 0 points
# Nothing but the step is on the disk.
STATES = {}


def save(disk, step, state, n, comm):
    STATES[comm.rank] = step, {name: x.clone() for name, x in state.items()}
    if comm.rank == 0:
        disk.write("manifest", {"step": step})
    comm.barrier()


def load(disk, comm):
    disk.read("manifest")
    return STATES[comm.rank]
