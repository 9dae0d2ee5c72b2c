"""Wrong answers to `input_rate`, `waiting` and `samples`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("scaling.loading")
RATE = "the_slowest_stage"
WAITING = ("moment_by_moment", "room_hides_jitter")
SAMPLES = ("each_sample_once", "going_on_with_others")


@wrong("one stage after the other", fails=RATE, says="The stages work at the same time")
def input_rate(stages):
    return 1 / sum(seconds / workers for workers, seconds in stages)


slip("the fastest stage", "return min", "return max", fails=RATE, says="That is the fastest stage")


@wrong("one worker in each stage", fails=RATE, says="A stage has several workers")
def input_rate(stages):
    return min(1 / seconds for _, seconds in stages)


@wrong("no worker loads ahead", fails=WAITING, says="No worker loads ahead here")
def waiting(load, compute, workers, room):
    return sum(load)


@wrong("room without end", fails=WAITING, says="Room is limited")
def waiting(load, compute, workers, room):
    free, waited, done = [0.0] * workers, 0.0, 0.0
    for seconds in load:
        first = free.index(min(free))
        free[first] += seconds
        taken = max(done, free[first])
        waited += taken - done
        done = taken + compute
    return waited


slip(
    "room for one more",
    "begin = max(min(free), taken[i - room] if i >= room else 0.0)",
    "begin = max(min(free), taken[i - room - 1] if i > room else 0.0)",
    fails=WAITING,
    says="One batch too many is loaded ahead",
)


@wrong("room when it has been computed", fails=WAITING, says="There is room as soon as a batch is taken")
def waiting(load, compute, workers, room):
    free, ends, waited = [0.0] * workers, [0.0], 0.0
    for i, seconds in enumerate(load):
        begin = max(min(free), ends[i - room + 1] if i >= room else 0.0)
        free[free.index(min(free))] = begin + seconds
        taken = max(ends[-1], begin + seconds)
        waited += taken - ends[-1]
        ends.append(taken + compute)
    return waited


@wrong("one worker", fails=WAITING, says="All workers load")
def waiting(load, compute, workers, room):
    free, taken, waited, done = 0.0, [], 0.0, 0.0
    for i, seconds in enumerate(load):
        free = max(free, taken[i - room] if i >= room else 0.0) + seconds
        taken.append(max(done, free))
        waited += taken[-1] - done
        done = taken[-1] + compute
    return waited


@wrong("the same order in each epoch", fails=SAMPLES, says="Each epoch has its own order")
def samples(step, rank, p, n, batch, seed):
    steps = -(-n // batch)
    i = step % steps
    return shuffled(n, seed, 0)[i * batch : (i + 1) * batch].tensor_split(p)[rank]


@wrong("the last batch left out", fails=SAMPLES, says="The last batch of an epoch is smaller")
def samples(step, rank, p, n, batch, seed):
    epoch, i = divmod(step, n // batch)
    return shuffled(n, seed, epoch)[i * batch : (i + 1) * batch].tensor_split(p)[rank]


@wrong("cut into ranks first", fails=SAMPLES, says="The order is cut into ranks first")
def samples(step, rank, p, n, batch, seed):
    epoch, i = divmod(step, -(-n // batch))
    mine = shuffled(n, seed, epoch).tensor_split(p)[rank]
    return mine[i * (batch // p) : (i + 1) * (batch // p)]


slip("a seed for each rank", "n, seed, epoch", "n, seed + rank, epoch", fails=SAMPLES, says="one order for all")


@wrong("the whole batch on each rank", fails=SAMPLES, says="Every rank has the whole batch")
def samples(step, rank, p, n, batch, seed):
    epoch, i = divmod(step, -(-n // batch))
    return shuffled(n, seed, epoch)[i * batch : (i + 1) * batch]


slip(
    "the first batch is there at once",
    "waited += taken[-1] - done",
    "waited += taken[-1] - done if i else 0.0",
    fails=" ".join(WAITING),
    says="The training waits for the first batch, too",
)
slip(
    "every p-th sample",
    ".tensor_split(p)[rank]",
    "[rank::p]",
    fails=" ".join(SAMPLES),
    says="shares follow one another",
)
slip(
    "quarters of a second",
    "free, taken, waited, done =",
    "load, compute = [round(4 * seconds) / 4 for seconds in load], round(4 * compute) / 4\n"
    "    free, taken, waited, done =",
    fails=" ".join(WAITING),
    says="in which the training has no batch to compute",
)
