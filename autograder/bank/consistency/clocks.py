"""Wrong answers to `clocks`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("consistency.clocks")
HELD = ("bulk_synchronous", "stale_synchronous")
ALL = ("bulk_synchronous", "asynchronous", "stale_synchronous", "few")


@wrong("s off by one: one iteration too late", fails=HELD, says="a staleness of one more")
def clocks(seconds, staleness):
    spans = [[] for _ in seconds]
    for k in range(len(seconds[0])):
        earlier = k - staleness - 2
        free = max(mine[earlier][1] for mine in spans) if earlier >= 0 else 0.0
        for mine, times in zip(spans, seconds, strict=True):
            start = max(free, mine[-1][1] if mine else 0.0)
            mine.append((start, start + times[k]))
    return spans


@wrong("s off by one: one iteration too early", fails=("stale_synchronous",), says="a staleness of one less")
def clocks(seconds, staleness):
    spans = [[] for _ in seconds]
    for k in range(len(seconds[0])):
        earlier = k - max(staleness, 1)
        free = max(mine[earlier][1] for mine in spans) if earlier >= 0 else 0.0
        for mine, times in zip(spans, seconds, strict=True):
            start = max(free, mine[-1][1] if mine else 0.0)
            mine.append((start, start + times[k]))
    return spans


@wrong("waits for the fastest", fails=HELD, says="Do you wait for the last of all workers")
def clocks(seconds, staleness):
    spans = [[] for _ in seconds]
    for k in range(len(seconds[0])):
        earlier = k - staleness - 1
        free = min(mine[earlier][1] for mine in spans) if earlier >= 0 else 0.0
        for mine, times in zip(spans, seconds, strict=True):
            start = max(free, mine[-1][1] if mine else 0.0)
            mine.append((start, start + times[k]))
    return spans


@wrong("no worker waits", fails=HELD, says="No worker waits for others here")
def clocks(seconds, staleness):
    spans = []
    for times in seconds:
        mine, time = [], 0.0
        for taken in times:
            mine.append((time, time + taken))
            time += taken
        spans.append(mine)
    return spans


@wrong(
    "a barrier in every iteration", fails=("asynchronous", "stale_synchronous", "few"), says="That is BSP, whatever the"
)
def clocks(seconds, staleness):
    spans, time = [[] for _ in seconds], 0.0
    for k in range(len(seconds[0])):
        for mine, times in zip(spans, seconds, strict=True):
            mine.append((time, time + times[k]))
        time = max(mine[-1][1] for mine in spans)
    return spans


@wrong("does not wait for itself", fails=ALL, says="A worker does one iteration after the other")
def clocks(seconds, staleness):
    return [[(0.0, taken) for taken in times] for times in seconds]


@wrong("how long instead of when it ends", fails=ALL, says="expected from")
def clocks(seconds, staleness):
    spans, ends = [[] for _ in seconds], [[] for _ in seconds]
    for k in range(len(seconds[0])):
        earlier = k - staleness - 1
        free = max(mine[earlier] for mine in ends) if earlier >= 0 else 0.0
        for w, times in enumerate(seconds):
            start = max(free, ends[w][-1] if ends[w] else 0.0)
            spans[w].append((start, times[k]))
            ends[w].append(start + times[k])
    return spans


slip(
    "SSP is BSP",
    "    spans =",
    "    staleness = staleness if staleness == math.inf else 0\n    spans =",
    fails="stale_synchronous few",
    says="That is BSP, whatever the",
)
slip(
    "no worker waits if s is above four",
    "    spans =",
    "    staleness = staleness if staleness <= 4 else math.inf\n    spans =",
    fails="stale_synchronous",
    says="No worker waits for others here",
)
slip(
    "counts in eighths of a second",
    "start + seconds[w][k]",
    "start + round(8 * seconds[w][k]) / 8",
    fails=(*ALL, "few"),
    says="expected from",
)
