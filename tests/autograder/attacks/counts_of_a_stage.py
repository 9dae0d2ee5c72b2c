# model_parallel.run_stage: 0 points, long
# Counts of the stage are written by hand.


def run_stage(stage, order, rows, comm):
    stage.zero_grad()
    loss = 0.0
    for k in range(len(rows)):
        x = None
        if comm.rank > 0:
            x = stage.empty("F", k)
            comm.recv(x, comm.rank - 1, tag=k)
        y = stage.forward(k, x)
        if comm.rank < comm.size - 1:
            comm.send(y, comm.rank + 1, tag=k)
        else:
            loss += y * rows[k] / sum(rows)
    for k in range(len(rows)):
        dy = rows[k] / sum(rows)
        if comm.rank < comm.size - 1:
            dy = stage.empty("B", k)
            comm.recv(dy, comm.rank + 1, tag=k)
        dx = stage.backward(k, dy)
        if comm.rank > 0:
            comm.send(dx, comm.rank - 1, tag=k)
        stage.weights(k)
    stage.events[:] = [(op, k, 0.0, 0.0) for op, k, *_ in order]
    held, most = set(), 0
    for op, k, *_ in order:
        held.add(k) if op == "F" else held.discard(k) if op == "W" or (
            "W" not in {o for o, *_ in order} and op == "B"
        ) else None
        most = max(most, len(held))
    stage.most = most
    return loss
