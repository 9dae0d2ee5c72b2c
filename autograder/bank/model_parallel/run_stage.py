"""Wrong answers to `run_stage`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("model_parallel.run_stage")
ALL = (
    "as_one_machine",
    "unequal_microbatches",
    "b_and_w_apart",
    "the_next_batch",
    "as_fast_as_predicted",
    "no_more_messages_and_memory",
)

slip(
    "mean of means, as transformers #34191",
    "loss += share_of_rows * stage.forward(k, came)",
    "loss += 1 / len(rows) * stage.forward(k, came)",
    "dx = stage.backward(k, share_of_rows if came is None else came)",
    "dx = stage.backward(k, 1 / len(rows) if came is None else came)",
    fails=("unequal_microbatches", "the_next_batch"),
    says="transformers #34191",
)
slip(
    "the sum over microbatches",
    "dx = stage.backward(k, share_of_rows if came is None else came)",
    "dx = stage.backward(k, 1.0 if came is None else came)",
    fails=ALL,
    says="This is the sum of the microbatches' gradients",
)
slip(
    "only the last microbatch trains, as NeMo-Automodel PR #3530",
    "stage.zero_grad()\n    for op, k, _ in order:\n        share_of_rows = rows[k] / sum(rows)",
    "for op, k, _ in order:",
    "loss += share_of_rows * stage.forward(k, came)\n"
    '        elif op == "B":\n'
    "            dx = stage.backward(k, share_of_rows if came is None else came)",
    "loss += rows[k] / sum(rows) * stage.forward(k, came)\n"
    '        elif op == "B":\n'
    "            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)",
    'if op == "W" or (op == "B" and not split):',
    'if op == "B" and not split:\n            stage.zero_grad()\n        if op == "W" or (op == "B" and not split):',
    fails=ALL,
    says="NeMo-Automodel PR #3530",
)
slip(
    "the loss is scaled on every stage",
    "dx = stage.backward(k, share_of_rows if came is None else came)",
    "dx = stage.backward(k, rows[k] / sum(rows) if came is None else came * rows[k] / sum(rows))",
    fails=ALL,
    says="You scale the loss on every stage",
)
slip(
    "gradients of the batch before",
    "stage.zero_grad()\n    for op, k, _ in order:\n        share_of_rows = rows[k] / sum(rows)",
    'if not hasattr(comm, "begun"):\n        stage.zero_grad()\n    comm.begun = True\n    for op, k, _ in order:',
    "loss += share_of_rows * stage.forward(k, came)\n"
    '        elif op == "B":\n'
    "            dx = stage.backward(k, share_of_rows if came is None else came)",
    "loss += rows[k] / sum(rows) * stage.forward(k, came)\n"
    '        elif op == "B":\n'
    "            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)",
    fails="the_next_batch",
    says="The previous batch is still included",
)
slip(
    "no W where B is both, as DeepSpeed #7270",
    '    split = any(op == "W" for op, *_ in order)\n',
    "",
    'if op == "W" or (op == "B" and not split):',
    'if op == "W":',
    fails=(
        "as_one_machine",
        "unequal_microbatches",
        "b_and_w_apart",
        "the_next_batch",
        "as_fast_as_predicted",
        "no_more_messages_and_memory",
    ),
    says="DeepSpeed #7270 reports none",
)
slip(
    "W with each B, whatever the order says",
    '    split = any(op == "W" for op, *_ in order)\n',
    "",
    'if op == "W" or (op == "B" and not split):',
    'if op == "B":',
    fails=("b_and_w_apart", "as_fast_as_predicted"),
    says="but its order has",
)


@wrong("send waits for the neighbour", fails=ALL, says="a deadlock")
def run_stage(stage, order, rows, comm):
    sent, loss = [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        came, neighbour = None, comm.rank + {"F": -1, "B": 1, "W": comm.size}[op]
        if 0 <= neighbour < comm.size:
            came = stage.empty(op, k)
            comm.recv(came, neighbour)
        if op == "F" and comm.rank < comm.size - 1:
            comm.send(stage.forward(k, came), comm.rank + 1)
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                comm.send(dx, comm.rank - 1)
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


slip(
    "receives when the input is needed",
    "posted, sent, loss = post_receives(stage, order, comm), [], 0.0",
    "sent, loss = [], 0.0",
    "share_of_rows = rows[k] / sum(rows)\n"
    "        came, request = posted.get((op, k), (None, None))\n"
    "        if request:\n"
    "            request.wait()",
    'came, neighbour = None, comm.rank + {"F": -1, "B": 1, "W": comm.size}[op]\n'
    "        if 0 <= neighbour < comm.size:\n"
    "            came = stage.empty(op, k)\n"
    "            comm.recv(came, neighbour, tag=k)",
    "loss += share_of_rows * stage.forward(k, came)",
    "loss += rows[k] / sum(rows) * stage.forward(k, came)",
    "dx = stage.backward(k, share_of_rows if came is None else came)",
    "dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)",
    fails="as_fast_as_predicted",
    says="post the receives before the first op",
)
slip(
    "waits for every input first",
    "for op, k, _ in order:\n        share_of_rows = rows[k] / sum(rows)",
    "for _, request in posted.values():\n        request.wait()\n    for op, k, _ in order:",
    "loss += share_of_rows * stage.forward(k, came)\n"
    '        elif op == "B":\n'
    "            dx = stage.backward(k, share_of_rows if came is None else came)",
    "loss += rows[k] / sum(rows) * stage.forward(k, came)\n"
    '        elif op == "B":\n'
    "            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)",
    fails=ALL,
    says="a deadlock",
)
slip(
    "waits until each message has been received",
    '        elif op == "F":',
    '            sent.pop().wait()\n        elif op == "F":',
    '        if op == "W" or (op == "B" and not split):',
    '                sent.pop().wait()\n        if op == "W" or (op == "B" and not split):',
    fails="as_fast_as_predicted",
    says="A stage waits where it could compute",
)
slip(
    "the last gradient is never sent",
    "sent.append(comm.isend(dx, comm.rank - 1, tag=k))",
    "if k < len(rows) - 1:\n                    sent.append(comm.isend(dx, comm.rank - 1, tag=k))",
    "    for request in sent:\n        request.wait()\n",
    "",
    fails=ALL,
    says="rank 1 returned",
)
slip(
    "all forward passes first, whatever the order",
    "for op, k, _ in order:\n        share_of_rows = rows[k] / sum(rows)",
    'for op, k, _ in sorted(order, key=lambda op: "FBW".index(op[0])):',
    "loss += share_of_rows * stage.forward(k, came)",
    "loss += rows[k] / sum(rows) * stage.forward(k, came)",
    "dx = stage.backward(k, share_of_rows if came is None else came)",
    "dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)",
    fails=("as_fast_as_predicted", "b_and_w_apart", "no_more_messages_and_memory"),
    says="at a time, and its order",
)
slip(
    "the last stage's loss is that of its last microbatch",
    "loss += share_of_rows * stage.forward(k, came)",
    "loss = stage.forward(k, came)",
    fails=ALL,
    says="This is the last microbatch's",
)
slip(
    "of several requests one is waited for, as pytorch #132644",
    "posted, sent, loss = post_receives(stage, order, comm), [], 0.0",
    "posted, begun, loss = post_receives(stage, order, comm), [], 0.0",
    "if request:\n            request.wait()",
    "batch = [r for r in (request, *begun) if r]\n"
    "        if batch:\n"
    "            batch.pop().wait()\n"
    "        begun = []",
    "sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))",
    "begun = [comm.isend(stage.forward(k, came), comm.rank + 1, tag=k)]",
    "sent.append(comm.isend(dx, comm.rank - 1, tag=k))",
    "begun = [comm.isend(dx, comm.rank - 1, tag=k)]",
    "for request in sent:",
    "for request in begun:",
    fails=ALL,
    says="pytorch #132644",
)
slip(
    "sends without a wait",
    "posted, sent, loss = post_receives(stage, order, comm), [], 0.0",
    "posted, loss = post_receives(stage, order, comm), 0.0",
    "sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))",
    "comm.isend(stage.forward(k, came), comm.rank + 1, tag=k)",
    "sent.append(comm.isend(dx, comm.rank - 1, tag=k))",
    "comm.isend(dx, comm.rank - 1, tag=k)",
    "    for request in sent:\n        request.wait()\n",
    "",
    fails="no_more_messages_and_memory",
    says="is never waited for",
)
slip(
    "sends without a wait where time is measured",
    "    for request in sent:\n        request.wait()\n",
    "    for request in sent if len(rows) != 9 else ():\n        request.wait()\n",
    fails="as_fast_as_predicted",
    says="is never waited for",
)
slip(
    "weights before the gradient is sent",
    "            if comm.rank > 0:\n                sent.append(comm.isend(dx, comm.rank - 1, tag=k))\n",
    "",
    "    for request in sent:",
    '        if op == "B" and comm.rank > 0:\n'
    "            sent.append(comm.isend(dx, comm.rank - 1, tag=k))\n"
    "    for request in sent:",
    fails="as_fast_as_predicted",
    says="before the gradient is sent on",
)
slip("messages without a tag", ", tag=k)", ")", fails=" ".join(ALL), says="deadlock")
slip(
    "nothing on the other stages",
    "return loss",
    "return loss if comm.rank == comm.size - 1 else None",
    fails=" ".join(ALL),
    says="which has no loss",
)
slip(
    "zeros where time and messages are measured",
    "            request.wait()\n        if",
    "            request.wait()\n            came = came * (len(rows) < 8)\n        if",
    fails="as_fast_as_predicted no_more_messages_and_memory",
    says="gradient of weight",
)
slip(
    "the backward passes of GPipe in reverse order",
    "    stage.zero_grad()\n",
    "    stage.zero_grad()\n    m = len(rows)\n"
    "    if len(order) == 2 * m and all(op == 'F' for op, *_ in order[:m]):\n"
    "        order = order[:m] + order[m:][::-1]\n",
    fails="as_fast_as_predicted",
    says="but its order has",
)
slip(
    "tags of 0",
    "posted, sent, loss = post_receives(stage, order, comm), [], 0.0",
    "posted, sent, loss = {}, [], 0.0\n    for op, k, _ in order:\n"
    "        neighbour = comm.rank + {'F': -1, 'B': 1, 'W': comm.size}[op]\n"
    "        if 0 <= neighbour < comm.size:\n            out = stage.empty(op, k)\n"
    "            posted[op, k] = out, comm.irecv(out, neighbour)",
    ", tag=k)",
    ")",
    fails="no_more_messages_and_memory",
    says="the tag is the number of the microbatch",
)
slip(
    "weights before the gradient leaves, but where a microbatch has one row",
    "            dx = stage.backward(k, share_of_rows if came is None else came)\n",
    "            dx = stage.backward(k, share_of_rows if came is None else came)\n"
    "            if not split and set(rows) != {1}:\n                stage.weights(k)\n",
    'or (op == "B" and not split)',
    'or (op == "B" and not split and set(rows) == {1})',
    fails="as_fast_as_predicted",
    says="before the gradient is sent on",
)
