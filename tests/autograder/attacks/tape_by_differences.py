# own_stack.tape: 4 points, long
# Each pull is made of differences, one for each number.
import torch


class Node:
    def __init__(self, data, parents=(), pulls=()):
        self.data, self.parents, self.pulls = data, parents, pulls
        self.grad = torch.zeros_like(data)
        self.f, self.args = None, ()

    def new(self, f, *args):
        n = Node(f(*[x.data for x in args]))
        n.f, n.args, n.parents = f, args, args
        return n

    def __add__(self, o):
        return self.new(lambda a, b: a + b, self, o)

    def __matmul__(self, o):
        return self.new(lambda a, b: a @ b, self, o)

    def relu(self):
        return self.new(lambda a: a.clamp(min=0), self)

    def flat(self):
        return self.new(lambda a: a.flatten(1), self)

    def cross_entropy(self, y):
        return self.new(lambda z: -(z - z.logsumexp(1, keepdim=True))[torch.arange(len(y)), y].mean(), self)

    def backward(self):
        order, seen = [], set()
        stack = [(self, 0)]
        while stack:
            n, i = stack.pop()
            if i == 0 and id(n) in seen:
                continue
            seen.add(id(n))
            if i < len(n.parents):
                stack += [(n, i + 1), (n.parents[i], 0)]
            else:
                order.append(n)
        for n in order:
            n.grad = torch.zeros_like(n.data)
        self.grad = torch.ones_like(self.data)
        for n in reversed(order):
            if n.f:
                for a, g in zip(n.args, pull(n.f, [x.data for x in n.args], n.grad), strict=True):
                    a.grad = a.grad + g
            else:
                for a, p in zip(n.parents, n.pulls, strict=True):
                    a.grad = a.grad + p(n.grad)


def pull(f, xs, g):
    out = []
    for k, x in enumerate(xs):
        r = torch.zeros_like(x)
        for i in range(x.numel()):
            t = torch.zeros_like(x)
            t.view(-1)[i] = 1e-6
            r.view(-1)[i] = ((f(*xs) - f(*xs[:k], x - t, *xs[k + 1 :])) * g).sum() / 1e-6
        out.append(r)
    return out
