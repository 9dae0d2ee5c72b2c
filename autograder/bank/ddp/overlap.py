"""Wrong answers to `OverlappedDDP`."""

from autograder.bank.ddp.later import AFTER_THE_RESULTS, ALL_OF_OVERLAP, TIMED
from autograder.bank.slips import answers_to

_, slip = answers_to("ddp.OverlappedDDP")
CAP, InFlight = 25 * 2**20, None  # names of the notebook that these answers use

slip(
    "replicas stay different",
    "        broadcast_parameters(model.parameters(), comm)\n",
    "",
    fails=ALL_OF_OVERLAP,
    says="broadcast rank 0's when the object is made",
)
slip(
    "broadcasts what learns only",
    "broadcast_parameters(model.parameters(), comm)",
    "broadcast_parameters([param for param in model.parameters() if param.requires_grad], comm)",
    fails=ALL_OF_OVERLAP,
    says="still has its own weights",
)
slip(
    "nothing before synchronize",
    "        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):\n"
    "            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))\n"
    "        any(flight.advance() for flight in self.flights)\n",
    "",
    fails=("sends_before_the_last_gradient", "communication_is_hidden"),
    says="and the last gradient comes at",
)
slip(
    "waits in the hook for all of it",
    "        any(flight.advance() for flight in self.flights)",
    "            self.flights[-1].finish()",
    "        for flight in self.flights:\n            flight.finish()",
    "            self.flights[-1].finish()",
    fails="communication_is_hidden",
    says="the backward pass stops",
)
slip(
    "unused parameters are waited for",
    "        for bucket in self.buckets[len(self.flights) :]:\n"
    "            self.flights.append(InFlight(bucket, self.n, self.comm))\n",
    "",
    fails="awkward_parameters",
    says="one machine that trains on all ranks'",
)
slip(
    "a bucket starts with its first gradient",
    "self.ready.add(param)\n"
    "        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):",
    "k = next(k for k, bucket in enumerate(self.buckets) if any(param is other for other in bucket))\n"
    "        while len(self.flights) <= k:",
    fails=("results_unchanged", "awkward_parameters", *TIMED),
    says="one machine that trains on all ranks'",
)
slip(
    "whatever is ready goes first",
    "self.n, self.ready, self.flights = len(x), set(), []",
    "self.n, self.ready, self.flights, self.open = len(x), set(), [], list(self.buckets)",
    "while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):\n"
    "            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))",
    "for bucket in list(self.open):\n"
    "            if self.ready.issuperset(bucket):\n"
    "                self.open.remove(bucket)\n"
    "                self.flights.append(InFlight(bucket, self.n, self.comm))",
    "for bucket in self.buckets[len(self.flights) :]:",
    "for bucket in self.open:",
    fails="awkward_parameters",
    says="both sides need the same",
)
slip(
    "every rank counts the same",
    "self.n, self.ready, self.flights = len(x), set(), []",
    "self.n, self.ready, self.flights = 1, set(), []",
    fails=("results_unchanged", *TIMED, "awkward_parameters"),
    says="the mean of the ranks' means",
)
slip(
    "forgets what was ready in the step before",
    "self.model, self.comm = model, comm",
    "self.model, self.comm, self.ready = model, comm, set()",
    "self.n, self.ready, self.flights = len(x), set(), []",
    "self.n, self.flights = len(x), []",
    fails=("results_unchanged", *TIMED, "awkward_parameters"),
    says="after 3 steps",
)
slip(
    "a bucket for each parameter",
    "for bucket in self.buckets:",
    "self.buckets = [[param] for bucket in self.buckets for param in bucket]\n        for bucket in self.buckets:",
    fails="a_message_for_each_bucket",
    says="There is one message per tensor",
)
slip(
    "counts the samples of the first batch only",
    "= len(x), set(), []",
    '= getattr(self, "n", len(x)), set(), []',
    fails=" ".join(AFTER_THE_RESULTS),
    says="1 then 3, 4 then 2 samples",
)
slip(
    "advances all running rings at once",
    "any(flight.advance() for flight in self.flights)",
    "[flight.advance() for flight in self.flights]",
    fails="awkward_parameters",
    says="advance the first unfinished all-reduce only",
)
slip(
    "only the first half of the buckets leaves in hooks",
    "while len(self.flights) < len(self.buckets) and",
    "while len(self.flights) < (len(self.buckets) + 1) // 2 and",
    fails=("sends_before_the_last_gradient", "communication_is_hidden"),
    says="every bucket in the hook that completes it",
)
for mistake, where in (
    ("two ranks", "self.comm.size != 2"),
    ("twelve layers", "len(self.buckets) < 6"),
    ("networks without frozen layers", "len(list(self.model.parameters())) > sum(map(len, self.buckets))"),
    ("networks without experts", 'hasattr(self.model, "negative")'),
):
    slip(
        f"overlaps only on {mistake}",
        "self.ready.add(param)\n",
        f"if {where}:\n            return\n        self.ready.add(param)\n",
        fails=("sends_before_the_last_gradient", "communication_is_hidden"),
        says="on any number of ranks and layers",
    )
