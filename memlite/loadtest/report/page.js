"use strict";
// Figures: show the value of the marker under the pointer, and hide or show series. Tables: copy their text.
// The page shows everything without this script as well.
const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("role", "status");
tip.hidden = true;
document.body.append(tip);

function showTip(marker) {
  tip.textContent = marker.dataset.tip;
  tip.hidden = false;
  const box = marker.getBoundingClientRect();
  const left = box.left + box.width / 2 - tip.offsetWidth / 2;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 4;
  tip.style.left = `${Math.max(4, Math.min(left, room)) + scrollX}px`;
  const above = box.top - tip.offsetHeight - 6;
  tip.style.top = `${(above < 0 ? box.bottom + 6 : above) + scrollY}px`;
}

addEventListener("pointerover", (event) => {
  const marker = event.target.closest("[data-tip]");
  if (marker) showTip(marker);
  else tip.hidden = true;
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") tip.hidden = true;
});

for (const figure of document.querySelectorAll("figure")) {
  const series = new Map();
  for (const drawn of figure.querySelectorAll("[data-series]")) {
    const name = drawn.dataset.series;
    series.set(name, [...(series.get(name) || []), drawn]);
  }
  if (series.size < 2) continue;
  const choices = document.createElement("fieldset");
  choices.className = "series";
  const legend = document.createElement("legend");
  legend.textContent = "Show";
  choices.append(legend);
  for (const [name, parts] of series) {
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      for (const part of parts) part.classList.toggle("off", !box.checked);
    });
    label.append(box, ` ${name}`);
    choices.append(label);
  }
  figure.querySelector("figcaption").after(choices);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  const text = document.getElementById(button.dataset.copy);
  const usual = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      // Not every browser gives a local file access to the clipboard: select the text instead.
      getSelection().selectAllChildren(text);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = usual; }, 3000);
  });
}
