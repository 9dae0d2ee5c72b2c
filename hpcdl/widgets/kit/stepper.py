"""One step per click: a slider over whole numbers between a Back and a Next button."""

import ipywidgets as widgets
import traitlets

from hpcdl.widgets.kit.controls import slider


class Stepper(widgets.HBox):
    """Back and Next buttons around a slider; `value` is the slider's, and stays between `low` and `high`."""

    value = traitlets.Int()

    def __init__(self, label: str, value: int, low: int, high: int):
        self.bar = slider(label, value, low, high)
        self.back, self.next = (self._button(text, step) for text, step in (("◀ Back", -1), ("Next ▶", +1)))
        super().__init__([self.back, self.bar, self.next], layout=widgets.Layout(align_items="center"))
        traitlets.link((self.bar, "value"), (self, "value"))
        self.observe(self._limit, "value")
        self._limit()

    def _button(self, text: str, step: int):
        button = widgets.Button(description=text, layout={"width": "90px"})
        button.on_click(lambda _: setattr(self.bar, "value", self.bar.value + step))
        return button

    def _limit(self, _change=None) -> None:
        self.back.disabled, self.next.disabled = self.value == self.bar.min, self.value == self.bar.max
