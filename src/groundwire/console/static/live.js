/* Live: an event says that something changed; what it is, is asked for with this reader's rights.
   Nothing that somebody reads is moved by it. */
import { $, all, body, element, number, page } from "./dom.js";
import { published } from "./drafts.js";
import { rows } from "./list.js";

const outcomes = $("#outcomes");
const SHOWN = 8000;
const WAITING = "; waiting for the gate";

/* The seconds in which something can be undone, counted here: clocks may differ. */
function countFrom(shown) {
  shown.dataset.until = String(performance.now() + Number(shown.dataset.left) * 1000);
}
function count() {
  for (const shown of all(".left")) {
    if (!shown.dataset.until) countFrom(shown);
    const seconds = Math.ceil((Number(shown.dataset.until) - performance.now()) / 1000);
    const text = seconds > 0 ? `can be undone for ${seconds} s` : "can't be undone any more";
    if (shown.textContent !== text) shown.textContent = text;
  }
}
function left(seconds) {
  const made = element("span", "left", `can be undone for ${seconds} s`);
  made.setAttribute("role", "timer");
  made.dataset.left = String(seconds);
  countFrom(made);
  return made;
}

export function tell(text) {
  all(".told", outcomes).forEach((one) => one.remove());
  const told = element("div", "outcome told");
  told.dataset.state = "told";
  told.append(element("span", "said", text));
  outcomes.prepend(told);
}

const TROUBLE = ["refused", "stale", "failed", "unanswered", "dropped"];

/* The half of a replacement that failed, and actions of other tabs, get an outcome here too. */
function added(action) {
  const made = element("div", "outcome");
  made.id = `action-${action.action_id}`;
  made.dataset.actionId = action.action_id;
  const what = element("a", "what");
  what.append(element("bdi", "", action.subject_id));
  what.href = `/items/${action.decision_id}`;
  made.append(element("span", "said"), what);
  outcomes.prepend(made);
  return made;
}

function drawOutcome(action) {
  let shown = document.getElementById(`action-${action.action_id}`);
  if (action.state === "applied") published(action.decision_id);
  if (!shown && TROUBLE.includes(action.state)) shown = added(action);
  if (!shown || shown.dataset.state === action.state) return;
  shown.dataset.state = action.state;
  shown.className = `outcome ${action.state}`;
  $(".said", shown).textContent = action.text;
  all("form, .left", shown).forEach((one) => one.remove());
  if (action.state === "refused" && action.sentence) shown.append(element("span", "sentence", action.sentence));
  if (TROUBLE.includes(action.state)) shown.append(dismissal(action.action_id));
}
function dismissal(id) {
  const form = element("form", "dismiss");
  form.method = "post";
  form.action = `/actions/${id}/dismiss`;
  form.append(element("button", "quiet", "Close"));
  return form;
}
/* Decisions that a console took and had not published when it was killed: this tab remembers what was under way. */
const UNDER_WAY = `groundwire.under-way/${body.dataset.person}`;
const LOST = "Not published: the console restarted. Look at the item, and decide again";
function drawLost(actions) {
  const known = new Set(actions.map((action) => action.action_id));
  const before = JSON.parse(sessionStorage.getItem(UNDER_WAY) || "[]");
  for (const one of before.filter((action) => !known.has(action.action_id))) {
    drawOutcome({ ...one, state: "failed", text: LOST });
    document.getElementById(`action-${one.action_id}`).dataset.lost = "true";
  }
  const now = actions.filter(({ state }) => state === "held");
  const kept = now.map(({ action_id, decision_id, subject_id }) => ({ action_id, decision_id, subject_id }));
  sessionStorage.setItem(UNDER_WAY, JSON.stringify(kept));
}

/* Ask for something; null where it was refused, which a limit of requests says. */
async function ask(url) {
  const answer = await fetch(url);
  if (answer.status === 429) tell("Too many requests: this page is refreshed again in a moment.");
  return answer.ok ? answer.json() : null;
}

