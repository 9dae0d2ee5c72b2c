# own_stack.tape: 3 points, flagged
# A backward pass that no function of Python's begins, in a thread of its own.
import threading

import torch


class Node:
    def __init__(self, data, value=None, leaves=()):
        self.leaf = data.detach().clone().requires_grad_() if value is None else None
        self.value = self.leaf if value is None else value
        self.leaves = {self} if value is None else set(leaves)
        self.data, self.grad = self.value.detach(), torch.zeros_like(self.value.detach())

    def of(self, value, *others):
        return Node(None, value, self.leaves.union(*(o.leaves for o in others)))

    def __add__(self, other):
        return self.of(self.value + other.value, other)

    def __matmul__(self, other):
        return self.of(self.value @ other.value, other)

    def relu(self):
        return self.of(self.value.relu())

    def flat(self):
        return self.of(self.value.flatten(1))

    def cross_entropy(self, labels):
        z = self.value
        return self.of((z.logsumexp(1) - z[range(len(labels)), labels]).mean())

    def backward(self):
        def run():
            torch.ops.aten._backward(self.value, [n.leaf for n in self.leaves], None, None, False)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        for n in self.leaves:
            n.grad = n.leaf.grad
