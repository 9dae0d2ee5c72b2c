# calculus.logistic: 3 points, flagged
# A program of tensor expressions needs no operator.
import torch

te = torch._C._te


def logistic(x):
    n, dtype = te.ExprHandle.int(x.numel()), te.Dtype.Double if x.dtype == torch.float64 else te.Dtype.Float
    given = te.BufHandle("x", [n], dtype)
    result = te.Compute("y", [n], lambda i: te.sigmoid(given.load([i])))
    nest = te.LoopNest([result])
    nest.prepare_for_codegen()
    out = torch.empty(x.numel(), dtype=x.dtype)
    te.construct_codegen("ir_eval", nest.simplify() or nest.root_stmt(), [given, result]).call([x.view(-1), out])
    return out.view(x.shape)


def logistic_grad(y):
    return y * (1 - y)
