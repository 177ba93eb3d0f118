// What is new on this page is put in its place: the server sends the HTML of the parts that
// have changed, by the ids of their elements. Without this script a reload does it.
"use strict";
(() => {
  const url = document.body.dataset.live;
  const says = document.getElementById("live");
  if (!url || !window.EventSource) return;

  let stream = null;
  let waiting = {}; // parts that cannot be replaced yet, by id

  // busy says whether somebody marks text in an element, which replacing would undo.
  const busy = (element) => {
    const marked = document.getSelection();
    return marked && !marked.isCollapsed && marked.containsNode(element, true);
  };

  const replace = () => {
    for (const [id, html] of Object.entries(waiting)) {
      const element = document.getElementById(id);
      if (element && busy(element)) continue;
      delete waiting[id];
      if (!element) continue;
      // The link that has the focus keeps it.
      const focused = element.contains(document.activeElement) && document.activeElement.getAttribute("href");
      element.innerHTML = html;
      if (focused) {
        const same = [...element.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === focused);
        if (same) same.focus({ preventScroll: true });
      }
    }
  };
  document.addEventListener("selectionchange", replace);

  const say = (text) => {
    if (says.textContent !== text) says.textContent = text;
  };

  const open = () => {
    if (stream || document.hidden) return;
    stream = new EventSource(url);
    stream.onopen = () => say("Live");
    stream.onmessage = (event) => {
      say("Live");
      Object.assign(waiting, JSON.parse(event.data));
      replace();
    };
    stream.addEventListener("gone", () => say("It is gone"));
    stream.onerror = () => {
      say("Not connected");
      if (stream && stream.readyState === EventSource.CLOSED) { // the browser tries no more
        stream = null;
        setTimeout(open, 5000);
      }
    };
  };

  // A page that nobody sees takes no connection: browsers have few of them for a server.
  const close = () => {
    if (stream) stream.close();
    stream = null;
    say("");
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
})();
