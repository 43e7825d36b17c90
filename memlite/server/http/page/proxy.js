// The parts for proxies only: nodes, their shares, the queue, and moves of keys.
import { ring } from "./charts.js";
import { fill, find, say } from "./elements.js";
import { bytes, duration, percent, short } from "./text.js";

export const counted = (proxy, kind, result) => proxy.commands.find((one) => one.class === kind && one.result === result)?.count ?? 0;

export function proxyText(proxy) {
  const count = proxy.nodes.reduce((sum, node) => sum + (node.role === "node" ? node.count : 0), 0);
  const copies = proxy.replicas > 1 ? `, ${proxy.replicas} copies` : "";
  return `proxy for ${count} node${count === 1 ? "" : "s"}${proxy.hash ? ` by ${proxy.hash}` : ""}${copies}${proxy.epoch === null ? "" : `, epoch ${proxy.epoch}`}`;
}

export function showProxy(now, before) {
  const proxy = now.proxy, queue = proxy.queue;
  const nodes = proxy.nodes.filter((node) => node.role === "node");
  const all = nodes.reduce((sum, node) => sum + node.count, 0), up = nodes.reduce((sum, node) => sum + node.up, 0);
  say("now-nodes", `${up} of ${all} up`);
  const down = proxy.nodes.filter((node) => node.up < node.count).map((node) => node.name);
  say("now-down", down.length ? `down: ${down.slice(0, 3).join(", ")}${down.length > 3 ? " …" : ""}` : "");
  say("now-queue", queue ? `${short(queue.length)} waiting` : "–");
  const limit = queue && queue.in_flight_limit !== null ? `${queue.in_flight} of ${queue.in_flight_limit} in flight` : `${short(now.figures.pending_requests)} in flight`;
  say("now-flight", queue ? `${limit}, ${short(queue.refused + queue.expired)} not sent` : `none; ${limit}`);
  showNodes(now, before);
  showMove(proxy.move);
  fill("commands", proxy.commands.filter((one) => one.count).map((one) => [one.class, one.result.replace("_", " "), one.count.toLocaleString("en")]));
  const rows = [["gets from several nodes", proxy.multigets], ["failed requests", proxy.failed_requests], ["parts of gets counted as misses", proxy.failed_shards], ["reads from copies", proxy.replica_reads], ["requests to the gutter", proxy.gutter_requests], ["keys with copies on all nodes", proxy.promoted_keys], ["unread replies", proxy.unread_bytes], ["clients closed for unread replies", proxy.unread_disconnects]];
  fill("proxy", rows.filter(([, value]) => value !== null).map(([name, value]) => [name, name === "unread replies" ? bytes(value) : value.toLocaleString("en")]));
}

function showNodes(now, before) {
  const seconds = before ? now.figures.time - before.figures.time : 0;
  const known = new Map((before?.proxy?.nodes ?? []).map((node) => [`${node.role} ${node.name}`, node.requests]));
  const rows = now.proxy.nodes.map((node, index) => {
    const old = known.get(`${node.role} ${node.name}`);
    const rate = seconds > 0 && old !== undefined ? Math.max(0, node.requests - old) / seconds : null;
    const whole = node.count > 1 ? `${node.up} of ${node.count} up` : node.error ? `${node.state}: ${node.error}` : node.state;
    const share = node.role === "gutter" ? "gutter" : `${percent(node.share)}${node.next_share === null ? "" : ` → ${percent(node.next_share)}`}`;
    return [`${index + 1}. ${node.name}`, whole, share, short(rate), short(node.failures), short(node.pending), node.service?.count ? duration(node.service.mean_seconds) : "–"];
  });
  fill("nodes", rows);
  now.proxy.nodes.forEach((node, index) => find("nodes").tBodies[0].rows[index].cells[1].classList.toggle("down", node.up < node.count));
}

function showMove(move) {
  find("move").hidden = !move;
  if (!move) return;
  say("move-phase", `Moving keys: phase ${move.phase}`);
  const bar = find("move-progress");
  if (move.total) bar.value = Math.min(1, move.items / move.total);
  else bar.removeAttribute("value");
  const items = move.total ? `${move.items.toLocaleString("en")} of ${move.total.toLocaleString("en")} items, ` : "";
  say("move-note", `${items}${move.requests.toLocaleString("en")} requests for moving keys. Inner ring: shares after the move.`);
}

export function drawProxy(chart, proxy) {
  chart("chart-waiting", [["in the queue", "waiting_requests"], ["in flight", "pending_requests", [6, 3]]]);
  chart("chart-nodes", [["up", "nodes_up"]]);
  const slices = proxy.nodes.filter((node) => node.role === "node");
  ring(find("ring"), slices.map((node) => ({ name: node.name, share: node.share, next: node.next_share, up: node.up === node.count })), { format: percent });
}

// The state that the ring shows; the ring is redrawn when it changes.
export const shapeOf = (proxy) => JSON.stringify(proxy.nodes.map((node) => [node.name, node.up, node.share, node.next_share]));
