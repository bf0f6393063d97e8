// Fetches new samples from the server every second and draws them.

import { Chart, linear, logarithmic, spanOf } from "./chart.js";
import { bytes, clock, count, duration, number, percent, seconds } from "./format.js";

const POLL_MILLISECONDS = 1000;
const ANSWER_MILLISECONDS = 3000;
const SAMPLES_MAX = 600;

const $ = (id) => document.getElementById(id);
let start = null; // Start time of the server whose samples are shown.
let shown = null; // Identity of that server and its models. If it changes, the page starts over.
let taken = 0;
let samples = { unix_seconds: [] };
let totals = null;
let charts = [];
let pointed = null; // Horizontal position of the pointer on a chart, from 0 to 1.
let answered = null; // Time of the last answer.

const atLeast = (least) => (values) => linear(values, least);
const atMost = (most) => (values) => linear(values, most / 100, most);

function plan(devices, models) {
  const load = devices.map(({ name }) => ({ key: `device:${name}`, name })).slice(0, 4);
  return [
    { title: "Requests", note: "per s", show: number, series: [
      { key: "answered", name: "answered" }, { key: "overloaded", name: "overload" },
      { key: "refused", name: "refused" }, { key: "failed", name: "failed" },
      { key: "abandoned", name: "client left" }] },
    ...models.map((model) => ({ title: "Latency", note: model, show: seconds, scale: logarithmic,
      series: ["p50", "p90", "p99"].map((name) => ({ key: `${name}:${model}`, name })) })),
    { title: "Examples", note: "per s", show: number, series: [{ key: "examples", name: "answered" }] },
    { title: "Where time goes", note: "means", show: seconds, scale: logarithmic, series: [
      { key: "queue_seconds", name: "queue" }, { key: "lookup_seconds", name: "lookup" },
      { key: "dense_seconds", name: "dense" }] },
    { title: "Batch fill", show: percent, scale: atMost(1), series: [{ key: "batch_fill", name: "mean" }] },
    { title: "Examples in a batch", show: number, scale: atLeast(2), series: [{ key: "batch_examples", name: "mean" }] },
    { title: "Waiting", note: "now", show: number, scale: atLeast(10), series: [
      { key: "queued_examples", name: "examples queued" }, { key: "in_flight", name: "requests in flight" }] },
    { title: "Load", note: "share of the slots", show: percent, scale: atLeast(1), series: [
      ...load, { key: "dense_share", name: "dense" }] },
    { title: "Unknown ids", note: "of all", show: percent, scale: atMost(1), series: [
      { key: "unknown_share", name: "share" }] },
    { title: "Processor", note: "cores", show: number, scale: atLeast(1), series: [{ key: "cpu_cores", name: "busy" }] },
    { title: "Memory", note: "resident", show: bytes, series: [{ key: "resident_bytes", name: "process" }] },
    { title: "Traffic", note: "bytes per s", show: bytes, scale: atLeast(1000), series: [
      { key: "received_bytes", name: "in" }, { key: "sent_bytes", name: "out" }] },
  ];
}

const identity = (status) => JSON.stringify([status.start_unix_seconds, ...status.models]);

function begin(status) {
  [start, shown] = [status.start_unix_seconds, identity(status)];
  [taken, totals, samples] = [0, null, { unix_seconds: [] }];
  $("charts").replaceChildren();
  charts = plan(status.devices, status.models).map((chart) => new Chart($("charts"), chart));
  for (const chart of charts) {
    for (const { key } of chart.series) samples[key] = [];
    chart.svg.addEventListener("pointermove", point);
    chart.svg.addEventListener("pointerleave", () => { pointed = null; draw(); });
  }
}

function point(event) {
  const box = event.currentTarget.getBoundingClientRect();
  pointed = (event.clientX - box.left) / box.width;
  draw();
}

function add(status) {
  const fresh = Math.min(status.taken - taken, status.samples.unix_seconds?.length ?? 0);
  for (const [key, column] of Object.entries(samples)) {
    // A model that was just loaded has no sample yet.
    if (fresh > 0) column.push(...(status.samples[key]?.slice(-fresh) ?? Array(fresh).fill(null)));
    column.splice(0, Math.max(0, column.length - SAMPLES_MAX));
  }
  taken = status.taken;
}

