"""Wrong answers to `backward`."""

from autograder.authoring import wrong


@wrong(
    "backprop.backward",
    "overwrites for accumulates",
    fails=(
        "a_reused_node_accumulates",
        "the_root_and_what_lies_between",
        "a_node_waits_for_its_children",
        "each_node_once",
        "a_second_sweep",
    ),
    says="The last path overwrote the others",
)
def backward(value):
    nodes, waiting = {value}, [value]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in nodes:
                nodes.add(parent)
                waiting.append(parent)
    value.grad = 1.0
    for node in sorted(nodes, key=lambda node: -node.index):
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad = slope * node.grad


@wrong("backprop.backward", "recursion", fails="a_long_chain", says="recursion")
def backward(value):
    nodes = set()

    def visit(node):
        if node not in nodes:
            nodes.add(node)
            for parent in node.parents:
                visit(parent)

    visit(value)
    for node in nodes:
        node.grad = 0.0
    value.grad = 1.0
    for node in sorted(nodes, key=lambda node: -node.index):
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += slope * node.grad


@wrong(
    "backprop.backward", "once for each path", fails=("each_node_once", "a_second_sweep"), says="did not finish within"
)
def backward(value):
    value.grad, waiting = 1.0, [(value, 1.0)]
    while waiting:
        node, passed = waiting.pop()
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += slope * passed
            waiting.append((parent, slope * passed))


@wrong(
    "backprop.backward",
    "passes on before all paths have arrived",
    fails="a_node_waits_for_its_children",
    says="u passed on its gradient before all paths to it had arrived",
)
def backward(value):
    nodes, waiting = {value}, [value]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in nodes:
                nodes.add(parent)
                waiting.append(parent)
    for node in nodes:
        node.grad = 0.0
    value.grad, seen, waiting = 1.0, {value}, [value]
    while waiting:
        node = waiting.pop(0)
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += slope * node.grad
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)


@wrong(
    "backprop.backward",
    "adds to the sweep before",
    fails="a_second_sweep",
    says="the second pass added to the first one",
)
def backward(value):
    nodes, waiting = {value}, [value]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in nodes:
                nodes.add(parent)
                waiting.append(parent)
    value.grad = 1.0
    for node in sorted(nodes, key=lambda node: -node.index):
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += slope * node.grad


@wrong(
    "backprop.backward",
    "from the smallest index to the largest",
    fails=(
        "the_chain_rule",
        "a_reused_node_accumulates",
        "the_root_and_what_lies_between",
        "a_node_waits_for_its_children",
        "each_node_once",
        "a_second_sweep",
        "a_long_chain",
    ),
    says="and x.grad is 0, expected 15",
)
def backward(value):
    nodes, waiting = [value], [value]
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in nodes:
                nodes.append(parent)
                waiting.append(parent)
    for node in nodes:
        node.grad = 0.0
    value.grad = 1.0
    for node in sorted(nodes, key=lambda node: node.index):
        for parent, slope in zip(node.parents, node.slopes, strict=True):
            parent.grad += slope * node.grad
