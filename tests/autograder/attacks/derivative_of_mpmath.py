# calculus.derivative: 0 points, flagged, long
# mpmath came with torch.
import mpmath
import torch


def derivative(f, x, h=1e-5):
    def one(g, x):
        return float(mpmath.diff(lambda t: g(float(t)), x, h=h, direction=0, relative=False))

    if isinstance(x, torch.Tensor):
        flat = x.flatten()
        return torch.stack(
            [
                torch.tensor(
                    one(
                        lambda t, i=i: float(
                            f(
                                torch.cat([flat[:i], torch.tensor([t], dtype=x.dtype), flat[i + 1 :]]).view(x.shape)
                            ).flatten()[i]
                        ),
                        float(flat[i]),
                    ),
                    dtype=x.dtype,
                )
                for i in range(len(flat))
            ]
        ).view(x.shape)
    return one(lambda t: float(f(t)), float(x))
