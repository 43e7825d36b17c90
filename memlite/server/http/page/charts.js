// Draws line charts over time, heat maps and rings. The functions depend only on their arguments, not on the server.

const COLOURS = ["--blue", "--orange", "--green", "--purple"];
// Viridis, whose brightness increases evenly, also for colour-blind people.
const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
const LEFT = 62, RIGHT = 8, TOP = 28, BOTTOM = 26;

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function begin(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return { context, width, height };
}

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((top) => top >= value * 0.999);
}

function niceBytes(value) {
  let top = 1024;
  while (top < value) top *= 2;
  return top;
}

function timeAxis({ context, width, height }, from, to) {
  const inner = width - LEFT - RIGHT;
  const x = (time) => LEFT + ((time - from) / (to - from)) * inner;
  context.fillStyle = style("--muted");
  context.textAlign = "center";
  context.textBaseline = "top";
  const count = Math.max(2, Math.floor(inner / 90));
  for (let index = 0; index <= count; index++) {
    const time = from + ((to - from) * index) / count;
    const text = new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(Math.max(x(time), half), width - half), height - BOTTOM + 11);
  }
  return x;
}

function valueAxis({ context, width, height }, top, format) {
  const inner = height - TOP - BOTTOM;
  const y = (value) => TOP + inner * (1 - value / top);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let index = 0; index <= 4; index++) {
    const value = (top * index) / 4;
    context.strokeStyle = style("--line");
    context.beginPath();
    context.moveTo(LEFT, y(value));
    context.lineTo(width - RIGHT, y(value));
    context.stroke();
    context.fillStyle = style("--muted");
    context.fillText(format(value), LEFT - 6, y(value));
  }
  return y;
}

function legend({ context }, series) {
  let left = 2;
  context.textAlign = "left";
  context.textBaseline = "middle";
  series.forEach((one, index) => {
    context.strokeStyle = style(COLOURS[index]);
    context.lineWidth = 2;
    context.setLineDash(one.dash || []);
    context.beginPath();
    context.moveTo(left, 9);
    context.lineTo(left + 18, 9);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = style("--ink");
    context.fillText(one.name, left + 23, 9);
    left += 23 + context.measureText(one.name).width + 14;
  });
  context.lineWidth = 1;
}

function path(context, points, x, y, gap) {
  let last = null;
  context.beginPath();
  for (const [time, value] of points) {
    if (value === null) { last = null; continue; }
    if (last === null || time - last > gap) context.moveTo(x(time), y(value));
    else context.lineTo(x(time), y(value));
    // Make points without neighbours visible, too.
    if (last === null) context.lineTo(x(time) + 1, y(value));
    last = time;
  }
  context.stroke();
}

// Draw lines. series: [{name, points: [[time, value or null]], dash}]; from, to: unix times.
export function lines(canvas, series, { from, to, format, top, bytes, gap }) {
  const area = begin(canvas);
  const highest = Math.max(0, ...series.flatMap((one) => one.points.map(([, value]) => value ?? 0)));
  const limit = top ?? (bytes ? niceBytes(highest) : niceTop(highest));
  const y = valueAxis(area, limit, format);
  const x = timeAxis(area, from, to);
  legend(area, series);
  series.forEach((one, index) => {
    area.context.strokeStyle = style(COLOURS[index]);
    area.context.lineWidth = 1.75;
    area.context.setLineDash(one.dash || []);
    path(area.context, one.points, x, y, gap);
    area.context.setLineDash([]);
  });
  const said = series.map((one) => {
    const last = one.points.filter(([, value]) => value !== null).at(-1);
    return `${one.name}: ${last ? format(last[1]) : "none"}`;
  });
  canvas.setAttribute("aria-label", `Now ${said.join(", ")}`);
}

