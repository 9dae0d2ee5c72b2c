"""Wrong answers to `backward`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("backprop.backward")

slip(
    "overwrites for accumulates",
    "    for node in nodes:\n        node.grad = 0.0\n",
    "",
    "for node in sorted(nodes, key=lambda node: node.index, reverse=True):\n"
    "        for parent, slope in zip(node.parents, node.slopes, strict=True):\n"
    "            parent.grad += slope * node.grad",
    "for node in sorted(nodes, key=lambda node: -node.index):\n"
    "        for parent, slope in zip(node.parents, node.slopes):\n"
    "            parent.grad = slope * node.grad",
    fails=(
        "a_reused_node_accumulates",
        "the_root_and_what_lies_between",
        "a_node_waits_for_its_children",
        "each_node_once",
        "a_second_sweep",
    ),
    says="The last path overwrote the others",
)


@wrong("recursion", fails="a_long_chain", says="recursion")
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


@wrong("once for each path", fails=("each_node_once", "a_second_sweep"), says="did not finish within")
def backward(value):
    value.grad, waiting = 1.0, [(value, 1.0)]
    while waiting:
        node, passed = waiting.pop()
        for parent, slope in zip(node.parents, node.slopes):
            parent.grad += slope * passed
            waiting.append((parent, slope * passed))


slip(
    "passes on before all paths have arrived",
    "value.grad = 1.0\n"
    "    for node in sorted(nodes, key=lambda node: node.index, reverse=True):\n"
    "        for parent, slope in zip(node.parents, node.slopes, strict=True):\n"
    "            parent.grad += slope * node.grad",
    "value.grad, seen, waiting = 1.0, {value}, [value]\n"
    "    while waiting:\n"
    "        node = waiting.pop(0)\n"
    "        for parent, slope in zip(node.parents, node.slopes):\n"
    "            parent.grad += slope * node.grad\n"
    "            if parent not in seen:\n"
    "                seen.add(parent)\n"
    "                waiting.append(parent)",
    fails="a_node_waits_for_its_children",
    says="u passed on its gradient before all paths to it had arrived",
)
slip(
    "adds to the sweep before",
    "    for node in nodes:\n        node.grad = 0.0\n",
    "",
    "for node in sorted(nodes, key=lambda node: node.index, reverse=True):\n"
    "        for parent, slope in zip(node.parents, node.slopes, strict=True):",
    "for node in sorted(nodes, key=lambda node: -node.index):\n"
    "        for parent, slope in zip(node.parents, node.slopes):",
    fails="a_second_sweep",
    says="the second pass added to the first one",
)
slip(
    "from the smallest index to the largest",
    "nodes, waiting = {value}, [value]",
    "nodes, waiting = [value], [value]",
    "nodes.add(parent)",
    "nodes.append(parent)",
    "for node in sorted(nodes, key=lambda node: node.index, reverse=True):",
    "for node in sorted(nodes, key=lambda node: node.index):",
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
slip(
    "does nothing for a leaf",
    "    nodes, waiting = {value}, [value]\n",
    "    if not value.parents:\n        return\n    nodes, waiting = {value}, [value]\n",
    fails="a_second_sweep",
    says="x.grad after backward(x)",
)
