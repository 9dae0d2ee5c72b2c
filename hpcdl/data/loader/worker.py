"""A loader's worker: takes the next task from a pipe that all workers read, fills a slot, and reports in its own pipe.

A thread of the training's process runs `serve`, or a separate process that runs this module as a program. Messages
are a few numbers; samples go through the slots. A worker ends when the tasks' pipe closes, even if the training is
killed.
"""

import mmap
import os
import pickle
import struct
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from hpcdl.data.loader.decoding import require_like
from hpcdl.data.loader.folder import Shards
from hpcdl.data.loader.shard import Sample
from hpcdl.data.loader.slots import DROPPED, NOTES, SHARD, WORKER, SlotLayout

TASK = struct.Struct("<qqq")  # the batch's number, its slot, and how many samples it has
REPLY = struct.Struct("<qdq")  # the batch's number, seconds that it took, and bytes of an error that follow

Decode = Callable[[Sample], Sample]


class LoadJob(NamedTuple):
    """A worker's job: its number, the shards, how to decode a sample (None: as it is), and the slots."""

    worker: int
    shards: Shards
    decode: Decode | None
    layout: SlotLayout


def serve(job: LoadJob, memory: mmap.mmap, tasks: int, replies: int) -> None:
    """Fill slots until the pipe `tasks` ends; an error in one is reported, and the worker continues."""
    # Messages of this length are read and written whole: a pipe's reader takes all of one or nothing of it.
    while len(task := os.read(tasks, TASK.size)) == TASK.size:
        number, slot, count = TASK.unpack(task)
        begin, error = time.perf_counter(), b""
        try:
            fill(job, memory, slot, count)
        except BaseException:  # SystemExit too would end a thread without a word
            error = traceback.format_exc().encode()
        _say(replies, REPLY.pack(number, time.perf_counter() - begin, len(error)) + error)


def fill(job: LoadJob, memory: mmap.mmap, slot: int, count: int) -> None:
    """Read and decode the samples with the numbers in the slot."""
    notes = job.layout.notes(memory, slot)
    notes[WORKER], notes[SHARD] = job.worker, -1
    note, indices = partial(notes.__setitem__, SHARD), notes[NOTES : NOTES + count]
    arrays = job.layout.arrays(memory, slot, count)
    fields = [field for field, _, _ in job.layout.places]
    if job.decode is None and not notes[DROPPED]:
        job.shards.take(indices, arrays, note)
    elif job.decode is not None:
        for k, i in enumerate(indices.tolist()):
            if notes[DROPPED]:
                return
            note(job.shards.shard_of(i))
            sample = job.decode(job.shards[i])
            require_like(sample, fields, i)
            for name, array in arrays.items():
                array[k] = sample[name]


def _say(replies: int, message: bytes) -> None:
    while message:
        message = message[os.write(replies, message) :]


def main() -> None:
    """As a program: `worker.py DESCRIPTOR TASKS REPLIES`, with the job pickled on the standard input."""
    descriptor, tasks, replies = map(int, sys.argv[1:])
    sys.path[:], folder, worker, decode, layout = pickle.load(sys.stdin.buffer)
    job = LoadJob(worker, Shards(folder), pickle.loads(decode), layout)  # which may need the path
    serve(job, mmap.mmap(descriptor, 0), tasks, replies)


if __name__ == "__main__":
    main()
