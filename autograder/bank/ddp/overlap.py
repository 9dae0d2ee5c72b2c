"""Wrong answers to `OverlappedDDP`."""

from autograder.authoring import wrong
from autograder.bank.ddp.later import AFTER_THE_RESULTS, ALL_OF_OVERLAP, TIMED
from autograder.bank.slips import slip

OVERLAP = "ddp.OverlappedDDP"
CAP, InFlight = 25 * 2**20, None  # names of the notebook that these answers use


@wrong(OVERLAP, "replicas stay different", fails=ALL_OF_OVERLAP, says="broadcast rank 0's when the object is made")
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(OVERLAP, "broadcasts what learns only", fails=ALL_OF_OVERLAP, says="still has its own weights")
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters([param for param in model.parameters() if param.requires_grad], comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP,
    "nothing before synchronize",
    fails=("sends_before_the_last_gradient", "communication_is_hidden"),
    says="and the last gradient comes at",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(OVERLAP, "waits in the hook for all of it", fails="communication_is_hidden", says="the backward pass stops")
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
            self.flights[-1].finish()

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
            self.flights[-1].finish()


@wrong(
    OVERLAP,
    "unused parameters are waited for",
    fails="awkward_parameters",
    says="one machine that trains on all ranks'",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP,
    "a bucket starts with its first gradient",
    fails=("results_unchanged", "awkward_parameters", *TIMED),
    says="one machine that trains on all ranks'",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        k = next(k for k, bucket in enumerate(self.buckets) if any(param is other for other in bucket))
        while len(self.flights) <= k:
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(OVERLAP, "whatever is ready goes first", fails="awkward_parameters", says="both sides need the same")
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights, self.open = len(x), set(), [], list(self.buckets)
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        for bucket in list(self.open):
            if self.ready.issuperset(bucket):
                self.open.remove(bucket)
                self.flights.append(InFlight(bucket, self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.open:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP,
    "every rank counts the same",
    fails=("results_unchanged", *TIMED, "awkward_parameters"),
    says="the mean of the ranks' means",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = 1, set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP,
    "forgets what was ready in the step before",
    fails=("results_unchanged", *TIMED, "awkward_parameters"),
    says="after 3 steps",
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm, self.ready = model, comm, set()
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.flights = len(x), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


@wrong(
    OVERLAP, "a bucket for each parameter", fails="a_message_for_each_bucket", says="There is one message per tensor"
)
class OverlappedDDP:
    def __init__(self, model, comm, cap_bytes=CAP):
        self.model, self.comm = model, comm
        broadcast_parameters(model.parameters(), comm)
        self.buckets = make_buckets([param for param in model.parameters() if param.requires_grad], cap_bytes)
        self.buckets = [[param] for bucket in self.buckets for param in bucket]
        for bucket in self.buckets:
            for param in bucket:
                param.register_post_accumulate_grad_hook(self.hook)

    def __call__(self, x):
        self.n, self.ready, self.flights = len(x), set(), []
        return self.model(x)

    def hook(self, param):
        self.ready.add(param)
        while len(self.flights) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.flights)]):
            self.flights.append(InFlight(self.buckets[len(self.flights)], self.n, self.comm))
        any(flight.advance() for flight in self.flights)

    def synchronize(self):
        for bucket in self.buckets[len(self.flights) :]:
            self.flights.append(InFlight(bucket, self.n, self.comm))
        for flight in self.flights:
            flight.finish()


slip(
    OVERLAP,
    "counts the samples of the first batch only",
    "= len(x), set(), []",
    '= getattr(self, "n", len(x)), set(), []',
    fails=" ".join(AFTER_THE_RESULTS),
    says="1 then 3, 4 then 2 samples",
)
slip(
    OVERLAP,
    "advances all running rings at once",
    "any(flight.advance() for flight in self.flights)",
    "[flight.advance() for flight in self.flights]",
    fails="awkward_parameters",
    says="advance the first unfinished all-reduce only",
)