async function refreshOutcomes() {
  const answer = await ask(outcomes.dataset.url);
  if (!answer) return;
  drawLost(answer.actions);
  const actions = answer.actions.filter((action) => action.shown);
  const ids = new Set(actions.map((action) => action.action_id));
  const drawn = all(".outcome[data-action-id]:not([data-lost])", outcomes);
  drawn.forEach((one) => ids.has(one.dataset.actionId) || one.remove());
  actions.forEach(drawOutcome);
}

function drawDoing(row, item) {
  row.classList.remove("gone");
  row.classList.toggle("doing", Boolean(item.doing));
  $("input", row).disabled = Boolean(item.doing);
  const shown = $(".doing-text", row);
  const held = item.undo_left !== null;
  if (shown?.dataset.text === `${item.doing} ${held}`) return;
  shown?.remove();
  if (!item.doing) return;
  const made = element("span", "doing-text", held ? `${item.doing}; ` : item.doing);
  made.dataset.text = `${item.doing} ${held}`;
  if (held) made.append(left(item.undo_left));
  $(".meta", row).append(made);
}
function drawReviewer(row, person) {
  const shown = $(".reviewing", row);
  if ((shown?.dataset.by || null) === person) return;
  shown?.remove();
  if (!person) return;
  const made = element("span", "reviewing");
  made.dataset.by = person;
  made.append(element("bdi", "", person), " has it open");
  $(".meta", row).append(made);
}
/* A row that left the queue no longer waits for the gate. */
function settle(row) {
  const shown = $(".doing-text", row);
  if (!shown?.dataset.text.includes(WAITING)) return;
  shown.dataset.text = shown.dataset.text.replace(WAITING, "");
  shown.textContent = shown.textContent.replace(WAITING, "");
}
function drawGauge(gauge) {
  const drawn = all("[data-gauge]").find((one) => one.dataset.gauge === gauge.name);
  if (!drawn) return;
  $("meter", drawn).value = gauge.used;
  $(".number", drawn).firstChild.textContent = `${number(gauge.used)} `;
}
const ASKED = 10; // rows that are not on this page of the list any more: each is asked for by its id

async function refreshQueue() {
  const queue = await ask(`/api/queue${location.search}`);
  if (!queue) return;
  const there = new Map(queue.items.map((item) => [item.id, item]));
  const idsOf = (row) => (row.dataset.ids || row.dataset.id).split(" ");
  const shown = new Set(rows().flatMap(idsOf));
  const fresh = queue.items.filter((item) => !shown.has(item.id)).length;
  const missing = [];
  for (const row of rows()) {
    const left = idsOf(row).map((id) => there.get(id)).filter(Boolean);
    const item = left.find((one) => !one.doing) || left[0];
    if (item) drawDoing(row, item), drawReviewer(row, item.reviewing);
    else if (!row.classList.contains("gone")) missing.push(row);
  }
  for (const row of missing.slice(0, ASKED)) {
    const now = await ask(`/api/items/${row.dataset.id}/standing`);
    if (now && !now.standing.startsWith(`${row.dataset.id} pending`)) row.classList.add("gone"), settle(row);
  }
  $("#total").textContent = number(queue.waiting);
  for (const who of ["own", "all"]) $(`#decided-${who}`).textContent = number(queue.progress[who]);
  if ($("#matches")) $("#matching").textContent = number(queue.total);
  if ($("#matches")) $("#waiting").textContent = number(queue.waiting);
  $("#news").hidden = fresh === 0;
  $("#news-count").textContent = String(fresh);
  if (!shown.size && fresh) $("#bulk .empty").textContent = "There are new items.";
  queue.gauges.forEach(drawGauge);
}

/* A notice appears when the item changed; the page itself does not move. */
async function refreshItem(moved) {
  const now = await ask(moved.dataset.url);
  if (!now) return;
  $("a", moved).href = `/items/${now.id}?${moved.dataset.seen}`;
  moved.hidden = now.standing === moved.dataset.standing;
}

