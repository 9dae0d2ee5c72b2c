// Tells the kernel whether the page is dark: JupyterLab and Notebook, VS Code, Colab. Anything else counts as light.
function isDark() {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight) return jpThemeLight === "false";
  if (vscodeThemeKind) return ["vscode-dark", "vscode-high-contrast"].includes(vscodeThemeKind);
  return document.documentElement.getAttribute("theme") === "dark";
}

function render({ model, el }) {
  el.hidden = true;
  const tell = () => {
    if (model.get("dark") === isDark()) return;
    model.set("dark", isDark());
    model.save_changes();
  };
  const observer = new MutationObserver(tell);
  observer.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] });
  observer.observe(document.documentElement, { attributeFilter: ["theme"] });
  tell();
  return () => observer.disconnect();
}

export default { render };
