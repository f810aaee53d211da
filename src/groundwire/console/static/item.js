/* One item: its forms, its lock, and an address that can be reloaded. */
import { $, all, element, page, post } from "./dom.js";
import { unsentEdit } from "./drafts.js";
import { tell } from "./live.js";

const item = $("#item");
const text = $("#answer, #text");
const REASON = "fieldset input[name=reason]"; // the filters have a reason too, to choose from a list

/* The queue shows this row again where somebody goes back to it. */
if (item) sessionStorage.setItem("groundwire.at", `${(sessionStorage.getItem("groundwire.at") || "0").split(" ")[0]} ${item.dataset.id}`);

/* The page shows the outcome of an action at the action's address; a reload shows the item. */
if (item?.dataset.address) history.replaceState(null, "", item.dataset.address);

export function open(name) {
  const part = $(`#${name}`);
  if (!part) return false;
  part.open = true;
  $("textarea[name=content], fieldset input:checked, fieldset input", part).focus();
  // a telephone shows what is decided above the form
  if (matchMedia("(max-width: 40rem)").matches) text?.closest(".card").scrollIntoView();
  return true;
}

function openUnsent() {
  tell("Your edit is not sent: Ctrl Enter approves it. Press Approve, or discard it, to approve the text above.");
  return open("edit");
}

export const openForm = () => $("#actions details[open]");

export function close(part) {
  part.open = false;
  $("summary", part).focus();
}

/* What is long is read to its end before a key approves it. */
let isRead = !text;
function noteEnd() {
  const end = text?.scrollTop + text?.clientHeight >= text?.scrollHeight - 4;
  isRead ||= end && text.getBoundingClientRect().bottom <= innerHeight + 4;
}
document.addEventListener("scroll", noteEnd, true);
function readOn() {
  text.scrollBy({ top: text.clientHeight * 0.8 });
  text.scrollIntoView({ block: "end" });
  tell("Read the text to its end first: a scrolls on.");
  return true;
}

function guide() {
  const part = $("#guidelines");
  if (!part) return tell("This tenant has no guidelines."), true;
  part.open = !part.open;
  $("summary", part).focus();
  return true;
}

export function onItem(key, submit) {
  if (key === "a" && $("#approve") && unsentEdit()) return openUnsent();
  noteEnd();
  if (key === "a" && $("#approve") && !isRead) return readOn();
  if (key === "a") return submit($("#approve"));
  if (key === "r") return open("reject") || open("retract");
  if (key === "e") return open("edit");
  if (key === "p") return open("replace");
  if (key === "g") return guide();
  const link = { j: "#next", k: "#previous" }[key];
  if (link && $(link)) return $(link).click(), true;
  if (link) return (location.href = $("#to-queue").href), true;
  return false;
}

/* A reason is chosen by its number; none is chosen before somebody chose it. */
export function choose(key) {
  const group = document.activeElement.closest("fieldset") || $("details[open] fieldset") || $("#main fieldset");
  const choice = group && all("input[type=radio]", group)[Number(key) - 1];
  if (!choice) return false;
  choice.click();
  choice.focus();
  return true;
}
document.addEventListener(
  "invalid",
  (event) => {
    if (!event.target.matches(REASON)) return;
    event.preventDefault();
    const group = event.target.closest("fieldset");
    if ($(".missing", group)) return;
    const said = element("p", "missing");
    said.setAttribute("role", "alert");
    group.append(said);
    said.textContent = "Choose a reason first.";
    $("input", group).focus();
  },
  true,
);
document.addEventListener("change", (event) => {
  if (event.target.matches(REASON)) $(".missing", event.target.closest("fieldset"))?.remove();
});

document.addEventListener(
  "toggle",
  (event) => {
    const form = event.target;
    const inside = form.contains(document.activeElement) && !document.activeElement.matches("summary");
    if (form.open && form.matches("#actions details") && !inside) open(form.id);
  },
  true,
);

/* The lock is renewed while the page is open and looked at. */
if (item?.dataset.lock) {
  setInterval(() => {
    if (!document.hidden) post(item.dataset.lock, {}).catch(() => {});
  }, (Number(item.dataset.lockSeconds) * 1000) / 3);
}

export function focusItem() {
  const form = openForm();
  if (form) open(form.id);
  else if (unsentEdit() && $(`.outcome.undone[data-decision-id="${item.dataset.id}"]`)) open("edit");
  else if ($("#problem")) $("#problem").focus();
  else $("#title").focus({ preventScroll: page === "item" });
}
