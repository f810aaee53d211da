/* Keyboard, live news, lock and undo. Everything else works without it: pages and plain forms. */
"use strict";
(() => {
  const body = document.body;
  const page = body.dataset.page;
  const csrf = body.dataset.csrf || "";
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add("js");

  const post = (url, data) =>
    fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json", "x-csrf-token": csrf },
      body: JSON.stringify(data),
    });

  /* Sign-in: the secret stands behind the #, which no server ever sees; it is sent in a form. */
  const linkForm = $("#link-form");
  function redeem() {
    if (page !== "signin" || location.hash.length <= 20) return;
    const secret = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname); // used or not, it stays in no address
    if (!linkForm) return;
    $("#secret").value = secret;
    linkForm.requestSubmit();
  }
  redeem();
  addEventListener("hashchange", redeem); // the link was opened where this page stood already

  /* What scrolls by itself can be reached by keyboard, and so read to its end. */
  for (const box of all(".text, .table")) {
    if (box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
  }

  if (!body.dataset.live) return;

  /* The list: one item has the focus; j and k move it. */
  const rows = () => all("#list > .item");
  const opener = (row) => $(".open", row);
  const current = () => document.activeElement.closest?.("#list > .item");
  const KEPT = "groundwire.at";

  function move(step) {
    const list = rows();
    if (!list.length) return;
    const at = list.indexOf(current());
    const next = list[at < 0 ? (step > 0 ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, at + step))];
    opener(next).focus();
    next.scrollIntoView({ block: "nearest" });
  }

  function remember() {
    const row = current();
    if (row && page === "queue") sessionStorage.setItem(KEPT, String(rows().indexOf(row)));
  }

  function focusFirst() {
    if (location.hash) return;
    if (page === "item") $("#problem") ? $("#problem").focus() : $("#title").focus({ preventScroll: true });
    if (page === "confirm") $("#typed, input[type=radio]:checked, main button.primary")?.focus();
    if (page === "queue" && rows().length) {
      const list = rows();
      const at = Math.min(Number(sessionStorage.getItem(KEPT)) || 0, list.length - 1);
      const free = (row) => !row.classList.contains("doing");
      const row = list.slice(at).find(free) || list.find(free) || list[at];
      opener(row).focus({ preventScroll: row === list[0] });
    }
  }

  const seenWhole = (row) => {
    const excerpt = $(".excerpt", row);
    return row.dataset.whole === "true" && excerpt.scrollHeight <= excerpt.clientHeight + 1;
  };

  function onList(key) {
    const row = current();
    if (!row || row.classList.contains("doing") || row.classList.contains("gone")) return false;
    remember();
    const target = opener(row).href;
    if (key === "a" && page === "queue" && seenWhole(row)) {
      const form = $("#quick");
      const [id, revision] = $("input", row).value.split(":");
      form.action = `/items/${id}/actions`;
      form.elements.revision.value = revision;
      form.requestSubmit();
    } else if (key === "r" || key === "e" || key === "a") {
      const opened = { r: "reject", e: "edit" }[key];
      location.href = opened ? `${target}${target.includes("?") ? "&" : "?"}do=${opened}` : target;
    } else if (key === "x") {
      $("input", row)?.click();
    } else {
      opener(row).click();
    }
    return true;
  }

  /* One item */
  function open(name) {
    const part = $(`#${name}`);
    if (!part) return false;
    part.open = true;
    const first = $("textarea[name=content], input[type=radio]:checked", part);
    first.focus();
    return true;
  }

  function onItem(key) {
    if (key === "a") return submit($("#approve"));
    if (key === "r") return open("reject") || open("retract");
    if (key === "e") return open("edit");
    const link = { j: "#next", k: "#previous" }[key];
    if (link && $(link)) return $(link).click(), true;
    if (link) return (location.href = $("#to-queue").href), true;
    return false;
  }

  let sent = false;
  function submit(form) {
    if (!form || sent) return false;
    form.requestSubmit();
    return true;
  }
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (sent) event.preventDefault(); // a second press of the key must not act on the next item
    sent = true;
    setTimeout(() => (sent = false), 3000);
  });
  addEventListener("pageshow", () => (sent = false));

  function number(event) {
    const group = event.target.closest("fieldset") || $("details[open] fieldset") || $("fieldset");
    const choice = group && all("input[type=radio]", group)[Number(event.key) - 1];
    if (!choice) return false;
    choice.checked = true;
    choice.focus();
    return true;
  }

  const typing = (target) => target.matches?.("textarea, select, input:not([type=radio]):not([type=checkbox])");

  document.addEventListener("keydown", (event) => {
    const help = $("#help");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) {
      event.preventDefault();
      event.target.form.requestSubmit();
      return;
    }
    if (event.key === "Escape" && !help.open) {
      const part = event.target.closest("details[open]") || $("#actions details[open]");
      if (part) part.open = false;
      if (part) $("summary", part).focus();
      else if (typing(event.target)) event.target.blur();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || help.open || typing(event.target)) return;
    const key = event.key;
    if (event.repeat && key !== "j" && key !== "k") return; // a key held down must not act on the next item too
    let done = false;
    if (key === "?") done = help.showModal() || true;
    else if (key === "u") done = submit($(".outcome.held form"));
    else if (key === "q") done = (location.href = $("#to-queue")?.href || "/") && true;
    else if (key === "/" && $("#search")) done = $("#search").focus() || true;
    else if (/^[1-9]$/.test(key)) done = number(event);
    else if ($("#actions details[open]")) return; // whoever has a form open writes, wherever the focus is
    else if (page === "item") done = onItem(key);
    else if (key === "j" || key === "k") done = move(key === "j" ? 1 : -1) || true;
    else if ("oarex".includes(key) && key.length === 1) done = onList(key);
    if (done) event.preventDefault();
  });
  document.addEventListener(
    "toggle",
    (event) => {
      const form = event.target;
      const inside = form.contains(document.activeElement) && !document.activeElement.matches("summary");
      if (form.open && form.matches("#actions details") && !inside) {
        $("textarea, input:not([type=hidden]), select", form)?.focus();
      }
    },
    true,
  );
  document.addEventListener("click", (event) => {
    if (event.target.closest("#list .open")) remember();
  });

  /* There is room for the filters beside a wide list. */
  if ($("#filters") && matchMedia("(min-width: 60rem)").matches) $("#filters").open = true;

  /* Selecting several */
  const bar = $("#bulk-bar");
  function count() {
    if (!bar) return;
    const chosen = all("#list input:checked").length;
    $("#selected-count").textContent = String(chosen);
    bar.classList.toggle("none", chosen === 0);
  }
  document.addEventListener("change", count);
  count();

  /* Undo: the seconds that are left, and what became of an action, without moving anything else. */
  const outcomes = $("#outcomes");
  function element(tag, name, text) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text) made.textContent = text;
    return made;
  }
  async function refreshOutcomes() {
    const answer = await fetch(outcomes.dataset.url);
    if (!answer.ok) return;
    const { actions } = await answer.json();
    const ids = new Set(actions.map((action) => action.action_id));
    all(".outcome", outcomes).forEach((one) => ids.has(one.dataset.actionId) || one.remove());
    for (const action of actions) {
      const shown = document.getElementById(`action-${action.action_id}`);
      if (!shown || shown.dataset.state === action.state) continue;
      shown.dataset.state = action.state;
      shown.className = `outcome ${action.state}`;
      $(".said", shown).textContent = action.text;
      $("form", shown)?.remove();
      if (action.state === "refused" && action.sentence) shown.append(element("span", "sentence", action.sentence));
    }
  }

  /* Live: an event says that something changed; what it is, is asked for with this reader's rights. */
  let asking = false;
  let again = false;
  async function refresh() {
    if (asking) return void (again = true);
    asking = true;
    try {
      if (page === "queue") await refreshQueue();
      await refreshOutcomes();
    } catch {
      /* the next event asks again */
    } finally {
      asking = false;
      if (again) setTimeout(refresh, 500);
      again = false;
    }
  }
  async function refreshQueue() {
    const answer = await fetch(`/api/queue${location.search.replace(/[?&]all=1/, "")}`);
    if (!answer.ok) return;
    const queue = await answer.json();
    const there = new Map(queue.items.map((item) => [item.id, item]));
    const shown = new Set(rows().map((row) => row.dataset.id));
    const fresh = queue.items.filter((item) => !shown.has(item.id)).length;
    const gone = rows().filter((row) => !there.has(row.dataset.id));
    const cursor = /[?&]cursor=/.test(location.search);
    if (!cursor && queue.items.length < 50) gone.forEach((row) => row.classList.add("gone"));
    rows().forEach((row) => {
      const item = there.get(row.dataset.id);
      if (item) row.classList.toggle("doing", Boolean(item.doing));
    });
    $("#total").textContent = String(queue.total);
    const news = $("#news");
    news.hidden = fresh === 0;
    $("#news-count").textContent = String(fresh);
    for (const gauge of queue.gauges) {
      const drawn = all("[data-gauge]").find((one) => one.dataset.gauge === gauge.name);
      if (!drawn) continue;
      $("meter", drawn).value = gauge.used;
      $(".number", drawn).firstChild.textContent = `${gauge.used} `;
    }
  }
  $("#news")?.addEventListener("click", () => location.reload());
  const events = new EventSource(body.dataset.live);
  // the first one tells of nothing new, but what changed since this page was made is asked for by it
  events.addEventListener("change", refresh);
  addEventListener("pagehide", () => events.close());
  setInterval(() => {
    const now = Date.now();
    all(".outcome").forEach((one) => {
      if (["applied", "undone", "sent"].includes(one.dataset.state)) {
        one.dataset.since ||= now;
        if (one.dataset.state !== "sent" && now - Number(one.dataset.since) > 8000) one.remove();
      }
    });
  }, 1000);

  /* The lock is renewed while the page is open and looked at. */
  const item = $("#item");
  if (item?.dataset.lock) {
    setInterval(() => {
      if (!document.hidden) post(item.dataset.lock, {}).catch(() => {});
    }, (Number(item.dataset.lockSeconds) * 1000) / 3);
  }
  if (page === "item" && $("#actions details[open]")) open($("#actions details[open]").id);
  else focusFirst();
})();
