/* Typed text stays in this tab's session storage until its action is published or its writer signs out. */
import { $, all, body, element } from "./dom.js";

const PREFIX = `groundwire.draft/${body.dataset.person}/`;
const item = $("#item");
const fields = () => all("#actions textarea");
const original = (field) => (field.name === "content" ? $("#text").textContent : "");
const read = (id) => JSON.parse(sessionStorage.getItem(PREFIX + id) || "{}");

/* An approval of the text as it is would lose an edit that was not sent: on this page, or on another. */
export const unsentEdit = () => all("#edit [name=content]").some((one) => one.value !== original(one));
export const unsentEditOf = (id) => "content" in read(id);
export const published = (id) => sessionStorage.removeItem(PREFIX + id);

function save() {
  const typed = fields().filter((one) => one.value !== original(one)).map((one) => [one.id, one.value]);
  if (typed.length) sessionStorage.setItem(PREFIX + item.dataset.id, JSON.stringify(Object.fromEntries(typed)));
  else published(item.dataset.id);
}

if (item) {
  const draft = read(item.dataset.id);
  for (const field of fields().filter((one) => one.id in draft || one.dataset.given)) {
    if (!field.dataset.given) field.value = draft[field.id];
    $("summary", field.closest("details")).append(element("span", "unsent", "unsent text"));
  }
  save();
  document.addEventListener("input", save);
  document.addEventListener("reset", () => setTimeout(save));
}
document.addEventListener("submit", (event) => {
  if (event.target.matches("[action='/signout']")) sessionStorage.clear();
});
