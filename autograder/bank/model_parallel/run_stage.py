"""Wrong answers to `run_stage`."""

from autograder.authoring import wrong
from autograder.bank.slips import slip

RUN = "model_parallel.run_stage"
ALL = (
    "as_one_machine",
    "unequal_microbatches",
    "b_and_w_apart",
    "the_next_batch",
    "as_fast_as_predicted",
    "no_more_messages_and_memory",
)


@wrong(
    RUN,
    "mean of means, as transformers #34191",
    fails=("unequal_microbatches", "the_next_batch"),
    says="transformers #34191",
)
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += 1 / len(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, 1 / len(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(RUN, "the sum over microbatches", fails=ALL, says="This is the sum of the microbatches' gradients")
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, 1.0 if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(RUN, "only the last microbatch trains, as NeMo-Automodel PR #3530", fails=ALL, says="NeMo-Automodel PR #3530")
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "B" and not split:
            stage.zero_grad()
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(RUN, "the loss is scaled on every stage", fails=ALL, says="You scale the loss on every stage")
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came * rows[k] / sum(rows))
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(RUN, "gradients of the batch before", fails="the_next_batch", says="The previous batch is still included")
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    if not hasattr(comm, "begun"):
        stage.zero_grad()
    comm.begun = True
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(
    RUN,
    "no W where B is both, as DeepSpeed #7270",
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
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    stage.zero_grad()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W":
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(
    RUN,
    "W with each B, whatever the order says",
    fails=("b_and_w_apart", "as_fast_as_predicted"),
    says="but its order has",
)
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    stage.zero_grad()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "B":
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(RUN, "send waits for the neighbour", fails=ALL, says="a deadlock")
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


@wrong(
    RUN, "receives when the input is needed", fails="as_fast_as_predicted", says="post the receives before the first op"
)
def run_stage(stage, order, rows, comm):
    sent, loss = [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        came, neighbour = None, comm.rank + {"F": -1, "B": 1, "W": comm.size}[op]
        if 0 <= neighbour < comm.size:
            came = stage.empty(op, k)
            comm.recv(came, neighbour, tag=k)
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(RUN, "waits for every input first", fails=ALL, says="a deadlock")
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for _, request in posted.values():
        request.wait()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(
    RUN,
    "waits until each message has been received",
    fails="as_fast_as_predicted",
    says="A stage waits where it could compute",
)
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
            sent.pop().wait()
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
                sent.pop().wait()
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(RUN, "the last gradient is never sent", fails=ALL, says="rank 1 returned")
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                if k < len(rows) - 1:
                    sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    return loss


@wrong(
    RUN,
    "all forward passes first, whatever the order",
    fails=("as_fast_as_predicted", "b_and_w_apart", "no_more_messages_and_memory"),
    says="at a time, and its order",
)
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in sorted(order, key=lambda op: "FBW".index(op[0])):
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(RUN, "the last stage's loss is that of its last microbatch", fails=ALL, says="This is the last microbatch's")
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss = stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                sent.append(comm.isend(dx, comm.rank - 1, tag=k))
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in sent:
        request.wait()
    return loss


@wrong(RUN, "of several requests one is waited for, as pytorch #132644", fails=ALL, says="pytorch #132644")
def run_stage(stage, order, rows, comm):
    posted, begun, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        came, request = posted.get((op, k), (None, None))
        batch = [r for r in (request, *begun) if r]
        if batch:
            batch.pop().wait()
        begun = []
        if op == "F" and comm.rank < comm.size - 1:
            begun = [comm.isend(stage.forward(k, came), comm.rank + 1, tag=k)]
        elif op == "F":
            loss += rows[k] / sum(rows) * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, rows[k] / sum(rows) if came is None else came)
            if comm.rank > 0:
                begun = [comm.isend(dx, comm.rank - 1, tag=k)]
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    for request in begun:
        request.wait()
    return loss


@wrong(RUN, "sends without a wait", fails="no_more_messages_and_memory", says="is never waited for")
def run_stage(stage, order, rows, comm):
    posted, loss = post_receives(stage, order, comm), 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        share_of_rows = rows[k] / sum(rows)
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            comm.isend(stage.forward(k, came), comm.rank + 1, tag=k)
        elif op == "F":
            loss += share_of_rows * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, share_of_rows if came is None else came)
            if comm.rank > 0:
                comm.isend(dx, comm.rank - 1, tag=k)
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
    return loss


@wrong(RUN, "weights before the gradient is sent", fails="as_fast_as_predicted", says="before the gradient is sent on")
def run_stage(stage, order, rows, comm):
    posted, sent, loss = post_receives(stage, order, comm), [], 0.0
    split = any(op == "W" for op, *_ in order)
    stage.zero_grad()
    for op, k, _ in order:
        share_of_rows = rows[k] / sum(rows)
        came, request = posted.get((op, k), (None, None))
        if request:
            request.wait()
        if op == "F" and comm.rank < comm.size - 1:
            sent.append(comm.isend(stage.forward(k, came), comm.rank + 1, tag=k))
        elif op == "F":
            loss += share_of_rows * stage.forward(k, came)
        elif op == "B":
            dx = stage.backward(k, share_of_rows if came is None else came)
        if op == "W" or (op == "B" and not split):
            stage.weights(k)
        if op == "B" and comm.rank > 0:
            sent.append(comm.isend(dx, comm.rank - 1, tag=k))
    for request in sent:
        request.wait()
    return loss


slip(
    RUN,
    "messages without a tag",
    ", tag=k)",
    ")",
    fails=" ".join(ALL),
    says="deadlock",
)
slip(
    RUN,
    "nothing on the other stages",
    "return loss",
    "return loss if comm.rank == comm.size - 1 else None",
    fails=" ".join(ALL),
    says="which has no loss",
)
slip(
    RUN,
    "zeros where time and messages are measured",
    "            request.wait()\n        if",
    "            request.wait()\n            came = came * (len(rows) < 8)\n        if",
    fails="as_fast_as_predicted no_more_messages_and_memory",
    says="gradient of weight",
)
