/* The tour: one step after the other until somebody closes it; this browser remembers where each person is. */
import { $, all, body } from "./dom.js";

const tour = $("#tour");
const KEY = `groundwire.tour/${body.dataset.person}`;
const CLOSED = "closed";
const steps = tour ? all("li", tour) : [];

function show(step) {
  const last = step >= steps.length - 1;
  const pressed = document.activeElement === $("#tour-next");
  steps.forEach((one, at) => (one.hidden = at !== step));
  tour.hidden = !steps[step];
  $("#tour-place").textContent = `${step + 1} of ${steps.length}`;
  $("#tour-next").hidden = last;
  if (last && pressed) $("#tour-close").focus();
}

/* Close the tour for good; false where it is not shown. */
export function closeTour() {
  if (!tour || tour.hidden) return false;
  if (tour.contains(document.activeElement)) $("#main").focus();
  localStorage.setItem(KEY, CLOSED);
  return (tour.hidden = true);
}

if (tour && localStorage.getItem(KEY) !== CLOSED) {
  let at = Number(localStorage.getItem(KEY)) || 0;
  show(at);
  $("#tour-next").addEventListener("click", () => {
    localStorage.setItem(KEY, String(++at));
    show(at);
  });
  $("#tour-close").addEventListener("click", closeTour);
}
