// A picture is a still poster until its button is pressed. Moving pictures can be stopped (WCAG 2.2.2).
document.addEventListener("DOMContentLoaded", () => {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  for (const figure of document.querySelectorAll("figure.play")) {
    const button = figure.querySelector("button");
    const images = [...figure.querySelectorAll("img[data-play]")];
    if (!button || !images.length) continue;
    let playing = false;
    const set = (on) => {
      playing = on;
      button.textContent = on ? "⏸ Stop" : "▶ Play";
      button.setAttribute("aria-pressed", on);
      for (const image of images) {
        image.dataset.still ??= image.getAttribute("src");
        image.src = on ? image.dataset.play : image.dataset.still;
      }
    };
    button.hidden = false;
    button.addEventListener("click", () => set(!playing));
    if ("autoplay" in figure.dataset && !calm) set(true);
  }
});
