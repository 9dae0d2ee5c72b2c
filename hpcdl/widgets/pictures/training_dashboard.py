"""The dashboard: training on live engines with a hand on it. The kernel stays free: a thread follows the engines."""

import threading
from functools import partial

import ipywidgets as widgets

from hpcdl.cluster import ClusterError, current
from hpcdl.cluster.cluster import Cluster
from hpcdl.collectives import ALL_REDUCE
from hpcdl.training import scaling
from hpcdl.training.live import Hand, Settings, train_live
from hpcdl.widgets.kit.controls import checkbox, choice, slider, stops
from hpcdl.widgets.kit.live import LiveFigure
from hpcdl.widgets.kit.names import Names
from hpcdl.widgets.kit.picture import Picture
from hpcdl.widgets.kit.style import Alarm
from hpcdl.widgets.pictures import training, training_scaling

SECONDS = 0.4  # between two pictures
HAND = ("slow_rank", "factor")  # the controls that act on a run that is under way
PATIENCE = 3600.0  # seconds that a training may take, pauses included
BUSY = "The engines are busy with a cell: this begins when it is done. Stop gives up waiting."


class GivenUpError(Exception):
    """Stop was pressed before the engines were free."""


class Dashboard:
    """Buttons and sliders around a training on `cluster`; make it the last line of a cell.

    `start`, `pause`, `stop`, `kill` and `scale` are the buttons; `wait` returns when nothing is running. If the cluster
    was stopped, it switches to the notebook's newest one, and starts engines if there are none.
    """

    def __init__(self, cluster: "Cluster"):
        self.cluster, self.hand = cluster, Hand()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        layout = [["loss", "accuracy", "rate"], ["timeline"] * 3]
        self.picture = LiveFigure(training.draw, (9.6, 6.4), layout, seconds=SECONDS)
        image, size = self.picture.image, (9.6, 4.4)
        self._scaling = Picture(training_scaling.draw, size, [["speed", "efficiency"]], image=image)
        self.controls = self._make_controls()
        self.buttons = self._make_buttons()
        hand = {name: self.controls[name] for name in HAND} | {"kill": self.buttons["kill"]}
        rows = [
            self._row({name: button for name, button in self.buttons.items() if name not in hand}),
            self._row({name: control for name, control in self.controls.items() if name not in hand}),
            self._row(hand),
        ]
        self.view = widgets.VBox([image, *rows, Names(), self.picture.theme])
        self.picture.wait("Press start: LeNet-5 learns to read digits on the engines.")
        self._show_what_is_possible()

    def _make_controls(self) -> dict:
        n = self.cluster.n
        controls = {
            "ranks": slider("ranks", n, 1, n),
            "batch": stops("batch, images", [16, 32, 64, 128, 256, 512], 64),
            "bucket_mb": stops("bucket, MB", [0.01, 0.03, 0.1, 0.2, 1.0], 1.0),
            "all_reduce": choice("all-reduce", list(ALL_REDUCE), "ring"),
            "overlap": checkbox("overlap", True),
            "slow_rank": slider("a rank:", 0, 0, max(1, n - 1)),
            "factor": slider("slower by", 1.0, 1.0, 8.0, 0.5, ".1f"),
        }
        for name in HAND:
            controls[name].observe(lambda change, name=name: self._hold(**{name: change["new"]}), "value")
        return controls

    def _make_buttons(self) -> dict:
        actions = {
            "start": ("▶ start", self.start),
            "pause": ("‖ pause", self.pause),
            "stop": ("■ stop", self.stop),
            "kill": ("✕ kill that rank", self.kill),
            "strong": ("strong scaling", partial(self.scale, weak=False)),
            "weak": ("weak scaling", partial(self.scale, weak=True)),
        }
        buttons = {}
        for name, (label, action) in actions.items():
            buttons[name] = widgets.Button(description=label, layout={"width": "max-content"})
            buttons[name].on_click(lambda _, action=action: action())
        return buttons

    def _row(self, parts: dict):
        layout = widgets.Layout(flex_flow="row wrap", align_items="center", max_width=self.picture.image.width + "px")
        return widgets.Box(list(parts.values()), layout=layout)

    # -- the buttons ------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether engines work for this dashboard now."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def settings(self) -> Settings:
        """What the controls say."""
        values = {name: control.value for name, control in self.controls.items()}
        return Settings(**{name: values[name] for name in Settings._fields if name in values})

    def start(self) -> None:
        """Train, from the beginning."""
        self._begin(self._train)

    def scale(self, weak: bool) -> None:
        """Measure 1, 2, ... ranks beside the cost model's prediction."""
        self._begin(partial(self._scale, weak))

    def pause(self) -> None:
        """Hold all ranks before their next step, or let them continue."""
        self._hold(paused=not self.hand.paused)
        self.buttons["pause"].description = "▶ go on" if self.hand.paused else "‖ pause"

    def stop(self) -> None:
        """End the run; the engines are ready for another."""
        self._stopping.set()

    def kill(self) -> None:
        """End the process of the rank that the slider names, as a crash would."""
        self._hold(kill=self.controls["slow_rank"].value)

    def wait(self, seconds: float | None = None) -> None:
        """Return when nothing runs, or after so many seconds."""
        if self._thread is not None:
            self._thread.join(seconds)

    # -- beside the kernel ------------------------------------------------------------------------------------------

    def _begin(self, work) -> None:
        if not self.running:
            self._stopping.clear()
            self.picture.wait("Waiting for the engines ..." if self._take_cluster().engines else "Starting engines ...")
            self._thread = threading.Thread(target=self._work, args=(work,), daemon=True)
            self._thread.start()
            self._show_what_is_possible(True)

    def _work(self, work) -> None:
        """Do it; what goes wrong becomes a sentence in the picture."""
        try:
            self.cluster.start()
            self._hold(paused=False, kill=None)
            work()
        except GivenUpError:
            self.picture.wait("Stopped before it began: the engines are busy with a cell.")
        except Exception as error:  # no one would see it: this is not a cell's thread
            self.picture.wait(Alarm(short(error)))
        finally:
            self.hand = self.hand._replace(paused=False, kill=None)
            self.buttons["pause"].description = "‖ pause"
            self._show_what_is_possible(False)

    def _take_cluster(self) -> Cluster:
        """The cluster to work on, with the controls that depend on its number of engines."""
        if self.cluster.stopped:
            self.cluster = current() or self.cluster.again()
            n = self.cluster.n
            self.controls["ranks"].max, self.controls["slow_rank"].max = n, max(1, n - 1)
        return self.cluster

    def _while_busy(self) -> None:
        """The engines work for a cell: say so, until they are free or stop is pressed."""
        if self._stopping.is_set():
            raise GivenUpError
        if self.picture.caption != BUSY:
            self.picture.wait(BUSY)

    def _train(self) -> None:
        state = training.fresh(self.settings.epochs)
        run = self.cluster.stream(train_live, self.settings, self._path, timeout=PATIENCE, meanwhile=self._while_busy)
        try:
            for record in run:
                if self._stopping.is_set():
                    state["said"] = "Stopped. " + training.sentence(state, state["ranks"])
                    break
                if "paused" in record.value:
                    state["said"] = "Paused. Press go on. " + training.sentence(state, state["ranks"])
                else:
                    state["said"] = ""
                    training.append(state, record)
                self.picture.update(state)
        except ClusterError as error:
            state["said"] = Alarm(short(error) + " Press start to begin anew." * self.cluster.stopped)
        run.close()
        self.picture.update(state)
        self.picture.finish()

    def _scale(self, weak: bool) -> None:
        state: dict = {"points": [], "weak": weak}
        self._scaling.render(state)
        for point in scaling.measure(self.cluster, self.settings, weak, self._path):
            state["points"].append(point)
            self._scaling.render(state)
            if self._stopping.is_set():
                break

    @property
    def _path(self) -> str:
        return str(self.cluster.directory / "hand.json")

    def _hold(self, **changes) -> None:
        self.hand = self.hand._replace(**changes)
        if self.cluster.engines:
            self.hand.write(self._path)

    def _show_what_is_possible(self, running: bool = False) -> None:
        for name, button in self.buttons.items():
            button.disabled = running != (name in ("pause", "stop", "kill"))
        for name, control in self.controls.items():
            control.disabled = running and name not in HAND

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return self.picture.still(self.view)


def short(error: Exception) -> str:
    """The first sentence of the report: the picture has two lines."""
    first = (str(error) or type(error).__name__).splitlines()[0]
    return first.partition(";")[0][:170].rstrip(".") + "."
