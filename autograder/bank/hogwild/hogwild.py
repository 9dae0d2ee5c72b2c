"""Wrong answers to `overlap` and `hogwild`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("hogwild.hogwild")
OVERLAP = "how_much_edges_overlap"
LOST = "updates_get_lost"
ALL = ("alone", "disjoint_edges_in_any_order", LOST)


@wrong("divided by n", fails=OVERLAP, says="divide by |E|, not by n")
def overlap(edges, n):
    omega = max(len(edge) for edge in edges)
    delta = max(sum(v in edge for edge in edges) for v in range(n)) / len(edges)
    rho = max(sum(bool(set(a) & set(b)) for b in edges) for a in edges) / n
    return omega, delta, rho


@wrong("an edge does not meet itself", fails=OVERLAP, says="An edge meets itself, too")
def overlap(edges, n):
    omega = max(len(edge) for edge in edges)
    delta = max(sum(v in edge for edge in edges) for v in range(n)) / len(edges)
    rho = max(sum(bool(set(a) & set(b)) for b in edges) - 1 for a in edges) / len(edges)
    return omega, delta, rho


@wrong("the mean component", fails=OVERLAP, says="That is the mean over the components")
def overlap(edges, n):
    omega = max(len(edge) for edge in edges)
    delta = sum(sum(v in edge for edge in edges) for v in range(n)) / n / len(edges)
    rho = max(sum(bool(set(a) & set(b)) for b in edges) for a in edges) / len(edges)
    return omega, delta, rho


@wrong("the busiest component for rho", fails=OVERLAP, says="rho counts those that share any component")
def overlap(edges, n):
    omega = max(len(edge) for edge in edges)
    delta = max(sum(v in edge for edge in edges) for v in range(n)) / len(edges)
    return omega, delta, delta


@wrong("the whole edge is written", fails=LOST, says="A store writes only its own component")
def hogwild(w, edges, gradient, lr, schedule):
    w, seen, steps = w.clone(), {}, {}
    for op, k, v in schedule:
        edge = list(edges[k])
        if op == "read":
            seen[k, v] = w[v].clone()
        elif op == "store":
            x = torch.stack([seen[k, u] for u in edge])
            if k not in steps:
                steps[k] = lr * gradient(k, x)
            w[edge] = x - steps[k]
    return w


@wrong("as if adding were one event", fails=LOST, says="An update must get lost here")
def hogwild(w, edges, gradient, lr, schedule):
    w, seen, steps = w.clone(), {}, {}
    for op, k, v in schedule:
        if op == "read":
            seen[k, v] = w[v].clone()
        elif op == "store":
            if k not in steps:
                steps[k] = lr * gradient(k, torch.stack([seen[k, u] for u in edges[k]]))
            w[v] -= steps[k][edges[k].index(v)]
    return w


@wrong("the step from what was read", fails=LOST, says="not from the value of `read`")
def hogwild(w, edges, gradient, lr, schedule):
    w, seen, steps = w.clone(), {}, {}
    for op, k, v in schedule:
        if op == "read":
            seen[k, v] = w[v].clone()
        elif op == "store":
            if k not in steps:
                steps[k] = lr * gradient(k, torch.stack([seen[k, u] for u in edges[k]]))
            w[v] = seen[k, v] - steps[k][edges[k].index(v)]
    return w


@wrong(
    "the gradient of what is there when it is stored",
    fails=ALL,
    says="Compute the gradient from the values that were read",
)
def hogwild(w, edges, gradient, lr, schedule):
    w, loaded = w.clone(), {}
    for op, k, v in schedule:
        if op == "load":
            loaded[k, v] = w[v].clone()
        elif op == "store":
            w[v] = loaded[k, v] - lr * gradient(k, w[list(edges[k])])[edges[k].index(v)]
    return w


slip(
    "a view instead of a copy",
    "w, read, loaded, steps = w.clone(), {}, {}, {}",
    "w, seen, loaded, steps = w.clone(), {}, {}, {}",
    'read[k, v] = w[v].clone()\n        elif op == "load":\n            loaded[k, v] = w[v].clone()',
    'seen[k, v] = w[v].clone()\n        elif op == "load":\n            loaded[k, v] = w[v]',
    "x = torch.stack([read[k, u] for u in edges[k]])\n                steps[k] = lr * gradient(k, x)",
    "steps[k] = lr * gradient(k, torch.stack([seen[k, u] for u in edges[k]]))",
    fails=LOST,
    says="two updates of w[0]",
)
slip(
    "works in the weights it was given",
    "w, read, loaded, steps = w.clone(), {}, {}, {}",
    "read, loaded, steps = {}, {}, {}",
    fails="alone disjoint_edges_in_any_order updates_get_lost",
    says="changed its argument w",
)
slip(
    "components sorted for the gradient",
    "for u in edges[k]])",
    "for u in sorted(edges[k])])",
    fails="alone disjoint_edges_in_any_order updates_get_lost",
    says="w",
)
slip(
    "values in the order of the reads",
    "[read[k, u] for u in edges[k]]",
    "[x for (i, _), x in read.items() if i == k]",
    fails=LOST,
    says="in whatever order the components were read",
)
slip("one register for all updates", "loaded[k, v]", "loaded[v]", fails=LOST, says="Each update has its own register")
slip(
    "one register for each update",
    "loaded[k, v]",
    "loaded[k]",
    fails=ALL[1:],
    says="mixed: w[",
)
slip(
    "weights of float64",
    "w, read, loaded, steps = w.clone(), {}, {}, {}",
    "w, read, loaded, steps = w.clone().double(), {}, {}, {}",
    fails=ALL,
    says="expected float32",
)
slip(
    "keeps views of w",
    "read[k, v] = w[v].clone()",
    "read[k, v] = w[v]",
    "loaded[k, v] = w[v].clone()",
    "loaded[k, v] = w[v]",
    fails=LOST,
    says="Events after the read and the load change what you have kept",
)
slip(
    "keeps views of what it loads", "loaded[k, v] = w[v].clone()", "loaded[k, v] = w[v]", fails=LOST, says="a view of w"
)
slip("keeps views of what it reads", "read[k, v] = w[v].clone()", "read[k, v] = w[v]", fails=LOST, says="a view of w")
