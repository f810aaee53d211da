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
    const text = seconds > 0 ? `can be undone for ${seconds} s` : "its seconds are over";
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

function drawOutcome(action) {
  const shown = document.getElementById(`action-${action.action_id}`);
  if (action.state === "applied") published(action.decision_id);
  if (!shown || shown.dataset.state === action.state) return;
  shown.dataset.state = action.state;
  shown.className = `outcome ${action.state}`;
  $(".said", shown).textContent = action.text;
  all("form, .left", shown).forEach((one) => one.remove());
  if (action.state === "refused" && action.sentence) shown.append(element("span", "sentence", action.sentence));
  if (["refused", "stale", "failed", "unanswered"].includes(action.state)) shown.append(dismissal(action.action_id));
}
function dismissal(id) {
  const form = element("form", "dismiss");
  form.method = "post";
  form.action = `/actions/${id}/dismiss`;
  form.append(element("button", "quiet", "Close"));
  return form;
}
async function refreshOutcomes() {
  const answer = await fetch(outcomes.dataset.url);
  if (!answer.ok) return;
  const actions = (await answer.json()).actions.filter((action) => action.shown);
  const ids = new Set(actions.map((action) => action.action_id));
  all(".outcome[data-action-id]", outcomes).forEach((one) => ids.has(one.dataset.actionId) || one.remove());
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
/* What is not in the queue any more waits for nobody. */
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
async function refreshQueue() {
  const answer = await fetch(`/api/queue${location.search.replace(/[?&]all=1/, "")}`);
  if (!answer.ok) return;
  const queue = await answer.json();
  const there = new Map(queue.items.map((item) => [item.id, item]));
  const shown = new Set(rows().map((row) => row.dataset.id));
  const fresh = queue.items.filter((item) => !shown.has(item.id)).length;
  const cursor = /[?&]cursor=/.test(location.search);
  for (const row of rows()) {
    const item = there.get(row.dataset.id);
    if (item) drawDoing(row, item);
    else if (!cursor && queue.items.length < 50) row.classList.add("gone");
    if (!item) settle(row);
  }
  $("#total").textContent = number(queue.waiting);
  if ($("#matches")) $("#matching").textContent = number(queue.total);
  if ($("#matches")) $("#waiting").textContent = number(queue.waiting);
  $("#news").hidden = fresh === 0;
  $("#news-count").textContent = String(fresh);
  if (!shown.size && fresh) $("#bulk .empty").textContent = "New items came since this page was made.";
  queue.gauges.forEach(drawGauge);
}

/* Somebody reads the item, or writes: it is told that it moved, and nothing on the page is. */
async function refreshItem(moved) {
  const answer = await fetch(moved.dataset.url);
  if (!answer.ok) return;
  const now = await answer.json();
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

/* What went well goes away by itself; what did not, when it was read. */
function forget() {
  const now = performance.now();
  for (const one of all(".outcome")) {
    if (!["applied", "undone", "told"].includes(one.dataset.state)) continue;
    one.dataset.since ||= String(now);
    if (now - Number(one.dataset.since) > SHOWN) one.remove();
  }
}

export function follow() {
  all(".outcome.applied").forEach((one) => published(one.dataset.decisionId));
  $("#news")?.addEventListener("click", () => location.reload());
  const events = new EventSource(body.dataset.live);
  // the first one tells of nothing new, but what changed since this page was made is asked for by it
  events.addEventListener("change", refresh);
  addEventListener("pagehide", () => events.close());
  count();
  setInterval(() => (count(), forget()), 500);
}
