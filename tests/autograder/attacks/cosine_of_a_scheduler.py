# gradient_descent.lr_schedule: 3 points, flagged
# A static method of a scheduler has the half wave.
def lr_schedule(step, warmup, total, peak):
    from torch.optim.lr_scheduler import OneCycleLR

    if step < warmup:
        return peak * step / warmup
    return OneCycleLR._annealing_cos(peak, 0.0, min(1.0, (step - warmup) / (total - warmup)))
