# calculus.derivative: 0 points, flagged
# torch's finished finite differences.
import torch


def derivative(f, x, h=1e-5):
    values = torch.stack([torch.as_tensor(f(p), dtype=torch.float64) for p in (x - h, x, x + h)])
    d = torch.gradient(values, spacing=h, dim=0)[0][1]
    return d if isinstance(x, torch.Tensor) else d.item()