let asking = false;
let again = false;
async function refresh() {
  if (asking) return void (again = true);
  asking = true;
  try {
    if (page === "queue") await refreshQueue();
    if ($("#moved")) await refreshItem($("#moved"));
    await refreshOutcomes();
  } catch {
    /* the next event asks again */
  } finally {
    asking = false;
    if (again) setTimeout(refresh, 500);
    again = false;
  }
}

/* Success notices disappear; problems stay until dismissed. */
function forget() {
  const now = performance.now();
  for (const one of all(".outcome")) {
    if (!["applied", "undone", "told"].includes(one.dataset.state)) continue;
    one.dataset.since ||= String(now);
    if (now - Number(one.dataset.since) > SHOWN) one.remove();
  }
}

/* A visible tab has a stream of its own; a hidden one has none, and asks once it is visible again. */
const AWAY = {
  away: "The console does not answer; retrying. Your text is kept in this tab.",
  ended: "You are signed out. Your text is kept in this tab: sign in to go on.",
};
/* Milliseconds until a stream that broke is asked for again: at first, and at most. */
const FIRST = 1000;
const MOST = 30000;
let ending = null;

function heard(news) {
  if (news in AWAY || news === "open") {
    $("#away").hidden = news === "open";
    $("#away").textContent = AWAY[news] || "";
  } else if (!document.hidden) refresh();
}

/* A broken stream does not say why: a 502 of a proxy signs nobody out. */
async function whyBroken(signal) {
  try {
    const { ok, status, type } = await fetch(outcomes.dataset.url, { redirect: "manual", signal });
    if ([401, 403].includes(status) || type === "opaqueredirect") return "ended";
    return ok ? "open" : "away";
  } catch {
    return "away";
  }
}
/* Handle the events of a stream until it breaks. */
function hear(signal) {
  return new Promise((done) => {
    const events = new EventSource(body.dataset.live);
    const end = () => (events.close(), done());
    events.addEventListener("open", () => heard("open"));
    events.addEventListener("change", () => heard("change"));
    events.addEventListener("error", end);
    signal.addEventListener("abort", end);
  });
}
/* While the console is unreachable forms are not sent: the browser's error page would replace the typed text. */
export const isAway = () => !$("#away")?.hidden && $("#away")?.textContent === AWAY.away;
export async function reached() {
  const news = await whyBroken(AbortSignal.timeout(FIRST * 5));
  if (news === "away") tell("Not sent: the console does not answer. Try again in a moment.");
  else heard(news);
  return news !== "away";
}
function pauseFor(milliseconds, signal) {
  return new Promise((done) => {
    setTimeout(done, milliseconds);
    signal.addEventListener("abort", done);
  });
}
/* Listen until the tab is hidden or its reader is signed out; reconnect with growing pauses. */
async function listen(signal) {
  let pause = FIRST;
  while (!signal.aborted) {
    const began = performance.now();
    await hear(signal);
    if (performance.now() - began > MOST) pause = FIRST;
    const news = signal.aborted ? null : await whyBroken(signal);
    if (signal.aborted) return;
    heard(news);
    if (news === "ended") return;
    if (news === "open") heard("change");
    await pauseFor(pause, signal);
    pause = Math.min(2 * pause, MOST);
  }
}
function leave() {
  ending?.abort();
  ending = null;
}
function attend() {
  if (document.hidden) return leave();
  if (ending) return;
  ending = new AbortController();
  listen(ending.signal);
  refresh(); // what changed since this page was made, or was last looked at
}

export function follow() {
  all(".outcome.applied").forEach((one) => published(one.dataset.decisionId));
  $("#news")?.addEventListener("click", () => location.reload());
  document.addEventListener("visibilitychange", attend);
  addEventListener("pageshow", attend);
  addEventListener("pagehide", leave);
  attend();
  count();
  setInterval(() => (count(), forget()), 500);
}
