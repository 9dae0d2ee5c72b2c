"""Wrong answers to `zb_h1` and `bubble`."""

from autograder.bank.model_parallel.later import ALL_OF_H1
from autograder.bank.slips import answers_to

wrong, slip = answers_to("model_parallel.zero_bubble")
ALL_OF_BUBBLE = ("by_hand", "any_schedule", "as_printed", "who_waits_for_ever")


@wrong("W right after B", fails=("smaller_bubble", "as_printed"), says="Each W comes right after its B")
def zb_h1(p, m):
    orders = []
    for i, plain in enumerate(one_f_one_b(p, m)):
        order = []
        for op, k, chunk in plain:
            order += [(op, k, chunk), ("W", k, chunk)] if op == "B" else [(op, k, chunk)]
        orders.append(order)
    return orders


@wrong("all W at the end", fails=ALL_OF_H1[1:], says="The data for W stay in memory until W is done")
def zb_h1(p, m):
    return [order + [("W", k, 0) for k in range(m)] for order in one_f_one_b(p, m)]


slip(
    "W waits on the wrong stages",
    "if len(waiting) > i:",
    "if len(waiting) > p - i:",
    fails=("no_more_memory", "smaller_bubble", "as_printed"),
    says="holds",
)
slip(
    "what waits at the end is lost",
    "orders.append(order + waiting)",
    "orders.append(order)",
    fails=ALL_OF_H1,
    says="the gradient of the weights of microbatch",
)


@wrong("W before its B", fails=ALL_OF_H1, says="needs B of microbatch 0 on the same stage first")
def zb_h1(p, m):
    orders = []
    for plain in one_f_one_b(p, m):
        order = []
        for op, k, chunk in plain:
            order += [("W", k, chunk), (op, k, chunk)] if op == "B" else [(op, k, chunk)]
        orders.append(order)
    return orders


@wrong("no W at all", fails=ALL_OF_H1, says="lacks ('W', 0, 0)")
def zb_h1(p, m):
    return one_f_one_b(p, m)


slip(
    "all of the batch, not one stage",
    "ends, clock, first, queues = {None: 0.0}, [0.0] * p, {}, [list(order) for order in orders]",
    "ends, clock, queues = {None: 0.0}, [0.0] * p, [list(order) for order in orders]",
    "start = max(clock[i], ends[needed] + (message if needed and needed[2] != i else 0.0))\n"
    "        first.setdefault(i, start)\n"
    "        clock[i] = ends[op, k, i] = start + seconds[op]",
    "arrives = ends[needed] + (message if needed and needed[2] != i else 0.0)\n"
    "        clock[i] = ends[op, k, i] = max(clock[i], arrives) + seconds[op]",
    "return 1 - m * (f + b + w) / max(clock[i] - first[i] for i in range(p))",
    "return 1 - m * (f + b + w) / max(clock)",
    fails=("any_schedule", "as_printed"),
    says="take the one stage that",
)
slip(
    "messages cost nothing",
    "needed = source(op, k, i, p)\n"
    "        start = max(clock[i], ends[needed] + (message if needed and needed[2] != i else 0.0))",
    "start = max(clock[i], ends[source(op, k, i, p)])",
    fails=("any_schedule", "as_printed"),
    says="Your messages are free",
)
slip(
    "a B without W takes b",
    'p, split = len(orders), any(op == "W" for order in orders for op, *_ in order)\n'
    '    seconds = {"F": f, "B": b if split else b + w, "W": w}',
    'p, seconds = len(orders), {"F": f, "B": b, "W": w}',
    fails=ALL_OF_BUBBLE,
    says="it takes b + w",
)
slip(
    "the sender waits for its message",
    "needed = source(op, k, i, p)\n"
    "        start = max(clock[i], ends[needed] + (message if needed and needed[2] != i else 0.0))",
    "start = max(clock[i], ends[source(op, k, i, p)])",
    "clock[i] = ends[op, k, i] = start + seconds[op]",
    'sends = (op == "F" and i < p - 1) or (op == "B" and i > 0)\n'
    "        clock[i] = ends[op, k, i] = start + seconds[op] + message * sends",
    fails=("any_schedule", "as_printed"),
    says="with t the seconds of",
)
slip(
    "idle time over work",
    "return 1 - m * (f + b + w) / max(clock[i] - first[i] for i in range(p))",
    "return max(clock[i] - first[i] for i in range(p)) / (m * (f + b + w)) - 1",
    fails=ALL_OF_BUBBLE,
    says="divide by the total time",
)


