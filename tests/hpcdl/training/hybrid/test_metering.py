"""Bytes by kind: each axis of a mesh sends its own, and both ends of a message give it the same name."""

from threading import Thread

import pytest
import torch

from hpcdl.collectives import ring_all_reduce
from hpcdl.comm import Group, TracingComm, simulate
from hpcdl.training import Configuration
from hpcdl.training.hybrid.dry import dry_step
from hpcdl.training.hybrid.metering import KINDS, Meter, MeteredComm


@pytest.mark.parametrize(
    ("mesh", "sharding", "kinds"),
    [
        ((1, 1, 1, 1), 0, []),
        ((2, 1, 1, 1), 0, ["gradients"]),
        ((2, 1, 1, 1), 1, ["gradients", "parameters"]),
        ((2, 1, 1, 1), 3, ["gradients", "parameters"]),
        ((1, 2, 1, 1), 0, ["activations"]),
        ((1, 1, 2, 1), 0, ["tensor"]),
        ((1, 1, 1, 2), 0, ["gradients", "sequence"]),
    ],
)
def test_each_axis_sends_its_own_kind(mesh, sharding, kinds):
    """Ranks of any mesh also agree on loss and norm."""
    record = dry_step(Configuration(model="gpt", mesh=mesh, sharding=sharding, batch=4), 0)
    control = ["control"] if mesh != (1, 1, 1, 1) else []
    assert [kind for kind in KINDS if record[f"{kind}_bytes"]] == kinds + control


def test_a_label_passes_through_groups_and_backgrounds():
    def rank(comm):
        metered = MeteredComm(comm)
        group = Group(TracingComm(metered), [2, 0, 1])
        ring_all_reduce(torch.ones(3), group.labelled("gradients"))
        background = group.background()
        background.start(lambda inside: ring_all_reduce(torch.ones(6), inside.labelled("parameters")))
        background.wait()
        background.close()
        return metered.meter.nbytes

    for nbytes in simulate(rank, 3).results:
        assert nbytes["gradients"] == 4 * 4
        assert nbytes["parameters"] == 4 * 8
        assert nbytes["control"] > 0, "ranks agree on the background's channel"


def test_a_label_needs_no_meter():
    def rank(comm):
        group = Group(comm, [0, 1])
        return group.labelled("gradients") is group

    assert simulate(rank, 2).results == [True, True]


def test_both_ends_of_a_message_call_it_the_same():
    """Several messages with one tag, exchanges among them, and a background with the same tag."""

    def rank(comm):
        noted = []
        metered = MeteredComm(comm)
        metered.meter.note = lambda name, start, end, **more: noted.append((name, more))
        other = 1 - comm.rank
        x, y, z = torch.zeros(2), torch.zeros(2), torch.zeros(2)
        requests = [metered.irecv(y, other, 3), metered.isend(x, other, 3)]
        for request in requests:
            request.wait()
        metered.sendrecv(x, other, y, other, 3)
        metered.sendrecv_add(x, other, y, other, z, tag=3)
        metered.sendrecv_add(x, other, y, other, z, tag=3, back=True)
        background = metered.background()
        background.start(lambda inside: inside.sendrecv(x, other, y, other, 3))
        background.wait()
        background.close()
        return [(name, more["pair"]) for name, more in noted if name != "wait"]

    pairs = simulate(rank, 2).results
    for sender, receiver in ((0, 1), (1, 0)):
        sent = [pair for name, pair in pairs[sender] if name == "message"]
        assert len(set(sent)) == len(sent) == 6
        assert sorted(sent) == sorted(pair for name, pair in pairs[receiver] if name == "received")


def test_threads_lose_no_bytes():
    """A thread that is stopped between reading a count and writing it would lose the other's messages."""
    meter, threads = Meter(lambda: 0.0), []

    class Slow:
        """A message whose size takes as long as another thread's whole turn."""

        @property
        def nbytes(self):
            if not threads:
                threads.append(Thread(target=lambda: meter.sent(torch.zeros(1), "control")))
                threads[0].start()
                threads[0].join(0.2)
            return 4

    meter.sent(Slow(), "control")
    threads[0].join()
    assert (meter.nbytes["control"], meter.messages) == (8, 2)
