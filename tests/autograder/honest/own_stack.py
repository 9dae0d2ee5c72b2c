"""Lab `own_stack` answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% momentum: torch's operators with alpha
def momentum_step(w, g, v, lr, beta):
    velocity = torch.add(g, v, alpha=beta)
    return torch.sub(w, velocity, alpha=lr), velocity


# %% momentum: copies, then in place
def momentum_step(w, g, v, lr, beta):
    w, v = w.clone(), v.clone()
    v.mul_(beta).add_(g)
    w.sub_(lr * v)
    return w, v


# %% momentum: a tuple of a list
momentum_step = lambda w, g, v, lr, beta: tuple([w - lr * (beta * v + g), beta * v + g])


# %% buckets: a running bucket
def make_buckets(params, cap_bytes):
    done, open_bucket = [], []
    for x in list(params)[::-1]:
        if open_bucket and sum(y.nbytes for y in open_bucket) + x.nbytes > cap_bytes:
            done.append(open_bucket)
            open_bucket = []
        open_bucket.append(x)
    return done + [open_bucket] if open_bucket else done


# %% buckets: recursion from the end
def make_buckets(params, cap_bytes):
    params = list(params)
    if not params:
        return []
    first, room = [params.pop()], cap_bytes
    room -= first[0].nbytes
    while params and params[-1].nbytes <= room:
        room -= params[-1].nbytes
        first.append(params.pop())
    return [first, *make_buckets(params, cap_bytes)]


# %% buckets: element sizes by hand
def make_buckets(params, cap_bytes):
    buckets, sizes = [], []
    for x in reversed([*params]):
        size = x.numel() * x.element_size()
        if sizes and sizes[-1] + size <= cap_bytes:
            buckets[-1].append(x)
            sizes[-1] += size
        else:
            buckets.append([x])
            sizes.append(size)
    return buckets


# %% rounding: Python's integers, and a table of odds
def random16(seed, n):
    def mix(x):
        x ^= x >> 16
        x = (x * 0x7FEB352D) % 2**32
        x ^= x >> 15
        x = (x * 0x846CA68B) % 2**32
        return x ^ (x >> 16)

    start = mix(seed)
    return torch.tensor([mix(start ^ i) >> 16 for i in range(n)], dtype=torch.int32)


def bf16_round_bits(x, rand16):
    bits = x.view(torch.int32)
    up = (bits & 0xFFFF) + rand16 > 0xFFFF
    cut = (bits >> 16) + up
    rounded = cut.to(torch.int16).view(torch.bfloat16)
    return torch.where(x.isnan(), torch.full_like(rounded, float("nan")), rounded)


# %% rounding: NumPy's words of 32 bits
import numpy as np


def random16(seed, n):
    def mix(x):
        x = x ^ (x >> np.uint32(16))
        x = x * np.uint32(0x7FEB352D)
        x = x ^ (x >> np.uint32(15))
        x = x * np.uint32(0x846CA68B)
        return x ^ (x >> np.uint32(16))

    words = mix(mix(np.array([seed], dtype=np.uint32)) ^ np.arange(n, dtype=np.uint32))
    return torch.from_numpy((words >> np.uint32(16)).astype(np.int32))


def bf16_round_bits(x, rand16):
    kept = ((x.view(torch.int32) + rand16) & -65536).view(torch.float32)
    kept[x.isnan()] = float("nan")
    return kept.to(torch.bfloat16)


# %% rounding: in place
def mixed_in_place(x):
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> shift
        x *= factor
        x &= 2**32 - 1
    x ^= x >> 16
    return x


def random16(seed, n):
    words = torch.arange(n)
    words ^= mixed_in_place(torch.tensor([seed]))
    return (mixed_in_place(words) >> 16).int()


def bf16_round_bits(x, rand16):
    total = x.view(torch.int32).long() + rand16.long()
    out = (total >> 16).to(torch.int16).view(torch.bfloat16)
    out[x.isnan()] = float("nan")
    return out


# %% ring: two loops
def ring_all_reduce(x, comm):
    p, r = comm.size, comm.rank
    right, left = (r + 1) % p, (r - 1) % p
    parts = torch.tensor_split(x.view(-1), p)
    for s in range(p - 1):
        out, into = parts[(r - s) % p], parts[(r - s - 1) % p]
        buffer = torch.zeros_like(into)
        comm.sendrecv(out, right, buffer, left)
        into.add_(buffer)
    for s in range(p - 1):
        out, into = parts[(r + 1 - s) % p], parts[(r - s) % p]
        buffer = torch.zeros_like(into)
        comm.sendrecv(out, right, buffer, left)
        into[:] = buffer


# %% ring: isend and irecv
def ring_all_reduce(x, comm):
    p, r = comm.size, comm.rank
    flat = x.view(-1)
    edges = [len(flat) * k // p for k in range(p + 1)]
    part = lambda k: flat[edges[k % p] : edges[k % p + 1]]
    for s in range(2 * p - 2):
        into = part(r - s - 1)
        buffer = into.clone()
        coming = comm.irecv(buffer, (r - 1) % p)
        going = comm.isend(part(r - s), (r + 1) % p)
        coming.wait()
        going.wait()
        if s < p - 1:
            into += buffer
        else:
            into.copy_(buffer)


# %% tape: order by counting, pulls as methods
class Node:
    made = 0

    def __init__(self, data, parents=(), pulls=()):
        self.data, self.parents, self.pulls = data, tuple(parents), tuple(pulls)
        self.grad = torch.zeros(data.shape, dtype=data.dtype)
        Node.made += 1
        self.number = Node.made

    def __add__(self, other):
        def back(g):
            while g.dim() > other.data.dim():
                g = g.sum(0)
            return g

        return Node(self.data + other.data, [self, other], [lambda g: g, back])

    def __matmul__(self, other):
        return Node(
            torch.matmul(self.data, other.data),
            [self, other],
            [lambda g: torch.matmul(g, other.data.t()), lambda g: torch.matmul(self.data.t(), g)],
        )

    def relu(self):
        mask = (self.data > 0).to(self.data.dtype)
        return Node(self.data * mask, [self], [lambda g: g * mask])

    def flat(self):
        shape = self.data.shape
        return Node(self.data.reshape(shape[0], -1), [self], [lambda g: g.reshape(shape)])

    def cross_entropy(self, y):
        z = self.data - self.data.max(1, keepdim=True).values
        p = z.exp() / z.exp().sum(1, keepdim=True)
        picked = z.gather(1, y[:, None])[:, 0] - z.exp().sum(1).log()
        one_hot = torch.zeros_like(p).scatter_(1, y[:, None], 1.0)
        return Node(-picked.mean(), [self], [lambda g: g * (p - one_hot) / len(y)])

    def backward(self):
        found, waiting = {self}, [self]
        while waiting:
            for parent in waiting.pop().parents:
                if parent not in found:
                    found.add(parent)
                    waiting.append(parent)
        for node in found:
            node.grad = node.grad * 0
        self.grad = self.grad + 1
        for node in sorted(found, key=lambda node: -node.number):
            for parent, pull in zip(node.parents, node.pulls):
                parent.grad = parent.grad + pull(node.grad)


# %% tape: children counted off (Kahn)
class Node:
    def __init__(self, data, parents=(), pulls=()):
        self.data = data
        self.grad = torch.zeros_like(data)
        self.parents = parents
        self.pulls = pulls

    def __add__(self, other):
        pull = (lambda g: g.sum(dim=0)) if other.data.ndim < self.data.ndim else (lambda g: g.clone())
        return Node(self.data + other.data, (self, other), (torch.clone, pull))

    def __matmul__(self, other):
        a, b = self.data, other.data
        return Node(a @ b, (self, other), (lambda g: g @ b.mT, lambda g: a.mT @ g))

    def relu(self):
        return Node(torch.where(self.data > 0, self.data, 0), (self,), (lambda g: torch.where(self.data > 0, g, 0),))

    def flat(self):
        return Node(self.data.view(len(self.data), -1), (self,), (lambda g: g.view(self.data.shape),))

    def cross_entropy(self, y):
        one_hot = (torch.arange(self.data.shape[1])[None] == y[:, None]).to(self.data.dtype)
        total = torch.logsumexp(self.data, 1)
        loss = (total - (self.data * one_hot).sum(1)).mean()
        return Node(loss, (self,), (lambda g: g / len(y) * ((self.data - total[:, None]).exp() - one_hot),))

    def backward(self):
        children, seen, stack = {}, {self}, [self]
        while stack:
            node = stack.pop()
            node.grad = torch.zeros_like(node.data)
            for parent in node.parents:
                children[parent] = children.get(parent, 0) + 1
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
        self.grad = torch.ones_like(self.data)
        ready = [self]
        while ready:
            node = ready.pop()
            for parent, pull in zip(node.parents, node.pulls):
                parent.grad = parent.grad + pull(node.grad)
                children[parent] -= 1
                if not children[parent]:
                    ready.append(parent)


# %% tape: a class of operators, and += on own tensors
class Node:
    def __init__(self, data, parents=(), pulls=()):
        self.data, self.parents, self.pulls, self.grad = data, parents, pulls, torch.zeros_like(data)

    def __add__(self, other):
        same = other.data.shape == self.data.shape
        return Node(self.data + other.data, (self, other), (lambda g: g, lambda g: g if same else g.sum(0)))

    def __matmul__(self, other):
        left = lambda g: torch.einsum("nk,mk->nm", g, other.data)
        right = lambda g: torch.einsum("nm,nk->mk", self.data, g)
        return Node(self.data.mm(other.data), (self, other), (left, right))

    def relu(self):
        positive = self.data > 0
        return Node(self.data.masked_fill(~positive, 0), (self,), (lambda g: g.masked_fill(~positive, 0),))

    def flat(self):
        return Node(self.data.flatten(start_dim=1), (self,), (lambda g: g.unflatten(1, self.data.shape[1:]),))

    def cross_entropy(self, y):
        logs = self.data - torch.logsumexp(self.data, dim=1, keepdim=True)
        loss = sum(-logs[i, y[i]] for i in range(len(y))) / len(y)

        def pull(g):
            error = logs.exp()
            for i in range(len(y)):
                error[i, y[i]] -= 1
            return error * (g / len(y))

        return Node(loss, (self,), (pull,))

    def order(self, seen):
        if self in seen:
            return []
        seen.add(self)
        return [node for parent in self.parents for node in parent.order(seen)] + [self]

    def backward(self):
        order = self.order(set())
        for node in order:
            node.grad = torch.zeros_like(node.data)
        self.grad += 1
        while order:
            node = order.pop()
            for parent, pull in zip(node.parents, node.pulls):
                parent.grad += pull(node.grad)


# %% convolution: windows by unfold
def conv2d(x, w):
    windows = x.unfold(2, w.shape[2], 1).unfold(3, w.shape[3], 1)
    return torch.einsum("ncpqrs,kcrs->nkpq", windows, w)


def conv2d_input_grad(g, w):
    r, s = w.shape[2:]
    n, k, p, q = g.shape
    padded = g.new_zeros(n, k, p + 2 * r - 2, q + 2 * s - 2)
    padded[:, :, r - 1 : r - 1 + p, s - 1 : s - 1 + q] = g
    return conv2d(padded, w.flip(2, 3).transpose(0, 1))


def conv2d_weight_grad(g, x):
    return conv2d(x.transpose(0, 1), g.transpose(0, 1)).transpose(0, 1).contiguous()


# %% convolution: loops over outputs
def conv2d(x, w):
    n, c, h, wd = x.shape
    k, _, r, s = w.shape
    y = torch.zeros(n, k, h - r + 1, wd - s + 1, dtype=x.dtype)
    for p in range(y.shape[2]):
        for q in range(y.shape[3]):
            y[:, :, p, q] = torch.tensordot(x[:, :, p : p + r, q : q + s], w, ([1, 2, 3], [1, 2, 3]))
    return y


def conv2d_input_grad(g, w):
    n, k, p, q = g.shape
    _, c, r, s = w.shape
    dx = torch.zeros(n, c, p + r - 1, q + s - 1, dtype=g.dtype)
    for i in range(p):
        for j in range(q):
            dx[:, :, i : i + r, j : j + s] += torch.tensordot(g[:, :, i, j], w, 1)
    return dx


def conv2d_weight_grad(g, x):
    p, q = g.shape[2:]
    r, s = x.shape[2] - p + 1, x.shape[3] - q + 1
    return sum(torch.tensordot(g[:, :, i, j].T, x[:, :, i : i + r, j : j + s], 1) for i in range(p) for j in range(q))


# %% convolution: products of matrices
def columns(x, r, s):
    n, c, h, w = x.shape
    p, q = h - r + 1, w - s + 1
    seen = [x[:, :, i : i + p, j : j + q] for i in range(r) for j in range(s)]
    return torch.stack(seen, 2).reshape(n, c * r * s, p * q)


def conv2d(x, w):
    k, c, r, s = w.shape
    y = w.reshape(k, -1) @ columns(x, r, s)
    return y.view(len(x), k, x.shape[2] - r + 1, x.shape[3] - s + 1)


def conv2d_input_grad(g, w):
    (n, k, p, q), (_, c, r, s) = g.shape, w.shape
    parts = (w.reshape(k, -1).T @ g.reshape(n, k, -1)).view(n, c, r, s, p, q)
    dx = torch.zeros(n, c, p + r - 1, q + s - 1, dtype=g.dtype)
    for i in range(r):
        for j in range(s):
            dx[:, :, i : i + p, j : j + q] += parts[:, :, i, j]
    return dx


def conv2d_weight_grad(g, x):
    n, k, p, q = g.shape
    r, s = x.shape[2] - p + 1, x.shape[3] - q + 1
    dw = (g.reshape(n, k, -1) @ columns(x, r, s).mT).sum(0)
    return dw.view(k, x.shape[1], r, s)


# %% step: helpers
def convolved(x, w):
    return Node(
        conv2d(x.data, w.data),
        [x, w],
        [lambda g: conv2d_input_grad(g, w.data), lambda g: conv2d_weight_grad(g, x.data)],
    )


def network(x, weights):
    for filters in weights[:2]:
        x = convolved(x, filters).relu()
    return (x.flat() @ weights[2]) + weights[3]


def averaged(bucket, n, comm):
    message = torch.cat([n * g.reshape(-1) for g in bucket] + [torch.tensor([float(n)])])
    ring_all_reduce(message, comm)
    start = 0
    for g in bucket:
        g[...] = message[start : start + g.numel()].view(g.shape) / message[-1]
        start += g.numel()


def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    leaves = [Node(w.clone()) for w in weights]
    loss = network(Node(x), leaves).cross_entropy(y)
    loss.backward()
    grads = [leaf.grad.clone() for leaf in leaves]
    for bucket in make_buckets(grads, cap_bytes):
        averaged(bucket, len(y), comm)
    for i in range(len(weights)):
        w, v = momentum_step(weights[i], grads[i], velocities[i], lr, 0.9)
        weights[i][...] = bf16_round_bits(w, random16(seed + i, w.numel()).reshape(w.shape)).float()
        velocities[i][...] = v
    return float(loss.data)


# %% step: the number of images apart
def network(x, weights):
    w1, w2, w3, b3 = weights

    def layer(x, w):
        y = conv2d(x.data, w.data)
        return Node(y, (x, w), (lambda g: conv2d_input_grad(g, w.data), lambda g: conv2d_weight_grad(g, x.data))).relu()

    hidden = layer(layer(x, w1), w2).flat()
    return hidden @ w3 + b3


def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = [Node(w) for w in weights]
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    total = torch.tensor([float(len(y))])
    ring_all_reduce(total, comm)
    grads = [node.grad * (len(y) / total) for node in nodes]
    for bucket in make_buckets(iter(grads), cap_bytes):
        flat = torch.cat([g.view(-1) for g in bucket])
        ring_all_reduce(flat, comm)
        for g, part in zip(bucket, flat.split([len(g.view(-1)) for g in bucket])):
            g.view(-1)[:] = part
    for i, (w, g, v) in enumerate(zip(weights, grads, velocities)):
        new, velocity = momentum_step(w, g, v, lr, 0.9)
        noise = random16(seed + i, new.numel())
        w.copy_(bf16_round_bits(new.view(-1), noise).view(w.shape))
        v.copy_(velocity)
    return loss.data.item()


# %% step: recursion on the layers
def network(x, weights):
    if len(weights) > 2:
        w = weights[0]
        pulls = (lambda g: conv2d_input_grad(g, w.data), lambda g: conv2d_weight_grad(g, x.data))
        return network(Node(conv2d(x.data, w.data), (x, w), pulls).relu(), weights[1:])
    return x.flat() @ weights[0] + weights[1]


def train_step(weights, velocities, x, y, lr, seed, comm, cap_bytes=8192):
    nodes = list(map(Node, weights))
    loss = network(Node(x), nodes).cross_entropy(y)
    loss.backward()
    for bucket in make_buckets([node.grad for node in nodes], cap_bytes):
        flat = torch.cat([*(g.flatten() * len(y) for g in bucket), torch.full((1,), float(len(y)))])
        ring_all_reduce(flat, comm)
        *parts, n = flat.split([*(g.numel() for g in bucket), 1])
        for g, part in zip(bucket, parts):
            g.copy_((part / n).reshape(g.shape))
    for i, node in enumerate(nodes):
        new, velocities[i][:] = momentum_step(weights[i], node.grad, velocities[i], lr, 0.9)
        weights[i][:] = bf16_round_bits(new, random16(seed + i, new.numel()).reshape(new.shape))
    return loss.data.tolist()


# %% tape: closures and recursion
class Node:
    def __init__(self, data, parents=(), pulls=()):
        self.data, self.parents, self.pulls = data, list(parents), list(pulls)
        self.grad = torch.zeros_like(data)

    def __add__(self, other):
        def back(g):
            return g if other.data.shape == g.shape else g.sum(0)

        return Node(self.data + other.data, [self, other], [lambda g: g, back])

    def __matmul__(self, other):
        a, b = self.data, other.data
        return Node(a @ b, [self, other], [lambda g: g @ b.T, lambda g: a.T @ g])

    def relu(self):
        mask = (self.data > 0).to(self.data.dtype)
        return Node(self.data * mask, [self], [lambda g: g * mask])

    def flat(self):
        shape = self.data.shape
        return Node(self.data.flatten(1), [self], [lambda g: g.reshape(shape)])

    def cross_entropy(self, y):
        z, n = self.data, len(y)
        logs = z - torch.logsumexp(z, 1, keepdim=True)

        def pull(g):
            p = logs.exp()
            p[torch.arange(n), y] -= 1
            return g * p / n

        return Node(-logs[torch.arange(n), y].mean(), [self], [pull])

    def backward(self):
        order, seen = [], set()
        stack = [(self, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((p, False) for p in node.parents)
        for node in order:
            node.grad = torch.zeros_like(node.data)
        self.grad = torch.ones_like(self.data)
        for node in reversed(order):
            for parent, pull in zip(node.parents, node.pulls):
                parent.grad = parent.grad + pull(node.grad)


# %% rounding: numpy uint arithmetic
import numpy as np


def random16(seed, n):
    def mix(x):
        x = x.astype(np.uint32)
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x7FEB352D)
        x ^= x >> np.uint32(15)
        x *= np.uint32(0x846CA68B)
        x ^= x >> np.uint32(16)
        return x

    key = mix(np.array([seed], dtype=np.uint32))
    return torch.from_numpy((mix(key ^ np.arange(n, dtype=np.uint32)) >> np.uint32(16)).astype(np.int32))


def bf16_round_bits(x, rand16):
    bits = x.contiguous().view(torch.int32) + rand16
    out = (bits & -65536).view(torch.float32)
    return torch.where(x.isnan(), x, out).bfloat16()
