# own_stack.tape: 3 points, flagged
# Python's graphlib puts the nodes in order; all else is written.
import graphlib

import torch


class Node:
    def __init__(self, data, parents=(), pulls=()):
        self.data, self.parents, self.pulls, self.grad = data, parents, pulls, torch.zeros_like(data)

    def __add__(self, other):
        is_bias = other.data.dim() < self.data.dim()
        return Node(self.data + other.data, (self, other), (lambda g: g, lambda g: g.sum(0) if is_bias else g))

    def __matmul__(self, other):
        pulls = (lambda g: g @ other.data.T, lambda g: self.data.T @ g)
        return Node(self.data @ other.data, (self, other), pulls)

    def relu(self):
        return Node(self.data.clamp(min=0), (self,), (lambda g: g * (self.data > 0),))

    def flat(self):
        return Node(self.data.flatten(1), (self,), (lambda g: g.view_as(self.data),))

    def cross_entropy(self, y):
        logs = self.data - self.data.logsumexp(1, keepdim=True)
        off = logs.exp() - torch.eye(logs.shape[1], dtype=logs.dtype)[y]
        return Node(-logs[torch.arange(len(y)), y].mean(), (self,), (lambda g: g * off / len(y),))

    def backward(self):
        graph, left = {}, [self]
        while left:
            node = left.pop()
            graph[node] = set(node.parents)
            left += [parent for parent in node.parents if parent not in graph]
        order = list(graphlib.TopologicalSorter(graph).static_order())
        self.grad = torch.ones_like(self.data)
        for node in reversed(order):
            for parent, pull in zip(node.parents, node.pulls, strict=True):
                parent.grad = parent.grad + pull(node.grad)
