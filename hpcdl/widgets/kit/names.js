// Names for screen readers: ipywidgets writes a slider's label beside it, and leaves the handle, the number and the play
// button without one. Views appear and change after this one, so it keeps watching its picture's controls.
function name(controls) {
  for (const control of controls.querySelectorAll(".widget-slider, .jupyter-widgets-inline-hbox, .widget-inline-hbox")) {
    const label = control.querySelector(".widget-label")?.textContent.trim();
    if (!label) continue;
    for (const [part, words] of [["[role=slider]", label], [".widget-readout", `${label}, type a number`]]) {
      const found = control.querySelector(part);
      if (found && found.getAttribute("aria-label") !== words) found.setAttribute("aria-label", words);
    }
  }
  for (const button of controls.querySelectorAll(".widget-play button")) {
    const words = button.title || (button.querySelector(".fa-pause") ? "pause" : "play");
    if (button.getAttribute("aria-label") !== words) button.setAttribute("aria-label", words);
  }
}

function render({ el }) {
  el.hidden = true;
  const observer = new MutationObserver(() => name(el.parentElement));
  const begin = () => {
    if (!el.parentElement) return requestAnimationFrame(begin);
    name(el.parentElement);
    observer.observe(el.parentElement, { childList: true, subtree: true });
  };
  begin();
  return () => observer.disconnect();
}

export default { render };
