// What scrolls sideways can be reached by Tab and scrolled with the arrow keys (WCAG 2.1.1); side bars have names.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
  const boxes = document.querySelectorAll("article pre, .table-wrapper, div.math");
  const watch = new ResizeObserver(() => {
    for (const box of boxes) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  });
  boxes.forEach((box) => watch.observe(box));
});
