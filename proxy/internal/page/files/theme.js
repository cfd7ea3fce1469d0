// Runs before anything is drawn, so that the page does not begin in other colours.
(() => {
  "use strict";
  const themes = ["auto", "light", "dark"];
  const stored = () => {
    try {
      return localStorage.getItem("penstock-theme");
    } catch {
      return null; // storage is off: the choice lasts as long as the page
    }
  };
  let theme = themes.includes(stored()) ? stored() : "auto";
  const apply = () => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = theme;
      button.setAttribute("aria-label", `Colours: ${theme}`);
    }
    window.dispatchEvent(new Event("theme"));
  };
  const next = () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try {
      localStorage.setItem("penstock-theme", theme);
    } catch { /* see stored */ }
    apply();
  };
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", next);
  });
  window.nextTheme = next;
})();
