/* Keyboard, live news, lock, drafts and undo. Everything else works without it: pages and plain forms. */
import { $, all, body, page, post, typing } from "./dom.js";
import { extend, focusList, move, onList, selectAll } from "./list.js";
import { choose, close, focusItem, onItem, openForm } from "./item.js";
import "./drafts.js";
import { nextFault } from "./answer.js";
import { follow, isAway, reached, tell } from "./live.js";
import { closeTour } from "./tour.js";

document.documentElement.classList.add("js");

/* What scrolls by itself can be reached by keyboard, and so read to its end. */
for (const box of all(".text, .table, .chosen")) {
  if (box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
}

/* One action at a time: a second press of the key must not act on the next item. */
let sent = false;
function submit(form, button) {
  if (!form || sent) return false;
  form.requestSubmit(button);
  return true;
}
document.addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  if (form.method !== "post" || form.matches(".dismiss")) return;
  if (isAway()) {
    event.preventDefault();
    reached().then((back) => back && form.requestSubmit(submitter));
    return;
  }
  if (sent) event.preventDefault();
  sent = true;
  setTimeout(() => (sent = false), 3000);
});

addEventListener("pageshow", () => (sent = false));

/* A key meant for the page before must not even begin a decision on the one that just appeared: see guard.js. */
const DECIDING = "arp";
const tooSoon = (key) => DECIDING.includes(key) && !document.documentElement.classList.contains("ready");

/* Single letters and signs can be switched off (WCAG 2.1.4); then the button opens the list of keys. */
const LETTERS = "groundwire.letters";
const letters = $("#letters");
const lettersAct = () => localStorage.getItem(LETTERS) !== "off";
if (letters) {
  letters.checked = lettersAct();
  letters.addEventListener("change", () => localStorage.setItem(LETTERS, letters.checked ? "on" : "off"));
  $("#keys").addEventListener("click", () => $("#help").showModal());
}

/* Problems are shown until somebody dismisses them. */
function dismiss(form) {
  form.closest(".outcome").remove();
  post(`/api${new URL(form.action).pathname}`, {}).catch(() => {});
}
document.addEventListener("submit", (event) => {
  if (!event.target.matches(".dismiss")) return;
  event.preventDefault();
  dismiss(event.target);
});

function undo() {
  const held = $(".outcome.held form");
  if (held) return submit(held);
  const late = $(".outcome.sent, .outcome.applied");
  tell(late ? "Too late to undo: it is published. You can retract an approval." : "Nothing to undo.");
  return true;
}

function escape(target) {
  const part = target.closest("details[open]") || openForm();
  const wrong = all(".outcome .dismiss");
  if (part) close(part);
  else if (typing(target)) target.blur();
  else if (wrong.length) wrong.forEach(dismiss);
  else closeTour();
}

function search() {
  const field = $("#search");
  if (!field) return false;
  field.focus();
  field.select();
  return true;
}

function onKey(key) {
  if (key === "?") return $("#help").showModal(), true;
  if (key === "/") return search();
  if (/^[1-9]$/.test(key)) return choose(key);
  if (openForm()) return false; // whoever has a form open writes, wherever the focus is
  if (key === "u") return undo();
  if (key === "q") return (location.href = $("#to-queue")?.href || "/"), true;
  if (key === "f" || key === "F") return nextFault(key === "f" ? 1 : -1);
  if (key === "*") return selectAll();
  if (page === "item") return onItem(key, submit);
  if (page === "queue" && (key === "J" || key === "K")) return extend(key === "J" ? 1 : -1), true;
  if (key === "j" || key === "k") return move(key === "j" ? 1 : -1), true;
  return "oarex".includes(key) && key.length === 1 && onList(key);
}

function onKeydown(event) {
  const { key, target } = event;
  if (key === "Enter" && (event.ctrlKey || event.metaKey) && target.matches("#actions textarea")) {
    event.preventDefault();
    target.form.requestSubmit();
  } else if (key === "Escape" && !$("#help").open) {
    escape(target);
  } else if (event.ctrlKey || event.metaKey || event.altKey || $("#help").open || typing(target)) {
    return;
  } else if (event.repeat && !"jkJK".includes(key)) {
    return; // a key held down must not act on the next item too
  } else if (key.length === 1 && !lettersAct()) {
    return;
  } else if (tooSoon(key)) {
    event.preventDefault();
    dispatchEvent(new Event("early"));
  } else if (onKey(key)) {
    event.preventDefault();
  }
}

function focusFirst() {
  if (location.hash) return;
  if (page === "item") focusItem();
  if (page === "confirm") $("#typed, #main input[type=radio], #main button.primary")?.focus({ preventScroll: true });
  if (page === "queue") focusList();
}

addEventListener("early", () => tell("Too early: this page had just appeared. Do it again."));

if (body.dataset.live) {
  document.addEventListener("keydown", onKeydown);
  follow();
  focusFirst();
}

/* Sign-in: the secret follows the #, which browsers send to no server; a form sends it. */
function redeem() {
  if (page !== "signin" || location.hash.length <= 20) return;
  const form = $("#link-form");
  const secret = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname); // used or not, it stays in no address
  if (!form) return;
  $("#secret").value = secret;
  form.requestSubmit();
}
redeem();
addEventListener("hashchange", redeem); // the link was opened in the tab of this page
