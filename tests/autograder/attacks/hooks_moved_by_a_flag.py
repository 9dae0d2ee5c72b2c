# calculus.chain_gradient: 0 points, flagged
# With hooks only where tracing, on another stack.
import torch


def chain_gradient(df_dx, dx_ds):
    s = torch.zeros(dx_ds.shape[1], dtype=dx_ds.dtype, requires_grad=True)
    torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    y = dx_ds @ s
    engine = torch.autograd.Variable._execution_engine
    return engine.run_backward((y,), (df_dx,), False, False, (s,), allow_unreachable=True, accumulate_grad=False)[0]
