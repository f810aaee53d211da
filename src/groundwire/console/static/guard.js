/* Nothing is decided by accident: what decides waits until the page can have been seen, and a key held down decides
   nothing. It imports nothing and runs before the page is drawn, so that no click comes before it. */
{
  const WAIT = 400;
  const shown = document.documentElement.classList;
  let waiting = null;

  const appear = () => {
    shown.remove("ready");
    clearTimeout(waiting);
    waiting = setTimeout(() => shown.add("ready"), WAIT);
  };
  addEventListener("pageshow", appear);
  document.addEventListener("visibilitychange", () => document.hidden || appear());

  const drop = (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  addEventListener(
    "submit",
    (event) => {
      if (!event.target.matches("[data-decides]") || shown.contains("ready")) return;
      drop(event);
      dispatchEvent(new Event("early"));
    },
    true,
  );
  addEventListener(
    "keydown",
    (event) => {
      const newLine = event.target.matches?.("textarea") && !event.ctrlKey && !event.metaKey;
      if (event.key === "Enter" && event.repeat && !newLine) drop(event);
    },
    true,
  );
}