function draw() {
  const times = samples.unix_seconds;
  if (!times.length) return;
  const span = spanOf(times);
  let at = null;
  if (pointed !== null) {
    at = times.findIndex((time) => time >= times.at(-1) - span * (1 - pointed));
    if (at < 0) at = null;
  }
  for (const chart of charts) chart.draw(samples, span, at);
}

function fill(id, rows) {
  $(id).tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) row.insertCell().append(cell);
    row.dataset.row = cells[0];
    return row;
  }));
}

function tabulate(status) {
  const before = totals ?? status;
  const passed = status.unix_seconds - before.unix_seconds;
  const rate = (now, then) => number(passed > 0 ? (now - then) / passed : null);
  const answered = status.requests.filter(({ code }) => code === "OK");
  const unanswered = status.requests.filter(({ code }) => code !== "OK");
  const counted = (requests) => count(requests.reduce((sum, each) => sum + each.count, 0));
  fill("totals", [
    ["requests answered", counted(answered)],
    ["requests not answered", counted(unanswered)],
    ["examples answered", count(status.totals.examples)],
    ["batches", count(status.totals.batches)],
    ["p50", seconds(status.quantiles.p50)],
    ["p90", seconds(status.quantiles.p90)],
    ["p99", seconds(status.quantiles.p99)],
    ["received", bytes(status.totals.bytes_received)],
    ["sent", bytes(status.totals.bytes_sent)],
    ["slow requests", count(status.totals.slow_requests)],
    ["connections refused", count(status.totals.connections_refused)],
  ]);
  const ended = status.requests.map((each, place) => ({ ...each, then: before.requests[place].count }));
  fill("requests", ended.filter((each) => each.count || each === ended[0]).map((each) =>
    [each.code, each.reason, each.priority, count(each.count), rate(each.count, each.then)]));
  fill("versions", status.versions.map((each) => [
    `${each.model} ${each.version}`,
    [...(each.is_default ? ["default"] : []), ...each.labels].join(", "),
    `${each.program}: ${each.program_why}`,
    count(each.answered), seconds(each.p99),
    each.shadow_sampled ? `${count(each.shadow_compared)} of ${count(each.shadow_sampled)}` : "–",
    each.shadow_difference === null ? "–" : each.shadow_difference.toPrecision(3)]));
  // Devices and features appear and disappear with versions.
  fill("devices", status.devices.map((each) => [
    each.name, bytes(each.table_bytes), seconds(each.lookup_seconds), count(each.rows),
    rate(each.rows, before.devices.find(({ name }) => name === each.name)?.rows ?? 0)]));
  fill("unknown", Object.entries(status.unknown_ids).map(([name, sum]) =>
    [name, count(sum), rate(sum, before.unknown_ids[name] ?? 0)]));
  totals = status;
}

function say(state, text) {
  $("state").className = state;
  $("state").textContent = text;
  document.body.classList.toggle("gone", state === "gone");
}

function show(status) {
  if (identity(status) !== shown) begin(status);
  add(status);
  $("model").textContent = status.model;
  $("version").textContent = status.version ? `version ${status.version}` : "";
  document.title = `embershard · ${status.model} ${status.version || ""}`;
  $("uptime").textContent = `up ${duration(status.unix_seconds - start)}`;
  say(status.state, status.state);
  tabulate(status);
  draw();
}

async function ask(after) {
  const answer = await fetch(`status.json?after=${after}`, {
    signal: AbortSignal.timeout(ANSWER_MILLISECONDS),
  });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

async function poll() {
  try {
    let status = await ask(taken);
    // The server or its models changed, so all their samples are needed.
    if (shown !== null && identity(status) !== shown) status = await ask(0);
    answered = status.unix_seconds;
    show(status);
  } catch {
    say("gone", answered === null ? "no answer" : `no answer since ${clock(answered)}`);
  }
  setTimeout(poll, POLL_MILLISECONDS);
}

poll();
