/* What every part uses. */
export const body = document.body;
export const page = body.dataset.page;
export const $ = (selector, root = document) => root.querySelector(selector);
export const all = (selector, root = document) => [...root.querySelectorAll(selector)];

export const post = (url, data) =>
  fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", "x-csrf-token": body.dataset.csrf || "" },
    body: JSON.stringify(data),
  });

export const typing = (target) =>
  target.matches?.("textarea, select, input:not([type=radio]):not([type=checkbox])");

export const number = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");

export function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text) made.textContent = text;
  return made;
}
