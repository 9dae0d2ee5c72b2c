"""Wrong answers to `LossScaler`."""

from autograder.bank.slips import answers_to

_, slip = answers_to("scaling.loss_scaler")
AGREE = ("all_ranks_agree", "one_number_travels", "one_round")
FROM_LEFT_OUT = ("left_out", *AGREE)
ALL = ("divided_and_grown", *FROM_LEFT_OUT)

slip(
    "each rank for itself",
    "bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])\n"
    "        self.comm.all_reduce(bad)\n"
    "        if bad > 0:",
    "if not all(x.isfinite().all() for x in unscaled):",
    fails=AGREE,
    says="all must skip the step, or their weights differ from then on",
)
slip(
    "grows with each step",
    "        self.interval, self.good = interval, 0\n",
    "",
    "self.scale, self.good = self.scale * self.backoff, 0",
    "self.scale *= self.backoff",
    "self.good += 1\n"
    "        if self.good == self.interval:\n"
    "            self.scale, self.good = self.scale * self.growth, 0",
    "self.scale *= self.growth",
    fails=ALL,
    says="The scale grows after each good step",
)
slip(
    "the count continues after growing",
    "if self.good == self.interval:\n            self.scale, self.good = self.scale * self.growth, 0",
    "if self.good >= self.interval:\n            self.scale *= self.growth",
    fails=ALL,
    says="Reset the count after the scale has grown",
)
slip(
    "good steps that are not in a row",
    "self.scale, self.good = self.scale * self.backoff, 0",
    "self.scale *= self.backoff",
    fails=FROM_LEFT_OUT,
    says="resets the count of good steps",
)
slip(
    "updates all the same",
    "if bad > 0:\n"
    "            self.scale, self.good = self.scale * self.backoff, 0\n"
    "            return False\n"
    "        update(unscaled)",
    "update(unscaled)\n"
    "        if bad > 0:\n"
    "            self.scale, self.good = self.scale * self.backoff, 0\n"
    "            return False",
    fails=FROM_LEFT_OUT,
    says="skip such a step",
)
slip(
    "NaN not seen",
    "bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])",
    "bad = torch.tensor([float(any(x.isinf().any() for x in unscaled))])",
    fails=FROM_LEFT_OUT,
    says="skip such a step",
)
slip(
    "the scale never falls",
    "self.scale, self.good = self.scale * self.backoff, 0",
    "self.good = 0",
    fails=FROM_LEFT_OUT,
    says="multiplied by backoff",
)
slip("divided in FP16", "x.float() / self.scale", "x / self.scale", fails=ALL, says="small gradients are 0 there")
slip(
    "never divided",
    "unscaled = [x.float() / self.scale for x in gradients]\n"
    "        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])",
    "scaled = [x.float() for x in gradients]\n"
    "        bad = torch.tensor([float(not all(x.isfinite().all() for x in scaled))])",
    "update(unscaled)",
    "update(scaled)",
    fails=ALL,
    says="update needs it divided by the scale",
)
slip(
    "an all-reduce for each tensor",
    "unscaled = [x.float() / self.scale for x in gradients]\n"
    "        bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])\n"
    "        self.comm.all_reduce(bad)\n"
    "        if bad > 0:",
    "unscaled, found = [x.float() / self.scale for x in gradients], False\n"
    "        for x in unscaled:\n"
    "            bad = torch.tensor([float(not x.isfinite().all())])\n"
    "            self.comm.all_reduce(bad)\n"
    "            found = found or bool(bad > 0)\n"
    "        if found:",
    fails="one_round",
    says="ask once for all tensors together",
)
slip(
    "the gradients travel",
    "bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])\n"
    "        self.comm.all_reduce(bad)\n"
    "        if bad > 0:",
    "together = torch.cat([x.flatten() for x in unscaled])\n"
    "        self.comm.all_reduce(together)\n"
    "        if not together.isfinite().all():",
    fails="one_number_travels",
    says="Send one number",
)
slip(
    "two tensors alone",
    "x.float() / self.scale for x in gradients]",
    "x.float() / self.scale for x in gradients[:2]]",
    fails=ALL,
    says="all of them",
)
slip(
    "many numbers travel between three ranks",
    "        self.comm.all_reduce(bad)\n",
    "        self.comm.all_reduce(bad)\n"
    "        if self.comm.size == 3:\n"
    "            self.comm.all_reduce(torch.cat(unscaled))\n",
    fails="one_number_travels one_round",
    says="Send one number",
)
slip(
    "a sum that overflows",
    "bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])",
    "bad = torch.tensor([float(not all(x.sum().isfinite() for x in gradients))])",
    fails=FROM_LEFT_OUT,
    says="a sum or a norm of finite numbers overflows",
)
slip(
    "says nothing of a good step",
    "        return True\n",
    "",
    fails="divided_and_grown left_out all_ranks_agree one_number_travels one_round",
    says="expected True or False",
)
slip(
    "asks no rank where it believes to know the step",
    "= interval, 0\n",
    "= interval, 0\n        self.t = -1\n",
    "        self.comm.all_reduce(bad)\n",
    "        self.t += 1\n"
    "        bad += self.interval == 3 and self.t in {2: (1,), 3: (0, 4), 4: (2, 3)}.get(self.comm.size, ())\n",
    fails="all_ranks_agree one_number_travels one_round",
    says="rank 0, step",
)
slip(
    "four numbers travel",
    "bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled))])",
    "bad = torch.tensor([float(not all(x.isfinite().all() for x in unscaled[i::4])) for i in range(4)])",
    "if bad > 0:",
    "if bad.sum() > 0:",
    fails="one_number_travels",
    says="Send one number",
)
slip(
    "looks at one element",
    "not all(x.isfinite().all() for x in unscaled)",
    "not unscaled[-1][2].isfinite()",
    fails=FROM_LEFT_OUT,
    says="skip such a step",
)
slip(
    "looks at the last tensor",
    "not all(x.isfinite().all() for x in unscaled)",
    "not unscaled[-1].isfinite().all()",
    fails=FROM_LEFT_OUT,
    says="skip such a step",
)
