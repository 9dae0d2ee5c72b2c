// An image that takes clicks, and keys for those without a mouse: the arrows move a crosshair, Enter or the space bar
// clicks where it stands. Positions are fractions of the image, from its top left corner. Shift means "the other one".
const STEP = 0.01;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const within = (x) => Math.min(1, Math.max(0, x));

function render({ model, el }) {
  const image = document.createElement("img");
  const cross = document.createElement("div");
  const at = { x: 0.25, y: 0.45 };
  cross.className = "hpcdl-cross";
  cross.hidden = true;
  el.classList.add("hpcdl-clicks");
  el.tabIndex = 0;
  el.setAttribute("role", "application");
  el.setAttribute("data-lm-suppress-shortcuts", "true"); // else the notebook takes the arrow keys
  el.append(image, cross);

  const show = () => {
    const old = image.src;
    image.src = URL.createObjectURL(new Blob([model.get("value")], { type: "image/png" }));
    if (old) URL.revokeObjectURL(old);
  };
  const describe = () => {
    image.alt = model.get("alt");
    image.width = Number(model.get("width"));
    el.setAttribute("aria-label", model.get("help"));
  };
  const click = (shift) => model.send({ x: at.x, y: at.y, shift });
  const move = (x, y) => {
    [at.x, at.y] = [within(x), within(y)];
    cross.style.left = `${100 * at.x}%`;
    cross.style.top = `${100 * at.y}%`;
  };

  image.draggable = false;
  image.addEventListener("click", (event) => {
    const box = image.getBoundingClientRect();
    move((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    cross.hidden = true;
    click(event.shiftKey);
  });
  el.addEventListener("keydown", (event) => {
    if (event.key in ARROWS) {
      const [right, down] = ARROWS[event.key];
      const step = event.shiftKey ? 5 * STEP : STEP;
      cross.hidden = false;
      move(at.x + right * step, at.y + (down * step * image.width) / image.height);
    } else if (event.key === "Enter" || event.key === " ") {
      cross.hidden = false;
      click(event.shiftKey);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  el.addEventListener("blur", () => (cross.hidden = true));
  model.on("change:value", show);
  model.on("change:alt change:width change:help", describe);
  move(at.x, at.y);
  describe();
  show();
  return () => URL.revokeObjectURL(image.src);
}

export default { render };
