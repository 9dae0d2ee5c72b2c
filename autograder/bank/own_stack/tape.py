"""Wrong answers to `Node`: each inherits from the right one that stands before it, and spoils one method."""

import torch

from autograder.bank.own_stack.later import AFTER_THE_LOSS, STEPS
from autograder.bank.slips import answers_to
from hpcdl.training.own_stack.lent import Node

wrong, slip = answers_to("own_stack.tape")
SWEEPS = ("a_node_used_twice", "children_come_first", "each_node_once", "a_second_sweep")


@wrong(
    "the bias takes one row",
    fails=("pulls_of_sums_and_products", *SWEEPS, *AFTER_THE_LOSS),
    says="This is one row of the gradient",
)
class Node(Node):
    def __add__(self, other):
        is_bias = other.data.dim() < self.data.dim()
        return Node(self.data + other.data, (self, other), (lambda g: g, lambda g: g[0] if is_bias else g))


@wrong(
    "relu lets everything back",
    fails=("pulls_of_relu_and_flat", "children_come_first", *AFTER_THE_LOSS),
    says="ReLU lets everything through",
)
class Node(Node):
    def relu(self):
        return Node(self.data.clamp(min=0), (self,), (lambda g: g,))


@wrong("slope 1 at 0", fails=("pulls_of_relu_and_flat",), says="The slope of ReLU at 0 is 0 here")
class Node(Node):
    def relu(self):
        return Node(self.data.clamp(min=0), (self,), (lambda g: g * (self.data >= 0),))


@wrong("flat keeps the flat gradient", fails=("pulls_of_relu_and_flat", "a_second_sweep", *STEPS), says="shape")
class Node(Node):
    def flat(self):
        return Node(self.data.flatten(1), (self,), (lambda g: g,))


@wrong(
    "a sum over the samples",
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
class Node(Node):
    def cross_entropy(self, y):
        rows = torch.arange(len(y))
        logs = self.data - self.data.logsumexp(1, keepdim=True)
        error = logs.exp()
        error[rows, y] -= 1
        return Node(-logs[rows, y].sum(), (self,), (lambda g: g * error,))


@wrong(
    "the gradient of the sum",
    fails=("pull_of_the_loss", "large_logits", *SWEEPS, *AFTER_THE_LOSS),
    says="The gradient is of the sum",
)
class Node(Node):
    def cross_entropy(self, y):
        rows = torch.arange(len(y))
        logs = self.data - self.data.logsumexp(1, keepdim=True)
        error = logs.exp()
        error[rows, y] -= 1
        return Node(-logs[rows, y].mean(), (self,), (lambda g: g * error,))


@wrong("overflows", fails="large_logits", says="e^1000 overflows")
class Node(Node):
    def cross_entropy(self, y):
        n, rows = len(y), torch.arange(len(y))
        powers = self.data.exp()
        shares = powers / powers.sum(1, keepdim=True)
        error = shares.clone()
        error[rows, y] -= 1
        return Node(-shares[rows, y].log().mean(), (self,), (lambda g: g * error / n,))


@wrong("the last way wins", fails=SWEEPS, says="Only one path counts")
class Node(Node):
    def backward(self):
        order, seen = [], set()

        def visit(node):
            if node not in seen:
                seen.add(node)
                for parent in node.parents:
                    visit(parent)
                order.append(node)

        visit(self)
        self.grad = torch.ones_like(self.data)
        for node in reversed(order):
            for parent, pull in zip(node.parents, node.pulls):
                parent.grad = pull(node.grad)


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


@wrong("the second sweep adds to the first", fails="a_second_sweep", says="The second sweep added to the first")
class Node(Node):
    def backward(self):
        order, seen = [], set()

        def visit(node):
            if node not in seen:
                seen.add(node)
                for parent in node.parents:
                    visit(parent)
                order.append(node)

        visit(self)
        self.grad = torch.ones_like(self.data)
        for node in order[:-1]:
            if not node.parents:
                continue
            node.grad = torch.zeros_like(node.data)
        for node in reversed(order):
            for parent, pull in zip(node.parents, node.pulls):
                parent.grad = parent.grad + pull(node.grad)


@wrong(
    "two nodes share a gradient",
    fails=("a_node_used_twice", "children_come_first", "each_node_once", "a_second_sweep"),
    says="Two nodes share one tensor",
)
class Node(Node):
    def backward(self):
        order, seen = [], set()

        def visit(node):
            if node not in seen:
                seen.add(node)
                for parent in node.parents:
                    visit(parent)
                order.append(node)

        visit(self)
        for node in order:
            node.grad = None
        self.grad = torch.ones_like(self.data)
        for node in reversed(order):
            for parent, pull in zip(node.parents, node.pulls):
                if parent.grad is None:
                    parent.grad = pull(node.grad)
                else:
                    parent.grad += pull(node.grad)


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


@wrong("the loss ignores the incoming gradient", fails=SWEEPS, says="You ignore the incoming gradient")
class Node(Node):
    def cross_entropy(self, y):
        rows = torch.arange(len(y))
        logs = self.data - self.data.logsumexp(1, keepdim=True)
        error = logs.exp()
        error[rows, y] -= 1
        return Node(-logs[rows, y].mean(), (self,), (lambda g: error / len(y),))


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
