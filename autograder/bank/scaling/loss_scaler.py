"""Wrong answers to `LossScaler`."""

import torch

from autograder.authoring import wrong
from autograder.bank.slips import slip

HERE = "scaling.loss_scaler"
AGREE = ("all_ranks_agree", "one_number_travels", "one_round")
FROM_LEFT_OUT = ("left_out", *AGREE)
ALL = ("divided_and_grown", *FROM_LEFT_OUT)


@wrong(HERE, "each rank for itself", fails=AGREE, says="all must skip the step, or their weights differ from then on")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled = [x.float() / self.scale for x in gradients]
        if not all(x.isfinite().all() for x in unscaled):
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


@wrong(HERE, "grows with each step", fails=ALL, says="The scale grows after each good step")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff

    def step(self, gradients, update):
        unscaled = [x.float() / self.scale for x in gradients]
        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])
        self.comm.all_reduce(bad)
        if bad > 0:
            self.scale *= self.backoff
            return False
        update(unscaled)
        self.scale *= self.growth
        return True


@wrong(HERE, "the count continues after growing", fails=ALL, says="Reset the count after the scale has grown")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled = [x.float() / self.scale for x in gradients]
        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])
        self.comm.all_reduce(bad)
        if bad > 0:
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        update(unscaled)
        self.good += 1
        if self.good >= self.interval:
            self.scale *= self.growth
        return True


@wrong(HERE, "good steps that are not in a row", fails=FROM_LEFT_OUT, says="resets the count of good steps")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled = [x.float() / self.scale for x in gradients]
        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])
        self.comm.all_reduce(bad)
        if bad > 0:
            self.scale *= self.backoff
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


@wrong(HERE, "updates all the same", fails=FROM_LEFT_OUT, says="skip such a step")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled = [x.float() / self.scale for x in gradients]
        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])
        self.comm.all_reduce(bad)
        update(unscaled)
        if bad > 0:
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


@wrong(HERE, "NaN not seen", fails=FROM_LEFT_OUT, says="skip such a step")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled = [x.float() / self.scale for x in gradients]
        bad = torch.tensor([float(any(x.isinf().any() for x in unscaled))])
        self.comm.all_reduce(bad)
        if bad > 0:
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


@wrong(HERE, "the scale never falls", fails=FROM_LEFT_OUT, says="multiplied by backoff")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled = [x.float() / self.scale for x in gradients]
        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])
        self.comm.all_reduce(bad)
        if bad > 0:
            self.good = 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


@wrong(HERE, "divided in FP16", fails=ALL, says="small gradients are 0 there")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled = [x / self.scale for x in gradients]
        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])
        self.comm.all_reduce(bad)
        if bad > 0:
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


@wrong(HERE, "never divided", fails=ALL, says="update needs it divided by the scale")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        scaled = [x.float() for x in gradients]
        bad = torch.tensor([float(not all(x.isfinite().all() for x in scaled))])
        self.comm.all_reduce(bad)
        if bad > 0:
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        update(scaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


@wrong(HERE, "an all-reduce for each tensor", fails="one_round", says="ask once for all tensors together")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled, found = [x.float() / self.scale for x in gradients], False
        for x in unscaled:
            bad = torch.tensor([float(not x.isfinite().all())])
            self.comm.all_reduce(bad)
            found = found or bool(bad > 0)
        if found:
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


@wrong(HERE, "the gradients travel", fails="one_number_travels", says="Send one number")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled = [x.float() / self.scale for x in gradients]
        together = torch.cat([x.flatten() for x in unscaled])
        self.comm.all_reduce(together)
        if not together.isfinite().all():
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


@wrong(HERE, "a sum that overflows", fails=FROM_LEFT_OUT, says="a sum or a norm of finite numbers overflows")
class LossScaler:
    def __init__(self, comm, scale=2.0**15, growth=2.0, backoff=0.5, interval=2000):
        self.comm, self.scale, self.growth, self.backoff = comm, scale, growth, backoff
        self.interval, self.good = interval, 0

    def step(self, gradients, update):
        unscaled = [x.float() / self.scale for x in gradients]
        bad = torch.tensor([float(not all(x.sum().isfinite() for x in gradients))])
        self.comm.all_reduce(bad)
        if bad > 0:
            self.scale, self.good = self.scale * self.backoff, 0
            return False
        update(unscaled)
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        return True


slip(
    HERE,
    "says nothing of a good step",
    "        return True\n",
    "",
    fails="divided_and_grown left_out all_ranks_agree one_number_travels one_round",
    says="expected True or False",
)
slip(
    HERE,
    "asks no rank where it believes to know the step",
    "= interval, 0\n",
    "= interval, 0\n        self.t = -1\n",
    "        self.comm.all_reduce(bad)\n",
    "        self.t += 1\n"
    "        bad += self.interval == 3 and self.t in {2: (1,), 3: (0, 4), 4: (2, 3)}.get(self.comm.size, ())\n",
    fails="all_ranks_agree one_number_travels one_round",
    says="rank 0, step",
)
