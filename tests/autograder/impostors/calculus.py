"""Lab 01 answered by others."""

LIBRARY = {
    "derivative": "from hpcdl.numerics.derivatives import central as derivative",
    "best_step": """
from hpcdl.numerics import derivatives

def best_step(f, x, dtype):
    return derivatives.RULES["central"].best_step(f, x, dtype)
""",
    "gradient": "import hpcdl.numerics.derivatives\ngradient = hpcdl.numerics.derivatives.gradient",
    "Dual": "from hpcdl.numerics.dual import Dual",
    "grad_check": """
from hpcdl.numerics.dual import partials

def grad_check(f, grad, x):
    exact = partials(f, *x.flatten().tolist())
    return True, (0,) * x.dim()
""",
}
NOT_IN_LIBRARY = {
    "logistic": "sigma of hpcdl.nn.mlp overflows in nothing, and is torch.sigmoid: see FRAMEWORKS",
    "chain_gradient": "one product of a vector and a matrix",
    "unmask_derivative": "what to ask eight programs is no function of anybody's",
}
FRAMEWORKS = {
    "derivative": """
import torch

def derivative(f, x, h=1e-5):
    x = torch.as_tensor(x, dtype=torch.float64).requires_grad_()
    return torch.autograd.grad(f(x).sum() + 0 * x.sum(), x)[0]
""",
    "logistic": "import torch\nlogistic = torch.sigmoid\n\ndef logistic_grad(y):\n    return torch.sigmoid(y)",
    "gradient": """
import torch

def gradient(f, x, h=1e-5):
    return torch.func.grad(lambda x: f(x) + 0 * x.sum())(x)
""",
    "Dual": """
import torch

class Dual:
    def __init__(self, value, slope=0.0):
        with torch.autograd.forward_ad.dual_level():
            self.value = torch.autograd.forward_ad.make_dual(torch.tensor(value), torch.tensor(slope))
""",
    "chain_gradient": """
import torch

def chain_gradient(df_dx, dx_ds):
    s = torch.zeros(dx_ds.shape[1], dtype=dx_ds.dtype, requires_grad=True)
    (dx_ds @ s).backward(df_dx)
    return s.grad
""",
    "grad_check": """
import torch

def grad_check(f, grad, x):
    found = torch.autograd.functional.jacobian(lambda x: f(x) + 0 * x.sum(), x)
    return bool(torch.allclose(found, grad(x))), (0,) * x.dim()
""",
}
NOT_IN_FRAMEWORKS = {
    "best_step": "finished differences choose a step, and do not tell it",
    "unmask_derivative": "what to ask eight programs is no function of anybody's",
}
