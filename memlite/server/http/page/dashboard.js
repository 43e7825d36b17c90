// The dashboard: reads /api/history once, then follows /api/events, and shows both.
import { heat, lines } from "./charts.js";
import { fill, find, say } from "./elements.js";
import { counted, drawProxy, proxyText, shapeOf, showProxy } from "./proxy.js";
import { bytes, duration, percent, short } from "./text.js";

const CLASSES = ["get", "store", "delete", "arithmetic", "touch", "other"];
const MOST_POINTS = 720;
const state = { points: [], names: {}, edges: [], step: 5, minutes: 15, shown: "get", now: null, due: false, shape: null };

// Percentiles of durations in classes

function percentile(cells, share) {
  const total = cells.reduce((sum, [, count]) => sum + count, 0);
  if (!total) return null;
  let seen = 0;
  for (const [row, count] of cells) {
    if (seen + count >= total * share) {
      const upper = state.edges[Math.min(row, state.edges.length - 1)], lower = row ? state.edges[row - 1] : upper / 2;
      return lower * (upper / lower) ** ((total * share - seen) / count);
    }
    seen += count;
  }
  return state.edges.at(-1);
}

function together(columns) {
  const sums = new Map();
  for (const cells of columns) for (const [row, count] of cells) sums.set(row, (sums.get(row) || 0) + count);
  return [...sums.entries()].sort(([a], [b]) => a - b);
}

// Drawing

const column = (name) => state.points.map(([figures]) => [figures[0], figures[state.names[name]]]);

function drawAll() {
  state.due = false;
  const to = state.points.length ? state.points.at(-1)[0][0] : Date.now() / 1000;
  // If a server has started recently, its data fills the width, which covers at least two minutes.
  const first = state.points.length ? state.points[0][0][0] : to;
  const from = Math.max(to - state.minutes * 60, Math.min(first, to - 120));
  const within = (points) => points.filter(([time]) => time >= from);
  const common = { from, to, gap: state.step * 2.5 };
  const chart = (id, series, options) => lines(find(id), series.map(([name, figure, dash]) => ({ name, dash, points: within(column(figure)) })), { ...common, format: short, ...options });
  chart("chart-operations", [["hits", "hits_per_second"], ["misses", "misses_per_second", [6, 3]], ["stores", "stores_per_second", [2, 2]], ["others", "others_per_second", [8, 2, 2, 2]]]);
  chart("chart-ratio", [["hit ratio of reads", "hit_ratio"]], { format: percent, top: 1 });
  if (state.now && state.now.proxy) drawProxy(chart, state.now.proxy);
  else drawStore(chart);
  chart("chart-connections", [["open", "open_connections"]]);
  chart("chart-network", [["received", "received_bytes_per_second"], ["sent", "sent_bytes_per_second", [6, 3]]], { format: (value) => `${bytes(value)}/s`, bytes: true });
  chart("chart-failures", [["failed", "failures_per_second"]]);
  const cells = state.points.map(([figures, durations]) => [figures[0], durations[state.shown] || []]).filter(([time]) => time >= from);
  const series = [["median", 0.5], ["99th percentile", 0.99, [6, 3]]].map(([name, share, dash]) => ({ name, dash, points: cells.map(([time, found]) => [time, percentile(found, share)]) }));
  heat(find("chart-latency"), cells, { ...common, step: state.step, edges: state.edges, format: duration, series });
}

function drawStore(chart) {
  chart("chart-memory", [["items", "items_bytes"], ["limit", "items_limit_bytes", [6, 3]]], { format: bytes, bytes: true });
  chart("chart-evictions", [["evicted", "evictions_per_second"]]);
  chart("chart-idle", [["idle time", "evicted_idle_seconds"]], { format: duration });
}

function soon() {
  if (state.due) return;
  state.due = true;
  requestAnimationFrame(drawAll);
}

