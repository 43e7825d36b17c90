// Finds elements of the page and fills them with text.

export const find = (id) => document.getElementById(id);

export function say(id, text) {
  const element = find(id);
  if (element.textContent !== text) element.textContent = text;
}

export function fill(id, rows) {
  const table = find(id);
  const body = table.tBodies[0];
  if (table.tHead) table.tHead.hidden = !rows.length;
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    cells.forEach((text, index) => {
      const cell = document.createElement("td");
      cell.textContent = text;  // never as markup: keys are untrusted input
      const heading = table.tHead?.rows[0].cells[index];
      cell.className = heading ? heading.className : index > 0 ? "number" : "";
      row.append(cell);
    });
    return row;
  }));
  if (!rows.length && (id === "hot" || id === "slow")) {
    const row = body.insertRow();
    row.insertCell().textContent = "none yet";
  }
}
