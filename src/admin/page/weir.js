// Keeps a page alive: asks Weir each second, refreshes the parts that ask for it, and says when there is no answer. Every
// page works without this script.
"use strict";
(() => {
  const TICK_MS = 1000;
  // A lost connection is said after a tick and this wait at the latest.
  const PATIENCE_MS = 1500;
  const byId = (id) => document.getElementById(id);
  const [link, pause, trouble] = [byId("link"), byId("pause"), byId("trouble")];
  const regions = () => [...document.querySelectorAll("[data-live]")];
  const source = regions()[0]?.dataset.live;
  const everyMs = regions().length && 1000 * Math.max(1, Number(regions()[0].dataset.every || 2));
  let [isPaused, due, shownMs] = [false, Date.now() + everyMs, Date.now()];

  const said = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };
  const tell = (state, text) => {
    said(link, state);
    if (link) link.className = text ? "bad" : state;
    said(trouble, text);
    trouble.className = text ? "note bad" : "";
  };
  const time = (ms) => new Date(ms).toISOString().slice(11, 19) + " UTC";

  // Focus stays where it is: on the element with the same position in the new part.
  const stops = (region) => [...region.querySelectorAll("a, button, input, summary, [tabindex]")];
  const replace = (page) => {
    for (const region of regions()) {
      const next = page.getElementById(region.id);
      const isMarked = !getSelection().isCollapsed && region.contains(getSelection().anchorNode);
      if (!next || isMarked) continue;
      const stop = stops(region).indexOf(document.activeElement);
      region.className = next.className;
      region.replaceChildren(...next.childNodes);
      if (stop >= 0) stops(region)[stop]?.focus({ preventScroll: true });
    }
  };

  const ask = async () => {
    const isDue = source && !isPaused && Date.now() >= due;
    const options = { headers: { "Weir-Refresh": "1" }, redirect: "manual", cache: "no-store" };
    try {
      const answer = await fetch(isDue ? source : document.body.dataset.probe, { ...options, signal: AbortSignal.timeout(PATIENCE_MS) });
      const text = await answer.text();
      if (answer.type === "opaqueredirect") return tell("ended", "The session has ended. Load the page anew to log in. Nothing here is refreshed.");
      if (isDue && !answer.ok) return tell("stale", `Weir cannot refresh this page: it answers ${answer.status}.`);
      if (isDue) {
        replace(new DOMParser().parseFromString(text, "text/html"));
        shownMs = Date.now();
        due = shownMs + everyMs;
      }
      tell(!source ? "connected" : isPaused ? "paused" : "live", "");
    } catch {
      tell("no connection", `Weir does not answer. This page is of ${time(shownMs)}.`);
    }
  };
  const tick = async () => {
    if (!document.hidden) await ask();
    setTimeout(tick, TICK_MS);
  };

  // The values of a chart under the pointer, or at the place that the arrow keys choose.
  const read = (svg, index) => {
    const [chart, times] = [svg.closest(".chart"), svg.dataset.times.split("|")];
    const at = Math.min(Math.max(index, 0), times.length - 1);
    svg.dataset.place = at;
    chart.querySelector(".cursor").setAttribute("d", `M${(600 * at) / (times.length - 1)} 0V120`);
    said(chart.querySelector(".at"), times[at]);
    for (const value of chart.querySelectorAll("[data-values]")) said(value, value.dataset.values.split("|")[at]);
  };
  const leave = (svg) => {
    const [chart, time] = [svg.closest(".chart"), svg.closest(".chart").querySelector(".at")];
    delete svg.dataset.place;
    chart.querySelector(".cursor").setAttribute("d", "");
    said(time, time.dataset.range);
    for (const value of chart.querySelectorAll("[data-values]")) said(value, value.dataset.values.split("|").at(-1));
  };
  const plot = (event) => (event.target instanceof Element ? event.target.closest("svg[data-times]") : null);
  document.addEventListener("pointermove", (event) => {
    for (const svg of document.querySelectorAll("svg[data-place]")) if (svg !== plot(event)) leave(svg);
    const svg = plot(event);
    if (!svg) return;
    const [box, last] = [svg.getBoundingClientRect(), svg.dataset.times.split("|").length - 1];
    read(svg, Math.round((last * (event.clientX - box.left)) / box.width));
  });
  document.addEventListener("keydown", (event) => {
    const [svg, step] = [plot(event), { ArrowLeft: -1, ArrowRight: 1 }[event.key]];
    if (!svg || !step) return;
    event.preventDefault();
    read(svg, Number(svg.dataset.place ?? svg.dataset.times.split("|").length - 1) + step);
  });

  if (source && pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      isPaused = !isPaused;
      pause.textContent = isPaused ? "Resume" : "Pause";
      said(link, isPaused ? "paused" : "live");
    });
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  tick();
})();
