// Marks are kept in the browser by the answer's key, and exported as a sheet that `autograder marks` reads.
const articles = [...document.querySelectorAll("article")];
const questions = Number(document.body.dataset.questions);
const store = `hpcdl-written-${document.body.dataset.store}`;
const said = document.getElementById("said");
let marks = {};
try {
  marks = JSON.parse(localStorage.getItem(store)) ?? {};
} catch {
  said.textContent = "This browser keeps nothing: export before you close the page.";
}

const markOf = (article) => marks[article.dataset.key] ?? { points: {}, comment: "" };
const total = (mark) => Object.values(mark.points).reduce((sum, points) => sum + points, 0);
const isMarked = (article) => Object.keys(markOf(article).points).length === questions;

function show(article) {
  article.querySelector("form output").textContent = isMarked(article) ? total(markOf(article)) : "–";
  document.getElementById("count").textContent = `${articles.filter(isMarked).length} of ${articles.length} marked`;
}

function keep(article) {
  const points = {};
  for (const box of article.querySelectorAll("input:checked")) points[box.dataset.question] = Number(box.value);
  const comment = article.querySelector("textarea").value;
  marks[article.dataset.key] = { points, comment, digest: article.dataset.digest };
  article.querySelector(".changed").hidden = true;
  try {
    localStorage.setItem(store, JSON.stringify(marks));
  } catch {
    said.textContent = "This browser keeps nothing: export before you close the page.";
  }
  show(article);
}

for (const article of articles) {
  const mark = markOf(article);
  for (const [question, points] of Object.entries(mark.points)) {
    const box = article.querySelector(`input[data-question="${question}"][value="${points}"]`);
    if (box) box.checked = true;
  }
  article.querySelector("textarea").value = mark.comment;
  article.querySelector(".changed").hidden = !mark.digest || mark.digest === article.dataset.digest;
  article.addEventListener("input", () => keep(article));
  show(article);
}

document.getElementById("next").addEventListener("click", () => {
  const here = articles.indexOf(document.activeElement?.closest("article"));
  const open = articles.filter((article) => !isMarked(article));
  const next = open.find((article) => articles.indexOf(article) > here) ?? open[0];
  said.textContent = next ? "" : "Every answer is marked.";
  next?.scrollIntoView();
  next?.querySelector("input").focus({ preventScroll: true });
});

// A spreadsheet takes a cell that begins so for a formula.
const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + String(text).replaceAll('"', '""')}"`;

document.getElementById("export").addEventListener("click", (event) => {
  const numbers = Array.from({ length: questions }, (_, k) => k + 1);
  const rows = [["answer", "student", "lab", ...numbers, "points", "of", "comment"]];
  for (const article of articles) {
    const { key, student, lab } = article.dataset, mark = markOf(article);
    const points = numbers.map((number) => mark.points[number] ?? "");
    rows.push([key, student, lab, ...points, isMarked(article) ? total(mark) : "", event.target.dataset.most, mark.comment]);
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([rows.map((row) => row.map(cell).join(",")).join("\n") + "\n"]));
  link.download = "marks.csv";
  link.click();
  said.textContent = `Exported ${articles.filter(isMarked).length} of ${articles.length} answers.`;
});
