/* An answer beside its sources: what has the pointer or the focus shows its place there, and a place shows who rests on it. */
import { $, all } from "./dom.js";
import { tell } from "./live.js";

const sources = $("#sources");
const FAULTY = ".m-value, .m-hard, .m-soft, .m-name";

function light(pointing) {
  const place = document.getElementById(pointing.dataset.at);
  if (!place) return;
  place.classList.add("lit");
  place.classList.toggle("against", Boolean($(".m-value, .m-hard", pointing) || pointing.closest("li.hard")));
  const box = sources.getBoundingClientRect();
  const at = place.getBoundingClientRect();
  // only the sources move, and only where they scroll by themselves: what is read stays where it is
  if (getComputedStyle(sources).overflowY === "auto" && (at.top < box.top || at.bottom > box.bottom)) {
    sources.scrollTop += at.top - box.top - box.height / 3;
  }
}
const darken = () => all(".lit").forEach((one) => one.classList.remove("lit", "against"));

function point(event) {
  const pointing = event.target.closest?.("[data-at]");
  const place = event.target.closest?.(".place");
  darken();
  if (pointing) light(pointing);
  if (place) all("#answer [data-at]").forEach((one) => one.classList.toggle("lit", one.dataset.at === place.id));
}

if (sources) {
  for (const name of ["pointerover", "focusin"]) document.addEventListener(name, point);
}

/* f: the next part of the answer with something wrong in it. */
export function nextFault(step) {
  const marks = $("#answer") ? all(FAULTY, $("#answer")) : [];
  const faulty = [...new Set(marks.map((one) => one.closest("a.claim") || one))];
  if (!faulty.length) return tell("Nothing is marked as wrong in this text."), true;
  const at = faulty.indexOf(document.activeElement);
  const next = faulty[(at + (at < 0 && step < 0 ? 0 : step) + faulty.length) % faulty.length];
  if (!next.matches("a")) next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}
