"""What `observe` reports of right and wrong scripts, on simulated ranks."""

from hpcdl.collectives import ring_all_reduce
from hpcdl.training.observed import Observed, observe


def step(model, optimizer, loss, comm) -> None:
    optimizer.zero_grad()
    loss.backward()
    for param in model.parameters():
        ring_all_reduce(param.grad, comm)
    optimizer.step()


def plain(model, optimizer, loss_sum, batches, comm):
    for chosen in batches:
        step(model, optimizer, loss_sum(chosen[comm.rank :: comm.size]) / len(chosen), comm)


def by_local_rank(env, model, optimizer, loss_sum, batches, comm):
    for chosen in batches:
        step(model, optimizer, loss_sum(chosen[int(env["LOCAL_RANK"]) :: comm.size]) / len(chosen), comm)


def in_place(model, optimizer, loss_sum, batches, every, disk, comm):
    start = 0
    try:
        state = disk.read("state")
        model.load_state_dict(state["model"])
        start = state["step"]
    except FileNotFoundError:
        pass
    for number in range(start, len(batches)):
        plain(model, optimizer, loss_sum, batches[number : number + 1], comm)
        if (number + 1) % every == 0 and comm.rank == 0:
            disk.write("state", {"model": model.state_dict(), "step": number + 1})


def by_renaming(model, optimizer, loss_sum, batches, every, disk, comm):
    class Renaming:
        read = staticmethod(disk.read)

        def write(self, name, state):
            disk.write("new", state)
            disk.rename("new", name)

    in_place(model, optimizer, loss_sum, batches, every, Renaming(), comm)


def rank_0_alone(model, optimizer, loss_sum, batches, comm):
    for chosen in batches:
        loss = loss_sum(chosen[comm.rank :: comm.size]) / len(chosen)
        if comm.rank == 0:
            ring_all_reduce(loss.detach().reshape(1).clone(), comm)
        step(model, optimizer, loss, comm)


def difference(report: str) -> float:
    return float(report.partition("one process by ")[2].split()[0])


def test_right_script_has_the_weights_of_one_process():
    assert difference(observe(plain)) < 1e-14
    asked = Observed(plain, 4, 2).asked(0)
    assert len({i for mine in asked for i in mine}) == sum(map(len, asked)) == 8


def test_local_rank_loses_half_of_a_batch():
    assert difference(observe(by_local_rank)) > 1e-3
    assert difference(observe(by_local_rank, p=2)) < 1e-14  # on one machine it is right
    asked = Observed(by_local_rank, 4, 2).asked(0)
    assert len({i for mine in asked for i in mine}) == 4


def test_kill_loses_a_file_written_in_place():
    assert observe(in_place).count("'state' is half a file") == 2
    report = observe(by_renaming)
    assert "killed during write 1: starts again at step 0" in report
    assert "killed during write 2: starts again at step 2" in report


def test_collective_of_one_rank_is_an_error():
    assert "both sides need the same dtype and number of elements" in observe(rank_0_alone)
