// A question with a box or radio buttons, a button, and a quieter one; once it is answered, a sentence in its place.
function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function render({ model, el }) {
  const id = `hpcdl-guess-${Math.random().toString(36).slice(2)}`; // each widget is a module of its own: none can count
  const choices = model.get("choices"), unit = model.get("unit");
  const question = element(choices.length ? "legend" : "label", { textContent: model.get("question") });
  const box = element("input", { type: "text", id, inputMode: "decimal", autocomplete: "off", size: 10 });
  const options = choices.map((choice) => {
    const radio = element("input", { type: "radio", name: id, value: choice });
    return element("label", { className: "hpcdl-option" }, radio, choice);
  });
  const problem = element("p", { id: `${id}-problem`, className: "hpcdl-problem" });
  problem.setAttribute("role", "alert");
  const mine = element("button", { type: "submit", textContent: "That is my guess", className: "hpcdl-mine" });
  const see = element("button", { type: "button", textContent: "I'd rather see", className: "hpcdl-quiet" });
  const buttons = element("span", { className: "hpcdl-buttons" }, mine, see);
  const form = element("form", { noValidate: true });
  if (choices.length) {
    const className = choices.some((choice) => choice.length > 30) ? "hpcdl-long" : ""; // one below the other
    form.append(element("fieldset", { className }, question, ...options), buttons, problem);
  } else {
    question.htmlFor = id;
    box.setAttribute("aria-describedby", `${id}-unit ${id}-problem`);
    const units = element("span", { id: `${id}-unit`, className: "hpcdl-unit", textContent: unit });
    form.append(question, element("span", { className: "hpcdl-entry" }, box, units, buttons), problem);
  }
  const said = element("span", {});
  const again = element("button", { type: "button", textContent: "Change it", className: "hpcdl-quiet" });
  const answer = element("div", { className: "hpcdl-answer" }, element("b", { textContent: model.get("question") }),
    element("p", {}, said, " ", again));
  answer.setAttribute("role", "status");
  el.classList.add("hpcdl-guess");
  el.setAttribute("data-lm-suppress-shortcuts", "true"); // else the notebook takes the arrow keys
  el.append(form, answer);

  const show = () => {
    const answered = Boolean(model.get("said"));
    [form.hidden, answer.hidden] = [answered, !answered];
    said.textContent = model.get("said");
    again.hidden = model.get("seen");
    problem.textContent = model.get("problem");
    box.setAttribute("aria-invalid", String(Boolean(model.get("problem"))));
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = form.querySelector("input[type=radio]:checked");
    model.send({ guess: choices.length ? chosen?.value ?? "" : box.value });
  });
  see.addEventListener("click", () => model.send({ see: true }));
  again.addEventListener("click", () => model.send({ again: true }));
  el.addEventListener("keydown", (event) => event.stopPropagation());
  model.on("change:said change:seen change:problem", show);
  show();
}

export default { render };
