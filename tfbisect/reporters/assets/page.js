"use strict";
// Reads the data that stands in the page, draws the parts, and keeps colours and choices in step.

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement, button = document.getElementById("theme");
  const listeners = [];

  // The theme: the reader's last choice, else the system's.
  const system = matchMedia("(prefers-color-scheme: dark)");
  let asked = null;
  try { asked = localStorage.getItem("tfbisect-theme"); } catch { /* no storage for pages opened from disk */ }
  function theme(name) {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-pressed", name === "dark");
    button.setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
    listeners.forEach((listen) => listen());
  }
  theme(asked === "dark" || asked === "light" ? asked : system.matches ? "dark" : "light");
  system.addEventListener("change", () => { if (!asked) theme(system.matches ? "dark" : "light"); });
  button.addEventListener("click", () => {
    asked = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("tfbisect-theme", asked); } catch { /* see above */ }
    theme(asked);
  });

  // A part that fails (data of another version, say) says so and takes no other part with it.
  function part(name, draw) {
    try {
      return draw() || (() => {});
    } catch (error) {
      document.getElementById("unseen").after(Dom.el("p", {class: "dim"}, `The part "${name}" could not be drawn: ${error.message}`));
      return () => {};
    }
  }

  if (data.tolerance) {
    Words.states.culprit = "where the tolerance is passed";
    Words.states.receiver = "differs, within or beyond the tolerance";
  }
  const choosers = [];
  const choose = (rank) => choosers.forEach((act) => act(rank));
  choosers.push(part("answer", () => Answer.draw(data, choose)));
  part("all runs", () => More.many(data));
  part("workers", () => More.workers(data));
  part("tolerance", () => More.tolerance(data));
  part("graph", () => {
    if (!data.graph || !data.graph.nodes.length) return;
    const graph = Neighbourhood.draw(data.graph);
    choosers.push(graph.choose);
    listeners.push(graph.theme);
    window.tfbisectGraph = graph.cy; // for tests and for the curious
  });
  choosers.push(part("code", () => Answer.code(data)));
  choosers.push(part("tensor", () => Plots.tensor(data)));
  part("time", () => Plots.time(data));
  part("ops", () => { if (data.differing && data.differing.rows.length) Ops.draw(data.differing); });
  part("environment", () => Answer.environment(data));
  part("unseen", () => Answer.unseen(data));
  part("runs", () => Answer.runs(data));
  if (data.culprits.length) choose(0);
  Plots.redraw();
  listeners.push(Plots.redraw);

  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(Plots.redraw, 150);
  });
})();
