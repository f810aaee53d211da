/* The list: one item has the focus; j and k move it; what is selected is acted on together. */
import { $, all, page } from "./dom.js";
import { unsentEditOf } from "./drafts.js";

const KEPT = "groundwire.at";
export const rows = () => all("#list > .item");
const opener = (row) => $(".open", row);
const current = () => document.activeElement.closest?.("#list > .item");
/* The box of a group stands for all of its items. */
const chosen = () =>
  all("#list input:checked:enabled").reduce((sum, box) => sum + box.value.split(" ").length, 0);

/* From where a range is selected: the item that was last selected, or where one stood. */
let anchor = null;

export function move(step) {
  anchor = null;
  go(step);
}

function go(step) {
  const list = rows();
  if (!list.length) return;
  const at = list.indexOf(current());
  const beyond = at >= 0 && !list[at + step] && $(`.pager [rel=${step > 0 ? "next" : "prev"}]`);
  if (beyond) return sessionStorage.removeItem(KEPT), beyond.click();
  const next = list[at < 0 ? (step > 0 ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, at + step))];
  opener(next).focus();
  next.scrollIntoView({ block: "nearest" });
}

/* Select or deselect all from one item to another; an item with an action on its way is skipped. */
function mark(from, to, checked) {
  const list = rows();
  const [first, last] = [list.indexOf(from), list.indexOf(to)].sort((a, b) => a - b);
  for (const row of list.slice(Math.max(0, first), last + 1)) {
    const box = $("input", row);
    if (box && !box.disabled) box.checked = checked;
  }
  count();
}

/* Shift with j or k: the selection reaches from the first item to the current one. */
export function extend(step) {
  const row = current();
  if (!row) return go(step);
  if (!anchor?.isConnected) anchor = row;
  mark(anchor, row, false);
  go(step);
  mark(anchor, current(), true);
}

function remember() {
  const row = current();
  if (row && page === "queue") sessionStorage.setItem(KEPT, `${rows().indexOf(row)} ${row.dataset.id}`);
}

export function focusList() {
  const list = rows();
  if (!list.length) return;
  const [place, id] = (sessionStorage.getItem(KEPT) || "0").split(" ");
  const found = list.findIndex((one) => one.dataset.id === id);
  const at = found < 0 ? Math.min(Number(place) || 0, list.length - 1) : found;
  const free = (row) => !row.classList.contains("doing");
  const row = list.slice(at).find(free) || list.find(free) || list[at];
  opener(row).focus({ preventScroll: row === list[0] });
}

const seenWhole = (row) => {
  const excerpt = $(".excerpt", row);
  return row.dataset.whole === "true" && !("ownPage" in row.dataset) && excerpt.scrollHeight <= excerpt.clientHeight + 1;
};

function approve(row) {
  const form = $("#quick");
  const [id, revision] = $("input", row).value.split(":");
  form.action = `/items/${id}/actions`;
  form.elements.revision.value = revision;
  form.requestSubmit();
}

/* All that match, on other pages too: the box beside what is selected says so, and holds while all that is shown is. */
const allMatch = $("#all-match");
const markAll = () => mark(rows()[0], rows().at(-1), true);
allMatch?.addEventListener("change", () => allMatch.checked && markAll());

export function selectAll() {
  if (page !== "queue" || !rows().length) return false;
  markAll();
  if (allMatch) allMatch.checked = true;
  return count(), true;
}

export function onList(key) {
  const together = { a: "approve", r: "reject" }[key];
  if (together && chosen()) return $(`#bulk button[value=${together}]`).click(), true;
  const row = current();
  if (!row || row.classList.contains("doing") || row.classList.contains("gone")) return false;
  remember();
  const group = row.classList.contains("group");
  if (group && together) {
    $("input", row).checked = true;
    return count(), $(`#bulk button[value=${together}]`).click(), true;
  }
  const target = opener(row).href;
  const unsent = key === "a" && unsentEditOf(row.dataset.id);
  const opened = unsent ? "edit" : !group && { r: "reject", e: "edit" }[key];
  if (!unsent && key === "a" && page === "queue" && seenWhole(row)) approve(row);
  else if (opened) location.href = `${target}${target.includes("?") ? "&" : "?"}do=${opened}`;
  else if (key === "x") $("input", row)?.click();
  else opener(row).click();
  return true;
}

document.addEventListener("click", (event) => {
  if (event.target.closest("#list .open")) remember();
});

/* The address leaves out filters that are not set. */
$("#filter-form")?.addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) if (!value) formData.delete(name);
});

/* There is room for the filters beside a wide list. */
if ($("#filters") && matchMedia("(min-width: 60rem)").matches) $("#filters").open = true;

const bar = $("#bulk-bar");
function count() {
  if (!bar) return;
  if (allMatch && $("#list input:enabled:not(:checked)")) allMatch.checked = false;
  $("#selected-count").textContent = allMatch?.checked ? allMatch.dataset.count : String(chosen());
  bar.classList.toggle("none", chosen() === 0);
}
document.addEventListener("change", count);
addEventListener("pageshow", count); // a browser that goes back restores boxes, too
document.addEventListener("click", (event) => {
  if (!event.target.matches("#list input[type=checkbox]")) return;
  const row = event.target.closest(".item");
  if (event.shiftKey && anchor?.isConnected) mark(anchor, row, event.target.checked);
  else anchor = row;
});
count();