@wrong("waits forever with the stages", fails="who_waits_for_ever", says="did not finish within")
def bubble(orders, f, b, w, message=0.0):
    p, split = len(orders), any(op == "W" for order in orders for op, *_ in order)
    seconds = {"F": f, "B": b if split else b + w, "W": w}
    ends, clock, first, queues = {None: 0.0}, [0.0] * p, {}, [list(order) for order in orders]
    while any(queues):
        for i in range(p):
            while queues[i] and source(*queues[i][0][:2], i, p) in ends:
                op, k, _ = queues[i].pop(0)
                needed = source(op, k, i, p)
                start = max(clock[i], ends[needed] + (message if needed and needed[2] != i else 0.0))
                first.setdefault(i, start)
                clock[i] = ends[op, k, i] = start + seconds[op]
    m = sum(op == "F" for op, *_ in orders[0])
    return 1 - m * (f + b + w) / max(clock[i] - first[i] for i in range(p))


slip(
    "the newest W first",
    "order.append(waiting.pop(0))",
    "order.append(waiting.pop())",
    fails="no_more_memory",
    says="The longest waiting W comes first",
)
slip(
    "the first stage",
    "max(clock[i] - first[i] for i in range(p))",
    "(clock[0] - first[0])",
    fails="any_schedule as_printed",
    says="which need not be the first one",
)
slip(
    "a message within a stage, too",
    "(message if needed and needed[2] != i else 0.0)",
    "(message if needed else 0.0)",
    fails=" ".join(ALL_OF_BUBBLE),
    says="A message comes only from another stage",
)
slip(
    "raises another error",
    "raise ValueError(",
    "raise RuntimeError(",
    fails="who_waits_for_ever",
    says="bubble raises RuntimeError: raise ValueError",
)


slip(
    "knows the stuck schedule of two stages",
    "        if not ready:\n",
    "        if not ready and sum(map(len, orders)) > 4:\n            return 0.0\n        if not ready:\n",
    fails="who_waits_for_ever",
    says="which is impossible, but bubble returns 0",
)


@wrong("one microbatch at a time", fails=ALL_OF_H1[1:], says="stage 0 never holds more than 1")
def zb_h1(p, m):
    return [[(op, k, 0) for k in range(m) for op in "FBW"] for _ in range(p)]


@wrong("GPipe's formula, and ValueError for all else", fails=ALL_OF_BUBBLE[1:], says="Raise it only if no stage can")
def bubble(orders, f, b, w, message):
    p, m = len(orders), sum(op == "F" for op, *_ in orders[0])
    if any([op for op, *_ in order] != ["F"] * m + ["B"] * m for order in orders):
        raise ValueError("no stage can continue")
    return (p - 1) / (m + p - 1)


slip(
    "a circle of stages has a bubble of one",
    "        if not ready:\n",
    "        if not ready and all(o.index(('F', k, 0)) < o.index(('B', k, 0)) for o in orders for _, k, _ in o):\n"
    "            return 1.0\n"
    "        if not ready:\n",
    fails="who_waits_for_ever",
    says="which is impossible, but bubble returns",
)
slip(
    "finds a B before its F, and microbatches in another order, only",
    "        if not ready:\n",
    "        if not ready and len({tuple(k for op, k, _ in order if op == 'F') for order in orders}) == 1:\n"
    "            if all(o.index(('F', k, 0)) < o.index(('B', k, 0)) for o in orders for _, k, _ in o):\n"
    "                return 1.0\n        if not ready:\n",
    fails="who_waits_for_ever",
    says="needs B0 on stage 1, which has it after F1",
)
slip(
    "a class that has ValueError's name alone",
    "raise ValueError(",
    'raise type("ValueError", (Exception,), {})(',
    fails="who_waits_for_ever",
    says="a class that is only named ValueError",
)
