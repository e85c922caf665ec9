// Refreshes the part of a page that asks for it. Every page works without this script.
"use strict";
(() => {
  const live = document.querySelector("[data-refresh]");
  if (!live) return;
  const pause = document.createElement("button");
  pause.type = "button";
  pause.className = "quiet pause";
  let isPaused = false;
  const name = () => { pause.textContent = isPaused ? "Resume refreshing" : "Pause refreshing"; };
  pause.addEventListener("click", () => { isPaused = !isPaused; name(); });
  name();
  live.before(pause);
  const refresh = async () => {
    // Focus inside would be lost.
    if (isPaused || document.hidden || live.contains(document.activeElement)) return;
    try {
      const answer = await fetch(location.href, { headers: { "Weir-Refresh": "1" }, redirect: "error" });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById(live.id);
      if (next && !live.contains(document.activeElement)) live.replaceChildren(...next.childNodes);
    } catch {
      // The next refresh tries again; a page of an ended session leads to the login when it is loaded.
    }
  };
  setInterval(refresh, Number(live.dataset.refresh) * 1000);
})();
