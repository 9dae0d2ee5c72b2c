// A picture is a still poster until its button is pressed, or its slider moved. Moving pictures can be stopped (WCAG 2.2.2).
document.addEventListener("DOMContentLoaded", () => {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  for (const figure of document.querySelectorAll("figure.play")) {
    const button = figure.querySelector("button");
    const images = [...figure.querySelectorAll("img[data-play]")];
    if (!button || !images.length) continue;
    let playing = false;
    const set = (on) => {
      playing = on;
      button.textContent = on ? "■ Stop" : "▶ Play";
      button.setAttribute("aria-pressed", on);
      for (const image of images) {
        image.dataset.still ??= image.getAttribute("src");
        image.src = on ? image.dataset.play : image.dataset.still;
      }
    };
    button.hidden = false;
    button.addEventListener("click", () => set(!playing));
    slide(figure, images, () => playing && set(false));
    if ("autoplay" in figure.dataset && !calm) set(true);
  }
});

// The slider shows single frames of the animation, which is loaded when it is first moved. Browsers without ImageDecoder
// (or a page opened from a file) have the Play button only.
function slide(figure, images, stop) {
  const box = figure.querySelector(".frames");
  if (!box || !("ImageDecoder" in window) || location.protocol === "file:") return;
  const [range, output] = [box.querySelector("input"), box.querySelector("output")];
  const told = JSON.parse(range.dataset.told);
  const decoders = new Map();
  const decoder = async (url) => {
    const data = await (await fetch(url)).arrayBuffer();
    return new ImageDecoder({ data, type: "image/webp" });
  };
  const say = () => range.setAttribute("aria-valuetext", told[range.value]);
  const show = async () => {
    const image = images.find((each) => each.offsetParent) ?? images[0];
    const wanted = range.value;
    if (!decoders.has(image)) decoders.set(image, decoder(image.dataset.play));
    const { image: frame } = await (await decoders.get(image)).decode({ frameIndex: +wanted });
    const canvas = Object.assign(document.createElement("canvas"), { width: frame.displayWidth, height: frame.displayHeight });
    canvas.getContext("2d").drawImage(frame, 0, 0);
    frame.close();
    if (wanted === range.value) image.src = canvas.toDataURL();
  };
  box.hidden = false;
  say();
  range.addEventListener("input", () => {
    stop();
    say();
    output.textContent = told[range.value];
    show().catch(() => (box.hidden = true));
  });
}