// Draw a heat map. columns: [[time, [[row, count]]]]; edges: the rows' upper limits in seconds.
export function heat(canvas, columns, { from, to, step, edges, format, series, gap }) {
  const area = begin(canvas);
  const { context, width, height } = area;
  const rows = columns.flatMap(([, cells]) => cells.map(([row]) => row));
  const low = Math.max(0, Math.min(...rows, 3) - 1), high = Math.min(edges.length, Math.max(...rows, low + 8) + 1);
  const inner = height - TOP - BOTTOM, size = inner / (high - low);
  const y = (row) => TOP + (high - row) * size;
  const x = timeAxis(area, from, to);
  const most = Math.max(1, ...columns.flatMap(([, cells]) => cells.map(([, count]) => count)));
  for (const [time, cells] of columns) {
    for (const [row, count] of cells) {
      context.fillStyle = shade(Math.log1p(count) / Math.log1p(most));
      const left = Math.max(LEFT, x(time - step));
      context.fillRect(left, y(row + 1), Math.max(1, x(time) - left + 0.5), Math.max(1, size - 0.5));
    }
  }
  context.fillStyle = style("--muted");
  context.textAlign = "right";
  context.textBaseline = "middle";
  const every = Math.ceil(16 / size);
  for (let row = low + 1; row < high; row += every) context.fillText(format(edges[row - 1]), LEFT - 6, y(row));
  legend(area, series);
  const place = (seconds) => {
    const row = edges.findIndex((edge) => seconds <= edge);
    if (row < 0) return y(edges.length);
    const lower = row ? edges[row - 1] : edges[0] / 2;
    return y(row + Math.log2(Math.max(seconds, lower) / lower));
  };
  series.forEach((one, index) => {
    context.strokeStyle = style("--panel");
    context.lineWidth = 4;
    path(context, one.points, x, place, gap);
    context.strokeStyle = style(COLOURS[index]);
    context.lineWidth = 2;
    context.setLineDash(one.dash || []);
    path(context, one.points, x, place, gap);
    context.setLineDash([]);
  });
  const said = series.map((one) => {
    const last = one.points.filter(([, value]) => value !== null).at(-1);
    return `${one.name}: ${last ? format(last[1]) : "none"}`;
  });
  canvas.setAttribute("aria-label", `Now ${said.join(", ")}`);
}

// Draw a ring of shares. slices: [{name, share, next, up}]; next, if not null, is drawn as an inner ring.
export function ring(canvas, slices, { format }) {
  const { context, width, height } = begin(canvas);
  const radius = Math.min(width, height) / 2 - 4;
  const moving = slices.some((one) => one.next !== null);
  context.translate(width / 2, height / 2);
  arcs(context, slices, (one) => one.share, radius, moving ? radius * 0.74 : radius * 0.55);
  if (moving) arcs(context, slices, (one) => one.next ?? 0, radius * 0.7, radius * 0.44);
  context.fillStyle = style("--ink");
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = "600 13px system-ui, sans-serif";
  const up = slices.filter((one) => one.up).length;
  context.fillText(`${up} of ${slices.length}`, 0, -8);
  context.fillText("up", 0, 9);
  canvas.setAttribute("aria-label", slices.map((one) => `${one.name}: ${format(one.share)}, ${one.up ? "up" : "down"}`).join("; ") || "none");
}

function arcs(context, slices, value, outer, inner) {
  let angle = -Math.PI / 2;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  slices.forEach((one, index) => {
    const end = angle + 2 * Math.PI * value(one);
    const middle = (angle + end) / 2, at = (outer + inner) / 2;
    context.beginPath();
    context.arc(0, 0, outer, angle, end);
    context.arc(0, 0, inner, end, angle, true);
    context.closePath();
    context.fillStyle = one.up ? style(COLOURS[index % COLOURS.length]) : style("--panel");
    context.fill();
    // Neighbouring slices may have the same colour, and slices of nodes that are down have none.
    context.strokeStyle = one.up ? style("--panel") : style("--bad");
    context.lineWidth = 2;
    context.stroke();
    if ((end - angle) * at > 16) {
      context.fillStyle = one.up ? style("--panel") : style("--bad");
      context.fillText(String(index + 1), Math.cos(middle) * at, Math.sin(middle) * at);
    }
    angle = end;
  });
  context.lineWidth = 1;
}

function shade(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const index = Math.min(Math.floor(place), VIRIDIS.length - 2), rest = place - index;
  const mixed = VIRIDIS[index].map((one, part) => Math.round(one + (VIRIDIS[index + 1][part] - one) * rest));
  return `rgb(${mixed.join(",")})`;
}
