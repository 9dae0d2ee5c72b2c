"""The dashboard: training on live engines under live control. The kernel stays free: a thread follows the engines."""

import threading
from functools import partial
from typing import Any

import ipywidgets as widgets

from hpcdl.cluster import ClusterError, current
from hpcdl.cluster.cluster import Cluster
from hpcdl.training import scaling
from hpcdl.training.live import LiveCommands
from hpcdl.widgets.kit.controls import columns, slider
from hpcdl.widgets.kit.live import LiveFigure
from hpcdl.widgets.kit.names import Names
from hpcdl.widgets.kit.picture import Picture
from hpcdl.widgets.kit.style import Alarm
from hpcdl.widgets.pictures import training_scaling
from hpcdl.widgets.pictures.training_programs import OnMesh, ReplicaTraining

SECONDS = 0.4  # between two pictures
LIVE = ("slow_rank", "factor")  # the controls that act on a run that is under way
BUSY = "The engines are busy with a cell: this begins when it is done. Stop gives up waiting."


class GivenUpError(Exception):
    """Stop was pressed before the engines were free."""


class Dashboard:
    """Buttons and sliders around a training on `cluster`; make it the last line of a cell.

    It trains LeNet-5 on replicas; with `options` of `run_on`, such as `model="gpt", mesh="pipeline=2"`, it trains any
    model on a mesh, and `log` is a folder for the ranks' records. `start`, `pause`, `stop`, `kill`, `scale` and
    `resume` are the buttons; `wait` returns when nothing is running. If the cluster was stopped, it switches to the
    notebook's newest one, and starts engines if there are none.
    """

    def __init__(self, cluster: "Cluster", *, log: str | None = None, **options: Any):
        self.cluster, self.commands = cluster, LiveCommands()
        self.program: OnMesh | ReplicaTraining = OnMesh(cluster, options, log) if options else ReplicaTraining()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self.picture = LiveFigure(self.program.draw, (9.6, 6.4), self.program.layout, seconds=SECONDS)
        image, size = self.picture.image, (9.6, 4.4)
        self._scaling = Picture(training_scaling.draw, size, [["speed", "efficiency"]], image=image)
        self.controls = self._make_controls()
        self.buttons = self._make_buttons()
        live = {name: self.controls[name] for name in LIVE} | {"kill": self.buttons["kill"]}
        rows = [
            self._row({name: button for name, button in self.buttons.items() if name not in live}),
            self._columns({name: control for name, control in self.controls.items() if name not in live}),
            self._columns(live),
        ]
        self.view = widgets.VBox([self.picture.frame, *rows, Names(), self.picture.theme])
        self.picture.wait(self.program.ready)
        self._show_what_is_possible()

    def _make_controls(self) -> dict:
        n = self.cluster.n
        controls = self.program.controls(n) | {
            "slow_rank": slider("a rank:", 0, 0, max(1, n - 1)),
            "factor": slider("slower by", 1.0, 1.0, 8.0, 0.5, ".1f"),
        }
        for name in LIVE:
            controls[name].observe(lambda change, name=name: self._command(**{name: change["new"]}), "value")
        return controls

    def _make_buttons(self) -> dict:
        actions = {
            "start": ("▶ start", self.start),
            "pause": ("‖ pause", self.pause),
            "stop": ("■ stop", self.stop),
            "kill": ("✕ kill that rank", self.kill),
            "strong": ("strong scaling", partial(self.scale, weak=False)),
            "weak": ("weak scaling", partial(self.scale, weak=True)),
            "resume": ("↻ continue from the checkpoint", self.resume),
        }
        buttons = {}
        for name in self.program.buttons:
            label, action = actions[name]
            buttons[name] = widgets.Button(description=label, layout={"width": "max-content"})
            buttons[name].on_click(lambda _, action=action: action())
        return buttons

    def _row(self, parts: dict):
        layout = widgets.Layout(flex_flow="row wrap", align_items="center", max_width=self.picture.image.width + "px")
        return widgets.Box(list(parts.values()), layout=layout)

    def _columns(self, parts: dict):
        return widgets.Box(list(parts.values()), layout=columns(parts.values(), self.picture.image.width + "px"))

    # -- the buttons ------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether engines work for this dashboard now."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def values(self) -> dict[str, Any]:
        """What the controls say."""
        return {name: control.value for name, control in self.controls.items()}

    def start(self) -> None:
        """Train, from the beginning."""
        self._begin(self._train)

    def resume(self) -> None:
        """Train on from the last checkpoint, perhaps on another mesh."""
        self._begin(partial(self._train, again=True))

    def scale(self, weak: bool) -> None:
        """Measure 1, 2, ... ranks beside the cost model's prediction."""
        self._begin(partial(self._scale, weak))

    def pause(self) -> None:
        """Hold all ranks before their next step, or let them continue."""
        self._command(paused=not self.commands.paused)
        self.buttons["pause"].description = "▶ continue" if self.commands.paused else "‖ pause"

    def stop(self) -> None:
        """End the run; the engines are ready for another."""
        self._stopping.set()

    def kill(self) -> None:
        """End the process of the rank that the slider names, as a crash would."""
        self._command(kill=self.controls["slow_rank"].value)

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
            self._command(paused=False, kill=None)
            work()
        except GivenUpError:
            self.picture.wait("Stopped before it began: the engines are busy with a cell.")
        except Exception as error:  # no one would see it: this is not a cell's thread
            self.picture.wait(Alarm(short(error)))
        finally:
            self.commands = self.commands._replace(paused=False, kill=None)
            self.buttons["pause"].description = "‖ pause"
            self._show_what_is_possible(False)

    def _take_cluster(self) -> Cluster:
        """The cluster to work on, with the controls that depend on its number of engines."""
        if self.cluster.stopped:
            self.cluster = current() or self.cluster.again()
            n = self.cluster.n
            self.controls["slow_rank"].max = max(1, n - 1)
            if "ranks" in self.controls:
                self.controls["ranks"].max = n
        return self.cluster

    def _while_busy(self) -> None:
        """The engines work for a cell: say so, until they are free or stop is pressed."""
        if self._stopping.is_set():
            raise GivenUpError
        if self.picture.caption != BUSY:
            self.picture.wait(BUSY)

    def _train(self, again: bool = False) -> None:
        program, values = self.program, self.values
        state = program.fresh(values)
        if again:
            state |= {name: self.picture.state[name] for name in program.kept if name in self.picture.state}
        run = program.stream(self.cluster, values, self._path, self._while_busy, again)
        try:
            for record in run:
                if self._stopping.is_set():
                    state["said"] = "Stopped. " + program.sentence(state)
                    break
                if "paused" in record.value:
                    state["said"] = "Paused. Press continue. " + program.sentence(state)
                else:
                    state["said"] = ""
                    program.append(state, record)
                self.picture.update(state)
        except ClusterError as error:
            state["said"] = Alarm(short(error) + " Press start to begin again." * self.cluster.stopped)
        run.close()
        self.picture.update(state)
        self.picture.finish()

    def _scale(self, weak: bool) -> None:
        assert isinstance(self.program, ReplicaTraining)  # the others have no button for it
        settings = self.program.settings(self.values)
        state: dict = {"points": [], "weak": weak}
        self._scaling.render(state)
        for point in scaling.measure(self.cluster, settings, weak, self._path):
            state["points"].append(point)
            self._scaling.render(state)
            if self._stopping.is_set():
                break

    @property
    def _path(self) -> str:
        return str(self.cluster.directory / "commands.json")

    def _command(self, **changes) -> None:
        self.commands = self.commands._replace(**changes)
        if self.cluster.engines:
            self.commands.write(self._path)

    def _show_what_is_possible(self, running: bool = False) -> None:
        for name, button in self.buttons.items():
            button.disabled = running != (name in ("pause", "stop", "kill"))
        for name, control in self.controls.items():
            control.disabled = running and name not in LIVE

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return self.picture.still(self.view)


def short(error: Exception) -> str:
    """The first sentence of the report: the picture has two lines."""
    first = (str(error) or type(error).__name__).splitlines()[0]
    return first.partition(";")[0][:170].rstrip(".") + "."
