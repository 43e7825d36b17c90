// Formats numbers as text.

export function short(value) {
  if (value === null || value === undefined) return "–";
  for (const [factor, unit] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (value >= factor) return trim(value / (unit === " k" ? 1e3 : factor)) + unit;
  }
  return trim(value);
}

function trim(value) {
  if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toLocaleString("en", { maximumFractionDigits: value >= 10 ? 1 : 2 });
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [factor, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= factor) return `${trim(value / factor)} ${unit}`;
  }
  return `${trim(value)} B`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 86400) return `${trim(seconds / 86400)} d`;
  if (seconds >= 3600) return `${trim(seconds / 3600)} h`;
  if (seconds >= 120) return `${trim(seconds / 60)} min`;
  if (seconds >= 1 || seconds === 0) return `${trim(seconds)} s`;
  if (seconds >= 1e-3) return `${trim(seconds * 1e3)} ms`;
  return `${trim(seconds * 1e6)} µs`;
}

export const percent = (share) => (share === null || share === undefined ? "–" : `${trim(share * 100)}\u00a0%`);
