"""Lab 01 answered rightly, in many styles: each cell below replaces the reference's answer."""

# %% derivative: a lambda
derivative = lambda f, x, h=1e-5: (f(x + h) - f(x - h)) / (2 * h)


# %% derivative: annotated, half steps of a whole width, a name for each value
def derivative(f: callable, x: "float | torch.Tensor", h: float = 1e-5) -> "float | torch.Tensor":
    width = 2.0 * h
    above, below = [f(x + side * width / 2) for side in (1, -1)]
    assert width > 0, "the step must be positive"
    return above / width - below / width


# %% derivative: element by element, and printing
def derivative(f, x, h=1e-5):
    print("derivative of", getattr(f, "__name__", "?"))
    if not isinstance(x, torch.Tensor) or x.dim() == 0:
        return (f(x + h) - f(x - h)) / 2 / h
    slopes = [derivative(f, element, h) for element in x.reshape(-1)]
    return torch.stack(slopes).reshape(x.shape)


# %% derivative: NumPy's numbers
import numpy as np


def derivative(f, x, h=1e-5):
    h = np.float64(h)
    return (f(x + h) - f(x - h)) / (2 * h)


# %% best_step: the hint, in plain numbers
def best_step(f, x, dtype):
    def at(point):
        return float(f(torch.tensor(point, dtype=torch.float64)))

    k = abs(x) / 1000 if x != 0 else 0.001
    third = (at(x + 2 * k) - 2 * at(x + k) + 2 * at(x - k) - at(x - 2 * k)) / (2 * k**3)
    return math.pow(3 * torch.finfo(dtype).eps * abs(at(x)) / abs(third), 1 / 3)


# %% best_step: NumPy's cube root
def best_step(f, x, dtype):
    eps = np.finfo(np.float64 if dtype == torch.float64 else np.float32).eps
    k = 1e-3 * max(abs(x), 1e-3) if x else 1e-3
    y = f(torch.from_numpy(x + k * np.arange(-2.0, 3.0))).numpy()
    third = np.array([-1, 2, 0, -2, 1]) @ y / (2 * k**3)
    return np.cbrt(3 * float(eps) * abs(y[2] / third))


# %% best_step: a tensor of no dimension, weights in a product
def best_step(f, x, dtype):
    k = 1e-3 * (abs(x) or 1)
    offsets = torch.arange(-2, 3, dtype=torch.float64)
    weights = torch.tensor([-0.5, 1, 0, -1, 0.5], dtype=torch.float64)
    values = f(x + k * offsets)
    third = torch.dot(weights, values) / k**3
    return (3 * torch.finfo(dtype).eps * (values[2] / third).abs()) ** (1 / 3)


# %% best_step: nested differences instead of the formula
def best_step(f, x, dtype):
    k = (abs(x) or 1.0) * 2e-3

    def slope_of(g):
        return lambda t: (g(t + k) - g(t - k)) / (2 * k)

    bend = slope_of(slope_of(slope_of(f)))
    t = torch.tensor(x, dtype=torch.float64)
    return float((3 * torch.finfo(dtype).eps * f(t).abs() / bend(t).abs()) ** (1.0 / 3.0))


# %% logistic: the formula as it stands, whose overflow is harmless
def logistic(x):
    return 1 / (1 + torch.exp(-x))


def logistic_grad(y):
    return y - y**2


# %% logistic: by tanh
logistic = lambda x: 0.5 * (1 + torch.tanh(x / 2))
logistic_grad = lambda y: torch.mul(y, 1 - y)