function showNow(now) {
  const before = state.now;
  state.now = now;
  const figures = now.figures, counters = now.counters;
  const kind = now.proxy ? "proxy" : "server";
  for (const one of document.querySelectorAll("[data-of]")) one.hidden = one.dataset.of !== kind;
  say("server", `${now.proxy ? proxyText(now.proxy) : now.store.url} · ${now.version} (${now.build}, ${now.event_loop}) · up ${duration(now.uptime_seconds)}`);
  say("state", now.troubles.length ? now.troubles.join(", ") : "ready");
  find("state").classList.toggle("bad", now.troubles.length > 0);
  const rates = ["hits", "misses", "stores", "others"].map((name) => figures[`${name}_per_second`]);
  say("now-operations", rates[0] === null ? "–" : `${short(rates.reduce((sum, one) => sum + one, 0))} /s`);
  say("now-mix", `${short(rates[0])} hits, ${short(rates[1])} misses, ${short(rates[2])} stores`);
  const hits = now.proxy ? counted(now.proxy, "get", "hit") : counters.get_hits;
  const reads = hits + (now.proxy ? counted(now.proxy, "get", "miss") : counters.get_misses);
  say("now-ratio", percent(figures.hit_ratio));
  say("now-reads", `${reads ? percent(hits / reads) : "–"} of all ${reads.toLocaleString("en")} reads`);
  say("now-connections", (figures.open_connections ?? 0).toLocaleString("en"));
  say("now-limit", `of at most ${now.connection_limit.toLocaleString("en")}`);
  say("latency-note", `One read in ${now.sample_interval} is sampled. Brighter cells contain more commands.`);
  const recent = together(state.points.slice(-12).map(([, durations]) => durations.get || []));
  say("now-latency", duration(percentile(recent, 0.5)));
  say("now-p99", `median; 99 % under ${duration(percentile(recent, 0.99))}, last minute`);
  fill("hot", now.hot_keys.map((hot, index) => [hot.key ?? `no. ${index + 1}`, `${hot.percent} %`, short(hot.per_second)]));
  showSlow(now.slow);
  if (now.proxy) {
    showProxy(now, before);
    if (now.proxy.queue && !document.querySelector("[data-class=waiting]")) addClass("waiting");
  } else showStore(now);
  const shape = now.proxy ? shapeOf(now.proxy) : "";
  if (shape !== state.shape) soon();
  state.shape = shape;
}

function showStore(now) {
  const figures = now.figures;
  say("now-memory", bytes(figures.items_bytes));
  say("now-items", `${(figures.items ?? 0).toLocaleString("en")} items, limit ${bytes(figures.items_limit_bytes)}`);
  say("now-evictions", figures.evictions_per_second === null ? "–" : `${short(figures.evictions_per_second)} /s`);
  say("now-evicted", `${now.counters.evictions.toLocaleString("en")} in total`);
  find("failures").hidden = now.store.url.startsWith("memory:");
  fill("store", [["address", now.store.url], ...Object.entries(now.store.figures).map(([name, value]) => [name.replaceAll("_", " "), typeof value === "number" ? value.toLocaleString("en") : value])]);
  fill("requests", now.operations.map((one) => [one.operation, one.outcome, one.count.toLocaleString("en"), duration(one.mean_seconds)]));
}

function showSlow(slow) {
  find("slow-panel").hidden = slow === null;
  if (slow === null) return;
  say("slow-note", `${slow.count.toLocaleString("en")} took ${duration(slow.threshold_seconds)} or more; most recent first.`);
  fill("slow", slow.commands.map((one) => [
    one.command,
    one.key === null ? (one.keys > 1 ? `${one.keys} keys` : "") : one.key + (one.keys > 1 ? ` and ${one.keys - 1} more` : ""),
    duration(one.seconds),
    new Date(one.time * 1000).toLocaleTimeString(),
  ]));
}

// Reading data

async function readHistory() {
  const found = await (await fetch("/api/history")).json();
  state.points = found.points;
  state.step = found.step_seconds;
  state.edges = found.duration_limits_seconds;
  state.names = Object.fromEntries(found.figures.map((name, index) => [name, index]));
  soon();
}

function follow() {
  const events = new EventSource("/api/events");
  events.addEventListener("now", (event) => showNow(JSON.parse(event.data)));
  events.addEventListener("point", (event) => {
    state.points.push(JSON.parse(event.data));
    state.points.splice(0, state.points.length - MOST_POINTS);
    soon();
  });
  // The history contains the points that were missed while disconnected.
  events.addEventListener("open", () => readHistory().catch(lost));
  events.addEventListener("error", () => {
    lost();
    // The browser reconnects by itself, but not after a reply such as 503.
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 5000);
  });
}

function lost() {
  say("state", "no connection");
  find("state").classList.add("bad");
}

function choose(group, button) {
  for (const one of group.querySelectorAll("button")) one.setAttribute("aria-pressed", String(one === button));
  soon();
}

for (const button of document.querySelectorAll(".spans button")) {
  button.addEventListener("click", () => { state.minutes = Number(button.dataset.minutes); choose(button.parentElement, button); });
}

function addClass(name) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = name;
  button.dataset.class = name;
  button.setAttribute("aria-pressed", String(name === state.shown));
  button.addEventListener("click", () => { state.shown = name; choose(button.parentElement, button); });
  document.querySelector(".classes").append(button);
}

CLASSES.forEach(addClass);
window.addEventListener("resize", soon);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);

fetch("/api/now").then((reply) => reply.json()).then(showNow).catch(lost);
follow();
