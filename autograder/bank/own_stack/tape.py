"""Wrong answers to `Node`; a class inherits from the right one that stands before it, and spoils one method."""

import torch

from autograder.bank.own_stack.later import AFTER_THE_LOSS, STEPS
from autograder.bank.slips import answers_to
from hpcdl.training.own_stack.lent import Node

wrong, slip = answers_to("own_stack.tape")
SWEEPS = ("a_node_used_twice", "children_come_first", "each_node_once", "a_second_sweep")

slip(
    "the bias takes one row",
    "g.sum(0)",
    "g[0]",
    fails=("pulls_of_sums_and_products", *SWEEPS, *AFTER_THE_LOSS),
    says="This is one row of the gradient",
)
slip(
    "relu lets everything back",
    "g * (self.data > 0)",
    "g",
    fails=("pulls_of_relu_and_flat", "children_come_first", *AFTER_THE_LOSS),
    says="ReLU lets everything through",
)
slip(
    "gradients in float64",
    "node.grad = torch.zeros_like(node.data)",
    "node.grad = torch.zeros_like(node.data, dtype=torch.float64)",
    fails=("pulls_of_sums_and_products", "pulls_of_relu_and_flat", "pull_of_the_loss", *SWEEPS, "large_logits", *STEPS),
    says="float32",
)
slip(
    "slope 1 at 0",
    "self.data > 0",
    "self.data >= 0",
    fails=("pulls_of_relu_and_flat",),
    says="The slope of ReLU at 0 is 0 here",
)
slip(
    "flat keeps the flat gradient",
    "g.view_as(self.data)",
    "g",
    fails=("pulls_of_relu_and_flat", "a_second_sweep", *STEPS),
    says="shape",
)
slip(
    "a sum over the samples",
    "-logs[rows, y].mean()",
    "-logs[rows, y].sum()",
    "g * error / n",
    "g * error",
    fails=(
        "forward",
        "pulls_of_sums_and_products",
        "a_node_by_hand",
        "pulls_of_relu_and_flat",
        "pull_of_the_loss",
        "large_logits",
        *SWEEPS,
        *STEPS,
    ),
    says="This is the sum over the samples",
)
slip(
    "the gradient of the sum",
    "g * error / n",
    "g * error",
    fails=("pull_of_the_loss", "large_logits", *SWEEPS, *AFTER_THE_LOSS),
    says="The gradient is of the sum",
)
slip(
    "overflows",
    "logs = self.data - self.data.logsumexp(1, keepdim=True)\n        error = logs.exp()",
    "powers = self.data.exp()\n        shares = powers / powers.sum(1, keepdim=True)\n        error = shares.clone()",
    "-logs[rows, y].mean()",
    "-shares[rows, y].log().mean()",
    fails="large_logits",
    says="e^1000 overflows",
)
slip(
    "the last way wins",
    "        for node in order:\n            node.grad = torch.zeros_like(node.data)\n",
    "",
    "parent.grad = parent.grad + pull",
    "parent.grad = pull",
    fails=SWEEPS,
    says="Only one path counts",
)


@wrong("passes on too early", fails=("children_come_first",), says="A node passed on before all its children were done")
class Node(Node):
    def backward(self):
        order, waiting = [], [self]
        while waiting:
            node = waiting.pop(0)
            if node not in order:
                order.append(node)
                waiting += node.parents
        for node in order:
            node.grad = torch.zeros_like(node.data)
        self.grad = torch.ones_like(self.data)
        for node in order:
            for parent, pull in zip(node.parents, node.pulls):
                parent.grad = parent.grad + pull(node.grad)


slip(
    "the second sweep adds to the first",
    "for node in order:\n            node.grad",
    "for node in order:\n            if not node.parents:\n                continue\n            node.grad",
    fails="a_second_sweep",
    says="The second sweep added to the first",
)
slip(
    "two nodes share a gradient",
    "node.grad = torch.zeros_like(node.data)",
    "node.grad = None",
    "parent.grad = parent.grad + pull(node.grad)",
    "if parent.grad is None:\n"
    "                    parent.grad = pull(node.grad)\n"
    "                else:\n"
    "                    parent.grad += pull(node.grad)",
    fails=("a_node_used_twice", "children_come_first", "each_node_once", "a_second_sweep"),
    says="Two nodes share one tensor",
)


@wrong("each path by itself", fails="each_node_once", says="visit each node once")
class Node(Node):
    def backward(self, g=None):
        if g is None:
            g, waiting = torch.ones_like(self.data), [self]
            while waiting:
                node = waiting.pop()
                node.grad = torch.zeros_like(node.data)
                waiting += node.parents
        self.grad = self.grad + g
        for parent, pull in zip(self.parents, self.pulls):
            parent.backward(pull(g))


slip(
    "the loss ignores the incoming gradient",
    "g * error / n",
    "error / n",
    fails=SWEEPS,
    says="You ignore the incoming gradient",
)
slip(
    "a pull that changes what it uses",
    *("        error[rows, y] -= 1\n", ""),
    *("g * error / n", "g * error.index_put_((rows, y), error[rows, y] - 1) / n"),
    fails="a_second_sweep",
    says="must not change what it uses",
)
slip("relu in place", ".clamp(min=0)", ".clamp_(min=0)", fails="pulls_of_relu_and_flat", says="no method changes")
slip(
    "no gradient before a sweep",
    "self.grad = torch.zeros_like(data)",
    "self.grad = None",
    fails="a_second_sweep",
    says="a.grad before a sweep",
)
slip(
    "a default set that remembers earlier sweeps",
    "def backward(self)",
    "def backward(self, seen=set())",
    "order, seen = [], set()",
    "order = []",
    fails="a_second_sweep",
    says="The second sweep added to the first",
)
slip(
    "pulls that take the node, too",
    "lambda g:",
    "lambda g, node:",
    "pull(node.grad)",
    "pull(node.grad, node)",
    fails=" ".join(("a_node_by_hand", *STEPS)),
    says="positional argument",
)
slip(
    "one maximum for all rows",
    "self.data - self.data.logsumexp(1, keepdim=True)",
    "self.data - self.data.max() - (self.data - self.data.max()).exp().sum(1, keepdim=True).log()",
    fails="large_logits",
    says="with one maximum for all rows",
)