# %% logistic: two masks, filled in place
def logistic(x: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(x)
    positive = x >= 0
    result[positive] = 1 / (1 + torch.exp(-x[positive]))
    e = torch.exp(x[~positive])
    result[~positive] = e / (1 + e)
    return result


def logistic_grad(y: torch.Tensor) -> torch.Tensor:
    slope = torch.ones_like(y)
    slope -= y
    slope *= y
    return slope


# %% logistic: number by number, with math
def one_logistic(z):
    if z >= 0:
        return 1 / (1 + math.exp(-z))
    return math.exp(z) / (1 + math.exp(z))


def logistic(x):
    return torch.tensor([one_logistic(z) for z in x.flatten().tolist()], dtype=x.dtype).view(x.shape)


def logistic_grad(y):
    return torch.tensor([v * (1 - v) for v in y.flatten().tolist()], dtype=y.dtype).view_as(y)


# %% logistic: NumPy
def logistic(x):
    e = np.exp(-np.abs(x.numpy()))
    return torch.from_numpy(np.where(x.numpy() >= 0, 1 / (1 + e), e / (1 + e)))


def logistic_grad(y):
    return torch.from_numpy(y.numpy() * (1 - y.numpy()))


# %% gradient: rows of the unit matrix
def gradient(f, x, h=1e-5):
    steps = h * torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    return torch.stack([torch.as_tensor((f(x + s) - f(x - s)) / (2 * h)) for s in steps]).reshape(x.shape)


# %% gradient: a copy is moved and put back
def gradient(f, x, h=1e-5):
    work = x.clone()
    flat, slopes = work.view(-1), []
    for i in range(flat.numel()):
        old = flat[i].item()
        flat[i] = old + h
        up = f(work)
        flat[i] = old - h
        down = f(work)
        flat[i] = old
        slopes.append(float(up - down) / (2 * h))
    return torch.tensor(slopes, dtype=x.dtype).reshape(x.shape)


# %% gradient: a derivative along each coordinate
def gradient(f, x, h=1e-5):
    def along(index):
        def g(value):
            moved = x.clone()
            moved[index] = value
            return f(moved)

        return g

    result = torch.empty_like(x)
    for index in np.ndindex(*x.shape):
        result[index] = derivative(along(index), x[index].item(), h)
    return result


# %% gradient: x itself is moved, and restored exactly
def gradient(f, x, h=1e-5):
    result = torch.zeros_like(x)
    flat_x, flat_result = x.view(-1), result.view(-1)
    for i in range(len(flat_x)):
        saved = flat_x[i].clone()
        try:
            flat_x[i] = saved + h
            flat_result[i] = f(x)
            flat_x[i] = saved - h
            flat_result[i] -= f(x)
        finally:
            flat_x[i] = saved
    return result.div_(2 * h)


# %% Dual: a dataclass with one rule for all functions
from dataclasses import dataclass


@dataclass
class Dual:
    value: float
    slope: float = 0.0

    @staticmethod
    def of(x):
        return x if isinstance(x, Dual) else Dual(float(x))

    def chain(self, value, derivative):
        return Dual(value, derivative * self.slope)

    def __neg__(self):
        return self.chain(-self.value, -1)

    def __add__(self, other):
        other = Dual.of(other)
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other):
        other = Dual.of(other)
        return Dual(self.value * other.value, self.value * other.slope + other.value * self.slope)

    def __sub__(self, other):
        return self + (-1) * Dual.of(other)

    def __truediv__(self, other):
        return self * Dual.of(other) ** -1

    def __pow__(self, n):
        return self.chain(self.value**n, n * self.value ** (n - 1))

    def __radd__(self, other):
        return self + other

    def __rmul__(self, other):
        return self * other

    def __rsub__(self, other):
        return Dual.of(other) - self

    def __rtruediv__(self, other):
        return Dual.of(other) / self

    def __rpow__(self, c):
        return (self * math.log(c)).exp()

    def exp(self):
        return self.chain(math.exp(self.value), math.exp(self.value))

    def log(self):
        return self.chain(math.log(self.value), 1 / self.value)

    def sin(self):
        return self.chain(math.sin(self.value), math.cos(self.value))


# %% Dual: branches on the type, slots, logarithmic rules
class Dual:
    __slots__ = ("slope", "value")

    def __init__(self, value, slope=0.0):
        self.value = value
        self.slope = slope

    def __repr__(self):
        return f"{self.value} + {self.slope}e"

    def __neg__(self):
        return Dual(-self.value, -self.slope)

    def __add__(self, other):
        if isinstance(other, Dual):
            return Dual(self.value + other.value, self.slope + other.slope)
        return Dual(self.value + other, self.slope)

    def __sub__(self, other):
        if isinstance(other, Dual):
            return Dual(self.value - other.value, self.slope - other.slope)
        return Dual(self.value - other, self.slope)

    def __mul__(self, other):
        if isinstance(other, Dual):
            return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)
        return Dual(self.value * other, self.slope * other)

    def __truediv__(self, other):
        if isinstance(other, Dual):
            q = self.value / other.value
            return Dual(q, (self.slope - q * other.slope) / other.value)
        return Dual(self.value / other, self.slope / other)

    def __pow__(self, n):
        if n == 0:
            return Dual(1.0, 0.0)
        power = self.value ** (n - 1)
        return Dual(power * self.value, n * power * self.slope)

    def __radd__(self, other):
        return self + other

    def __rsub__(self, other):
        return Dual(other - self.value, -self.slope)

    def __rmul__(self, other):
        return self * other

    def __rtruediv__(self, other):
        return Dual(other / self.value, -other * self.slope / (self.value * self.value))

    def __rpow__(self, c):
        return Dual(c**self.value, c**self.value * math.log(c) * self.slope)

    def exp(self):
        e = math.exp(self.value)
        return Dual(e, e * self.slope)

    def log(self):
        return Dual(math.log(self.value), self.slope / self.value)

    def sin(self):
        return Dual(math.sin(self.value), math.cos(self.value) * self.slope)


