"""Lab 03 answered rightly, in many styles: each cell below replaces the reference's answer."""


# %% predict: twice a condition, less one
def predict(w, X):
    return 2.0 * (X @ w >= 0).float() - 1


# %% predict: a loop over samples
def predict(w, X):
    if X.dim() == 1:
        z = sum(wj * xj for wj, xj in zip(w, X))
        return torch.tensor(1.0) if z >= 0 else torch.tensor(-1.0)
    return torch.stack([predict(w, x) for x in X])


# %% predict: in place, by masks
def predict(w, X):
    z = torch.einsum("...j,j->...", X, w)
    labels = torch.ones_like(z)
    labels[z < 0] = -1
    return labels


# %% predict: the sign, and zeros mended
def predict(w, X):
    sign = torch.sign(torch.matmul(X, w))
    return sign + (sign == 0)


# %% update: an if, and an early return
def update(w, x, y, lr):
    yhat = predict(w, x)
    if yhat == y:
        return w.clone()
    return w + 2 * lr * y * x


# %% update: weight by weight
def update(w, x, y, lr):
    z = sum(float(a) * float(b) for a, b in zip(w, x))
    step = lr * (float(y) - (1 if z >= 0 else -1))
    return torch.tensor([float(wj) + step * float(xj) for wj, xj in zip(w, x)], dtype=w.dtype)


# %% update: a copy in place
def update(w: torch.Tensor, x: torch.Tensor, y: float, lr: float) -> torch.Tensor:
    new = w.clone()
    new += lr * (y - predict(w, x)) * x
    return new


# %% update: add with alpha
update = lambda w, x, y, lr: torch.add(w, x, alpha=lr * float(y - torch.where(torch.dot(w, x) >= 0, 1.0, -1.0)))


# %% fit: with one's own predict and update
def fit(X, y, lr, max_epochs):
    w = torch.zeros(X.size(1))
    mistakes = []
    for epoch in range(max_epochs):
        wrong = 0
        for i in range(len(X)):
            if predict(w, X[i]) != y[i]:
                w = update(w, X[i], y[i], lr)
                wrong += 1
        mistakes.append(wrong)
        if wrong == 0:
            return w, mistakes
    return w, mistakes


# %% fit: a while, and compare before and after
def fit(X, y, lr, max_epochs):
    w, mistakes = torch.zeros_like(X[0]), []
    while len(mistakes) < max_epochs and (not mistakes or mistakes[-1]):
        updates = 0
        for x, target in zip(X, y):
            after = update(w, x, target, lr)
            updates += int(not torch.equal(after, w))
            w = after
        mistakes.append(updates)
    return w, mistakes


# %% fit: weights in place, y times z
def fit(X, y, lr, max_epochs):
    w = torch.zeros(X.shape[1], dtype=X.dtype)
    counts = []
    for _ in range(max_epochs):
        count = 0
        for sample, label in zip(X.unbind(), y.tolist()):
            z = float(sample.dot(w))
            if (z >= 0) == (label < 0):
                w += 2 * lr * label * sample
                count += 1
        counts.append(count)
        if not count:
            break
    return w, counts


# %% fit: a class that learns
class Perceptron:
    def __init__(self, n, lr):
        self.w, self.lr = torch.zeros(n), lr

    def learn(self, x, y):
        """Whether the sample was a mistake."""
        error = y - (1 if torch.dot(self.w, x) >= 0 else -1)
        self.w = self.w + self.lr * error * x
        return bool(error != 0)

    def epoch(self, X, y):
        return sum([self.learn(*sample) for sample in zip(X, y)])


def fit(X, y, lr, max_epochs):
    machine, mistakes = Perceptron(X.shape[1], lr), []
    for _ in range(max_epochs):
        mistakes.append(machine.epoch(X, y))
        if mistakes[-1] == 0:
            break
    return machine.w, mistakes


# %% margin: the smallest of a comprehension
def margin(w, X, y):
    length = sum(v * v for v in w.tolist()) ** 0.5
    return min(float(label * (x @ w)) for x, label in zip(X, y)) / length


# %% margin: the unit vector first, and a tensor of no dimension
def margin(w, X, y):
    return torch.amin(y * (X @ (w / torch.linalg.vector_norm(w))))


