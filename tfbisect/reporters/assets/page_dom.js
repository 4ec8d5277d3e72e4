"use strict";
// Elements and words. Everything that comes from a trace is set as text, never as markup.

const Dom = (() => {
  function put(parent, children) {
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      parent.append(child instanceof Node ? child : String(child));
    }
    return parent;
  }

  // el("p", {class: "dim", onclick: f}, "text", otherElement)
  function el(name, options = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(options)) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value === true ? "" : value);
    }
    return put(node, children);
  }

  function svg(name, options = {}, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(options)) node.setAttribute(key, value);
    return put(node, children);
  }

  // A table with a caption; rows are lists of texts or elements.
  function table(caption, head, rows) {
    return el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
      el("table", {class: "plain"},
        el("caption", {}, caption),
        el("thead", {}, el("tr", {}, head.map((name) => el("th", {scope: "col"}, name)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))));
  }

  // A section that appears once it has something to say.
  function section(id, title, ...children) {
    const node = document.getElementById(id);
    put(node, [el("h2", {id: `${id}-title`}, title), ...children]);
    node.hidden = false;
    document.getElementById("nav").append(el("li", {}, el("a", {href: `#${id}`}, title)));
    return node;
  }

  return {el, svg, put, table, section};
})();

const Words = (() => {
  const number = (value) => Number(value).toLocaleString("en-US");
  const count = (value, one) => `${number(value)} ${one}${value === 1 ? "" : "s"}`;
  const short = (value) => {
    if (value === null || value === undefined) return "not known";
    const plain = Number(value);
    if (Number.isInteger(plain) && Math.abs(plain) < 1e15) return number(plain);
    return Number.isFinite(plain) ? plain.toPrecision(3) : String(value);
  };
  const file = (path) => path.replaceAll("\\", "/").split("/").pop();
  const last = (name) => name.split("/").pop();
  const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

  // Two runs are A and B, as in the rest of the report; more are numbered.
  const run = (at, all) => (all > 2 ? `run ${at + 1}` : `run ${"AB"[at]}`);

  // The workers of a job that differ at an op by themselves; nothing where there is one process.
  function workers(culprit, data) {
    if (!Array.isArray(culprit.tasks) || !Array.isArray(data.workers) || data.workers.length < 2) return "";
    return culprit.tasks.length === data.workers.length ? ", on all workers" : `, on ${culprit.tasks.join(" and ")} alone`;
  }

  function moment(item) {
    const parts = [];
    if (item.step !== null && item.step !== undefined) parts.push(`step ${item.step}`);
    if (item.call !== null && item.call !== undefined) parts.push(`call ${item.call}`);
    if (item.iteration && item.iteration.length) parts.push(`iteration ${item.iteration.join(".")}`);
    return parts.join(", ") || "once";
  }

  function tensor(item) {
    return item.dtype ? `${item.dtype} ${item.shape ? `[${item.shape.join(", ")}]` : ""}`.trim() : null;
  }

  function size(item) {
    if (!item || item.differing === null || item.differing === undefined) return null;
    let text = `${number(item.differing)} of ${count(item.elements, "element")} differ`;
    if (item.max_ulp !== null && item.max_ulp !== undefined) text += `, at most ${number(item.max_ulp)} ulp`;
    if (item.max_rel !== null && item.max_rel !== undefined) text += `, relative ${short(item.max_rel)}`;
    return text;
  }

  const states = {
    culprit: "culprit: equal inputs, other output",
    receiver: "differs because an input does",
    undecided: "differs, and an input was not recorded",
    unmatched: "in one run only",
    unseen: "ran, but was not recorded",
    entry: "variable or other state",
    equal: "bit-identical in both runs",
  };
  return {run, workers, number, count, short, file, last, cut, moment, tensor, size, states};
})();
