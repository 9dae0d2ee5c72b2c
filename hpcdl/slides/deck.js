const sections = [...document.querySelectorAll("section")];
const place = document.getElementById("place");
let now = 0;

function show(number) {
  now = Math.max(0, Math.min(sections.length - 1, number));
  sections.forEach((section, k) => section.classList.toggle("shown", k === now));
  place.textContent = `${now + 1} / ${sections.length}`;
  history.replaceState(null, "", `#${now + 1}`);
  scrollTo(0, 0);
}

function play(figure) {
  const image = figure.querySelector("img"), button = figure.querySelector("button");
  const still = image.dataset.still ??= image.src;
  const on = image.src === still;
  image.src = on ? image.dataset.play : still;
  button.textContent = on ? "■ Stop" : "▶ Play";
}

document.addEventListener("keydown", (event) => {
  if (event.target.closest("button") && [" ", "Enter"].includes(event.key)) return;
  if (["ArrowRight", "ArrowDown", "PageDown", " "].includes(event.key)) show(now + 1);
  else if (["ArrowLeft", "ArrowUp", "PageUp"].includes(event.key)) show(now - 1);
  else if (event.key === "Home") show(0);
  else if (event.key === "End") show(sections.length - 1);
  else if (event.key === "p") sections[now].querySelectorAll("figure:has(button)").forEach(play);
});
document.getElementById("back").addEventListener("click", () => show(now - 1));
document.getElementById("next").addEventListener("click", () => show(now + 1));
document.querySelectorAll("button.play").forEach((b) => b.addEventListener("click", () => play(b.closest("figure"))));
show((parseInt(location.hash.slice(1)) || 1) - 1);
