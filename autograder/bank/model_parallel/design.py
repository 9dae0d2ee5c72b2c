"""Wrong answers to `design`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("model_parallel.design")


ALL = ("a_schedule", "within_the_cap", "beats_1f1b", "uses_more_memory", "uses_little_memory")
CAP = ALL[1:]
BUBBLES = ALL[2:]


@wrong("B and W are one op", fails=ALL, says="lacks ('W', 0, 0)")
def design(p, m, f, b, w, cap):
    return one_f_one_b(p, m)


@wrong("GPipe, whatever the cap is", fails=CAP, says="and the cap is")
def design(p, m, f, b, w, cap):
    return [[(op, k, 0) for op in "FBW" for k in range(m)] for _ in range(p)]


@wrong("all W at the end", fails=CAP, says="do a W before the F that would be too many")
def design(p, m, f, b, w, cap):
    return [order + [("W", k, 0) for k in range(m)] for order in one_f_one_b(p, m)]


@wrong("ZB-H1 for every cap", fails=CAP, says="and ZB-H1 has")
def design(p, m, f, b, w, cap):
    return zb_h1(p, m)


slip(
    "ZB-H2 for every cap",
    '    forwards, backwards = [("F", k, 0) for k in range(m)], [("B", k, 0) for k in range(m)]\n'
    "    slope = min(max((cap - 1) / max(p - 1, 1), 1.0), 2.0)  # 1: ZB-H1's warm-ups, 2: those of ZB-H2\n",
    "",
    "warmup, order, waiting = min(cap, 1 + int(slope * (p - 1 - i))), [], []\n"
    "        for op in in_turn(forwards, backwards, warmup):",
    "order, waiting = [], []\n"
    '        forwards, backwards = ([(op, k, 0) for k in range(m)] for op in "FB")\n'
    "        for op in in_turn(forwards, backwards, 2 * (p - i) - 1):",
    'waiting.append(("W", op[1], 0))\n                if len(waiting) > cap - warmup:',
    'waiting.append(("W", *op[1:]))\n                if len(waiting) > 2 * i:',
    fails=("within_the_cap", "beats_1f1b", "uses_little_memory"),
    says="and the cap is",
)


@wrong("W always right after B", fails="uses_more_memory", says="and ZB-H1 has")
def design(p, m, f, b, w, cap):
    forwards, backwards = ([(op, k, 0) for k in range(m)] for op in "FB")
    plain = [in_turn(forwards, backwards, min(cap, p - i)) for i in range(p)]
    return [[new for op in order for new in ((op, ("W", *op[1:])) if op[0] == "B" else (op,))] for order in plain]


@wrong("one microbatch at a time", fails=CAP, says="and 1F1B has")
def design(p, m, f, b, w, cap):
    return [[(op, k, 0) for k in range(m) for op in "FBW"] for _ in range(p)]


@wrong("stages in opposite orders", fails=ALL, says="no stage can continue")
def design(p, m, f, b, w, cap):
    orders = []
    for i in range(p):
        order = []
        for k in range(m) if i % 2 == 0 else reversed(range(m)):
            order += [("F", k, 0), ("B", k, 0), ("W", k, 0)]
        orders.append(order)
    return orders


@wrong("forgets the last W", fails=ALL, says="is never done on this stage")
def design(p, m, f, b, w, cap):
    orders = []
    for i, plain in enumerate(one_f_one_b(p, m)):
        order, waiting = [], []
        for op in plain:
            order.append(op)
            if op[0] == "B":
                waiting.append(("W", *op[1:]))
                if len(waiting) > i:
                    order.append(waiting.pop(0))
        orders.append(order)
    return orders


@wrong("one microbatch too many", fails=CAP, says="do a W before the F")
def design(p, m, f, b, w, cap):
    orders = []
    for i in range(p):
        warmup = min(cap + 1, 1 + 2 * (p - 1 - i))
        order, waiting = [], []
        forwards, backwards = ([(op, k, 0) for k in range(m)] for op in "FB")
        for op in in_turn(forwards, backwards, warmup):
            order.append(op)
            if op[0] == "B":
                waiting.append(("W", *op[1:]))
                if len(waiting) > cap + 1 - warmup:
                    order.append(waiting.pop(0))
        orders.append(order + waiting)
    return orders


@wrong("every stage as the first one", fails=BUBBLES, says="yours must be smaller")
def design(p, m, f, b, w, cap):
    forwards, backwards = ([(op, k, 0) for k in range(m)] for op in "FB")
    order = []
    for op in in_turn(forwards, backwards, min(cap, p)):
        order += [op, ("W", *op[1:])] if op[0] == "B" else [op]
    return [order] * p


@wrong("one order instead of one for each stage", fails=ALL, says="one of these is (")
def design(p, m, f, b, w, cap):
    return [op for order in zb_h1(p, m) for op in order]
