/* What somebody types is kept in this tab until it is published: a session that ends, a page that is left,
   an action that is refused or undone loses nothing of it. It leaves the tab in the form alone. */
import { $, all, body, element } from "./dom.js";

const item = $("#item");
const ALL = "groundwire.draft/";
const ofItem = item && `${ALL}${body.dataset.person}/${item.dataset.item}/`;
const key = item && ofItem + item.dataset.id; // the id is that of the revision
const original = (field) => (field.name === "content" ? $("#text").textContent : "");
const forms = () => all("#actions details");
const fields = (form) => all("textarea", form);

function keysOf(prefix) {
  return Object.keys(sessionStorage).filter((name) => name.startsWith(prefix));
}
function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) || {};
  } catch {
    return {};
  }
}
function write(name, draft) {
  try {
    if (Object.keys(draft).length) sessionStorage.setItem(name, JSON.stringify(draft));
    else sessionStorage.removeItem(name);
  } catch {
    /* there is no room: the form itself still holds it */
  }
}
const drop = (prefix) => keysOf(prefix).forEach((name) => sessionStorage.removeItem(name));

/* An approval of the text as it is would lose an edit that was not sent: on this page, or on another. */
export const unsentEdit = () => fields($("#edit") || body).some((one) => one.name === "content" && one.value !== original(one));
export const unsentEditOf = (id) =>
  keysOf(ALL).some((name) => name.endsWith(`/${id}`) && read(name).edit?.content !== undefined);

/* The action is published: nothing of it is unsent any more. */
export function published(id) {
  keysOf(ALL).filter((name) => name.endsWith(`/${id}`)).forEach((name) => sessionStorage.removeItem(name));
}

function save() {
  const draft = {};
  for (const form of forms()) {
    for (const field of fields(form)) {
      if (field.value !== original(field)) (draft[form.id] ||= {})[field.name] = field.value;
    }
  }
  write(key, draft);
}

function restore() {
  const draft = read(key);
  for (const form of forms()) {
    const kept = fields(form).filter((field) => typeof draft[form.id]?.[field.name] === "string");
    kept.forEach((field) => {
      if (!field.dataset.given) field.value = draft[form.id][field.name];
    });
    if (kept.length) tellOf(form);
  }
  if ($("#actions [data-given]")) save();
}

function tellOf(form) {
  if ($(".unsent", form)) return;
  const note = element("p", "note unsent", "What you wrote here before is back. ");
  const discard = element("button", "quiet", "Discard it");
  discard.type = "button";
  discard.addEventListener("click", () => {
    fields(form).forEach((field) => (field.value = original(field)));
    save();
    all(".unsent", form).forEach((one) => one.remove());
    fields(form)[0].focus();
  });
  note.append(discard);
  $("form", form).prepend(note);
  $("summary", form).append(element("span", "unsent", "unsent text"));
}

/* An edit of a revision that is over cannot be sent any more; its text can be read and copied. */
function showLeft() {
  const text = $("#text")?.textContent;
  for (const name of keysOf(ofItem)) {
    const draft = read(name);
    const over = name !== key;
    if (over && (!draft.edit?.content || draft.edit.content === text)) sessionStorage.removeItem(name);
    else if (over && !$("#kept")) card(name, draft.edit.content);
  }
}

function card(name, content) {
  const made = element("section", "card");
  made.id = "kept";
  const shown = element("textarea");
  shown.readOnly = true;
  shown.rows = 6;
  shown.value = content;
  shown.setAttribute("aria-label", "The text you wrote");
  const discard = element("button", "quiet", "Discard it");
  discard.addEventListener("click", () => {
    sessionStorage.removeItem(name);
    made.remove();
  });
  made.append(element("h2", "", "What you wrote was not sent"), shown, discard);
  $(".deciding").prepend(made);
}

if (item) {
  restore();
  showLeft();
  document.addEventListener("input", (event) => {
    if (event.target.closest("#actions")) save();
  });
}
document.addEventListener("submit", (event) => {
  if (event.target.matches("[action='/signout']")) drop(ALL);
});
