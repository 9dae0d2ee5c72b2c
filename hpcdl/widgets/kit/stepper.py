"""One step per click: a slider over whole numbers between a Back and a Next button."""

import ipywidgets as widgets

from hpcdl.widgets.kit.controls import Composite, slider


class Stepper(Composite):
    """Back and Next buttons around a slider whose value stays between `low` and `high`."""

    def __init__(self, label: str, value: int, low: int, high: int):
        bar = slider(label, value, low, high)
        self.back, self.next = (self._button(text, step) for text, step in (("◀ Back", -1), ("Next ▶", +1)))
        super().__init__(bar, [self.back, bar, self.next])
        self.observe(self._limit, "value")
        self._limit()

    def _button(self, text: str, step: int):
        button = widgets.Button(description=text, layout={"width": "90px"})
        button.on_click(lambda _: setattr(self.bar, "value", self.bar.value + step))
        return button

    def _limit(self, _change=None) -> None:
        self.back.disabled, self.next.disabled = self.value == self.bar.min, self.value == self.bar.max