# %% Dual: a named tuple underneath
from typing import NamedTuple


class Pair(NamedTuple):
    value: float
    slope: float = 0.0


class Dual(Pair):
    def __neg__(self):
        return Dual(-self[0], -self[1])

    def __add__(self, other):
        (a, da), (b, db) = self, as_dual(other)
        return Dual(a + b, da + db)

    def __sub__(self, other):
        return self + -as_dual(other)

    def __mul__(self, other):
        (a, da), (b, db) = self, as_dual(other)
        return Dual(a * b, da * b + a * db)

    def __truediv__(self, other):
        (a, da), (b, db) = self, as_dual(other)
        return Dual(a / b, (da * b - a * db) / b / b)

    def __pow__(self, n):
        return Dual(self.value**n, n * self.value ** (n - 1) * self.slope)

    def __rsub__(self, other):
        return as_dual(other) - self

    def __rtruediv__(self, other):
        return as_dual(other) / self

    def __rpow__(self, c):
        return (math.log(c) * self).exp()

    def exp(self):
        return Dual(math.exp(self.value), math.exp(self.value) * self.slope)

    def log(self):
        return Dual(math.log(self.value), self.slope / self.value)

    def sin(self):
        return Dual(math.sin(self.value), math.cos(self.value) * self.slope)

    __radd__, __rmul__ = __add__, __mul__


def as_dual(x):
    return x if isinstance(x, Dual) else Dual(x)


# %% chain_gradient: einsum
def chain_gradient(df_dx, dx_ds):
    return torch.einsum("i,ij->j", df_dx, dx_ds)


# %% chain_gradient: two loops
def chain_gradient(df_dx, dx_ds):
    n, m = dx_ds.shape
    total = torch.zeros(m, dtype=dx_ds.dtype)
    for j in range(m):
        for i in range(n):
            total[j] += df_dx[i] * dx_ds[i, j]
    return total


# %% chain_gradient: a list of columns
def chain_gradient(outer, jacobian):
    return torch.stack([torch.dot(outer, column) for column in jacobian.T])


# %% chain_gradient: a sum of rows that begins with nothing
def chain_gradient(df_dx, dx_ds):
    return sum(slope * row for slope, row in zip(df_dx, dx_ds))


# %% chain_gradient: the transpose, with a column
def chain_gradient(df_dx, dx_ds):
    return (dx_ds.T @ df_dx.unsqueeze(1)).squeeze(1)


# %% chain_gradient: NumPy
def chain_gradient(df_dx, dx_ds):
    return torch.tensor(np.tensordot(df_dx.numpy(), dx_ds.numpy(), axes=1))


# %% grad_check: coordinate by coordinate, with the answer of one's own exercise
def grad_check(f, grad, x):
    claimed, measured = grad(x), gradient(f, x)
    worst, worst_ratio, ok = None, -1.0, True
    for index in np.ndindex(*x.shape):
        a, m = claimed[index].item(), measured[index].item()
        ratio = abs(a - m) / (1e-4 * max(abs(a), abs(m)) + 1e-9)
        if not ratio <= 1:
            ok = False
        if ratio > worst_ratio or worst is None or math.isnan(ratio):
            worst, worst_ratio = tuple(int(i) for i in index), ratio
    return ok, worst


# %% grad_check: divmod for the index
def grad_check(f, grad, x):
    a = grad(x)
    m = measured_gradient(f, x)
    allowed = 1e-9 + 1e-4 * torch.stack((a.abs(), m.abs())).amax(0)
    ratio = torch.abs(a - m) / allowed
    flat, worst = ratio.flatten().argmax().item(), []
    for size in reversed(x.shape):
        flat, position = divmod(flat, size)
        worst.insert(0, position)
    return all(r <= 1 for r in ratio.flatten().tolist()), tuple(worst)


# %% grad_check: a class with a call
class GradientCheck:
    def __init__(self, relative=1e-4, absolute=1e-9):
        self.relative, self.absolute = relative, absolute

    def __call__(self, f, grad, x):
        a, m = grad(x), measured_gradient(f, x)
        excess = (a - m).abs() / (self.relative * torch.where(a.abs() > m.abs(), a.abs(), m.abs()) + self.absolute)
        worst = (excess == excess.max()).nonzero()
        where = tuple(worst[0].tolist()) if len(worst) else (0,) * x.dim()
        return not bool((excess > 1).any() or excess.isnan().any()), where


grad_check = GradientCheck()


# %% unmask_derivative: a tensor that catches all at once
def unmask_derivative():
    return [("cube", torch.tensor([-4.0, 2.5]), 1)]


# %% unmask_derivative: a generator, tuples and lists
def unmask_derivative():
    for f in ("cube", "exp"):
        for h in (0.9, -0.25):
            yield [f, [1.5, -3.0], h]