# %% margin: einsum
def margin(w, X, y):
    return (torch.einsum("m,mj,j->m", y, X, w) / w.square().sum().sqrt()).min().item()


# %% margin: rows turned by their label
def margin(w, X, y):
    return float(torch.min((X * y[:, None]) @ w) / torch.sqrt(w @ w))


# %% novikoff_bound: with one's own margin
import math


def novikoff_bound(X, y, w_star):
    if (gamma := margin(w_star, X, y)) <= 0:
        return math.inf
    return (X.norm(dim=1).max().item() / gamma) ** 2


# %% novikoff_bound: a comprehension
def novikoff_bound(X, y, w_star):
    R2 = max(float(x @ x) for x in X)
    gaps = [float(label * (x @ w_star)) for x, label in zip(X, y)]
    if any(gap <= 0 for gap in gaps):
        return float("inf")
    return R2 * float(w_star @ w_star) / min(gaps) ** 2


# %% novikoff_bound: tensors to the end
def novikoff_bound(X, y, w_star):
    gamma = (y * torch.mv(X, w_star)).min() / torch.linalg.norm(w_star)
    bound = (torch.linalg.norm(X, dim=1).max() / gamma).square()
    return torch.where(gamma > 0, bound, torch.inf)


# %% lift: column_stack
def lift(X):
    return torch.column_stack((X, X[:, 1] * X[:, 2]))


# %% lift: row by row
def lift(X):
    return torch.stack([torch.stack([one, a, b, a * b]) for one, a, b in X])


# %% lift: written into an empty matrix
def lift(X):
    Z = X.new_empty(len(X), 4)
    Z[:, :3] = X
    Z[:, 3] = X[:, 1:].prod(dim=1)
    return Z


# %% lift: lists
def lift(X):
    return torch.tensor([[*row, row[1] * row[2]] for row in X.tolist()], dtype=X.dtype)


# %% mlp_xor: with one's own predict, OR and NAND the other way round
def mlp_xor(X):
    nand, either = torch.tensor([1.0, -1.0, -1.0]), torch.tensor([1.0, 1.0, 1.0])
    H = torch.stack([predict(nand, X), predict(either, X)], dim=1)
    return H, predict(torch.tensor([-1.0, 1.0, 1.0]), with_bias(H))


# %% mlp_xor: two one-sided neurons, and OR of them
def step(z):
    return torch.where(z >= 0, 1.0, -1.0)


def mlp_xor(X):
    W = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    H = step(X @ W)
    ones = torch.ones(len(H), 1)
    return H, step(torch.cat([ones, H], dim=1) @ torch.tensor([1.0, 1.0, 1.0]))


# %% mlp_xor: AND and NOR, and neither of them
def mlp_xor(X):
    W = torch.tensor([[-1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    H = 2.0 * (torch.einsum("mj,kj->mk", X, W) >= 0) - 1.0
    z = -1.0 - H[:, 0] - H[:, 1]
    return H, 2.0 * (z >= 0) - 1.0


# %% mlp_xor: neuron by neuron, sample by sample
def neuron(w, inputs):
    z = sum(a * b for a, b in zip(w, inputs))
    return 1.0 if z >= 0 else -1.0


def mlp_xor(X):
    hidden, outputs = [], []
    for x in X.tolist():
        h = [neuron(w, x) for w in ((0.5, 1, 1), (0.5, -1, -1))]
        hidden.append(h)
        outputs.append(neuron((-0.5, 1, 1), [1, *h]))
    return torch.tensor(hidden), torch.tensor(outputs)


# %% unmask_fit: points of a loop
import itertools


def unmask_fit():
    square = list(itertools.product((-1, 1), repeat=2))
    xor = [-int(a * b) for a, b in square]
    line = [(0.25 * i, 0) for i in range(8)]
    return [(square, xor, 0.5, 6), (line, [-1] * 5 + [1] * 3, 1, 20)]


# %% unmask_fit: samples given twice, from tensors
def unmask_fit():
    X = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]).repeat(2, 1)
    y = [-1.0, 1.0, 1.0, -1.0] * 2
    return [(X.tolist(), y, 0.25, 20)]
