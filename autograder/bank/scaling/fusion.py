"""Wrong answers to `wfbp` and `fuse`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("scaling.fusion")
USED = tuple(f"prediction.{check}" for check in ("parts_of_an_iteration", "one_rank_and_many", "published"))
WFBP = ("one_message_at_a_time", *USED)
FUSE = ("the_best_of_all", "two_hundred_layers", *USED)


@wrong("sent as soon as the link is free", fails=WFBP, says="before its bucket is ready")
def wfbp(buckets, alpha, beta):
    times, free = [], 0.0
    for _, nbytes in buckets:
        times.append((free, free + alpha + beta * nbytes))
        free = times[-1][1]
    return times


@wrong("a link for each message", fails=WFBP, says="there is only one link")
def wfbp(buckets, alpha, beta):
    return [(ready, ready + alpha + beta * nbytes) for ready, nbytes in buckets]


@wrong("after the backward pass", fails=WFBP, says="messages do not wait for its end")
def wfbp(buckets, alpha, beta):
    times, free = [], buckets[-1][0]
    for _, nbytes in buckets:
        times.append((free, free + alpha + beta * nbytes))
        free = times[-1][1]
    return times


@wrong("alpha once", fails=WFBP, says="Each message pays its alpha")
def wfbp(buckets, alpha, beta):
    times, free = [], 0.0
    for i, (ready, nbytes) in enumerate(buckets):
        begin = max(ready, free)
        free = begin + (0 if i else alpha) + beta * nbytes
        times.append((begin, free))
    return times


@wrong("layer by layer", fails=FUSE, says="Each gradient goes alone")
def fuse(gradients, alpha, beta):
    return list(gradients)


@wrong("all in one", fails=FUSE, says="All gradients are in one bucket")
def fuse(gradients, alpha, beta):
    return [(gradients[-1][0], sum(nbytes for _, nbytes in gradients))]


@wrong("by size alone", fails=FUSE, says="You cut buckets by size")
def fuse(gradients, alpha, beta):
    buckets = []
    for ready, nbytes in gradients:
        if buckets and buckets[-1][1] + nbytes <= 8:
            buckets[-1] = (ready, buckets[-1][1] + nbytes)
        else:
            buckets.append((ready, nbytes))
    return buckets


@wrong("ready with its first gradient", fails=FUSE, says="before its last gradient exists")
def fuse(gradients, alpha, beta):
    return [(gradients[0][0], sum(nbytes for _, nbytes in gradients))]


@wrong("all that is ready when the link is free", fails=FUSE, says="Others end at")
def fuse(gradients, alpha, beta):
    buckets, start, free = [], 0.0, 0.0
    for ready, nbytes in gradients:
        if buckets and ready <= start:
            buckets[-1] = (ready, buckets[-1][1] + nbytes)
        else:
            start = max(free, ready)
            buckets.append((ready, nbytes))
        free = start + alpha + beta * buckets[-1][1]
    return buckets


@wrong("merged while one merge gains something", fails=FUSE, says="Others end at")
def fuse(gradients, alpha, beta):
    buckets, free = [gradients[0]], 0.0
    for ready, nbytes in gradients[1:]:
        before, size = buckets[-1]
        if ready < max(free, before) + alpha:
            buckets[-1] = (ready, size + nbytes)
        else:
            free = max(free, before) + alpha + beta * size
            buckets.append((ready, nbytes))
    return buckets


@wrong("the last gradient forgotten", fails=FUSE, says="in no bucket")
def fuse(gradients, alpha, beta):
    return list(gradients[:-1])


@wrong("all ways tried", fails=("two_hundred_layers", "prediction.published"), says="did not finish within")
def fuse(gradients, alpha, beta):
    if len(gradients) == 1:
        return list(gradients)
    ready, nbytes = gradients[-1]
    apart = fuse(gradients[:-1], alpha, beta) + [(ready, nbytes)]
    joined = fuse(gradients[:-2] + [(ready, gradients[-2][1] + nbytes)], alpha, beta)
    ends = []
    for buckets in (apart, joined):
        free = 0.0
        for ready, nbytes in buckets:
            free = max(free, ready) + alpha + beta * nbytes
        ends.append(free)
    return apart if ends[0] <= ends[1] else joined


slip(
    "a bucket of 24 gradients at most",
    "reversed(range(k))",
    "reversed(range(max(0, k - 24), k))",
    fails="two_hundred_layers",
    says="200 in all",
)
