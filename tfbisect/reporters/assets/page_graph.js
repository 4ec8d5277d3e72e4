"use strict";
// The ops around the culprits: drawn by cytoscape, laid out by dagre, grown by hand, usable without a mouse.

const Neighbourhood = (() => {
  const {el, svg, put, section} = Dom;
  const AT_ONCE = 12; // ops that one request shows
  const look = {
    culprit: {shape: "star", size: 46}, receiver: {shape: "round-rectangle", size: 30}, undecided: {shape: "diamond", size: 36},
    unmatched: {shape: "hexagon", size: 34}, unseen: {shape: "round-tag", size: 32}, entry: {shape: "barrel", size: 32},
    equal: {shape: "ellipse", size: 28},
  };
  const outline = {
    culprit: "8,1 10,6 15,6 11,9 13,15 8,11 3,15 5,9 1,6 6,6", receiver: "1,4 15,4 15,12 1,12", undecided: "8,1 15,8 8,15 1,8",
    unmatched: "4,2 12,2 16,8 12,14 4,14 0,8", unseen: "1,3 11,3 15,8 11,13 1,13", entry: "3,2 13,2 15,5 15,11 13,14 3,14 1,11 1,5",
    equal: "8,1 12,2 15,6 15,10 12,14 8,15 4,14 1,10 1,6 4,2",
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function style() {
    const common = {
      label: "data(label)", "font-size": 11, "text-wrap": "wrap", "text-max-width": 150, "text-valign": "bottom", "text-margin-y": 4,
      color: colour("ink"), "text-background-color": colour("paper"), "text-background-opacity": 0.85, "border-width": 2,
      "border-color": colour("paper"),
    };
    const states = Object.entries(look).map(([state, {shape, size}]) => ({
      selector: `node[state="${state}"]`, style: {shape, width: size, height: size, "text-margin-y": size / 8, "background-color": colour(state)},
    }));
    return [
      {selector: "node", style: common}, ...states,
      {selector: "edge", style: {width: 1.5, "line-color": colour("line"), "target-arrow-color": colour("line"), "target-arrow-shape": "triangle",
        "curve-style": "bezier", "arrow-scale": 0.9}},
      {selector: "edge.carries", style: {width: 2.5, "line-color": colour("receiver"), "target-arrow-color": colour("receiver")}},
      {selector: "node:selected", style: {"border-width": 4, "border-color": colour("focus")}},
    ];
  }

  function legend(used) {
    return el("ul", {class: "legend", "aria-label": "What the shapes mean"}, Object.keys(look).filter((state) => used.has(state)).map((state) =>
      el("li", {}, svg("svg", {width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true"},
        svg("polygon", {points: outline[state], style: `fill: var(--${state})`})), Words.states[state])));
  }

  function draw(graph) {
    const nodes = graph.nodes;
    const above = nodes.map(() => []), below = nodes.map(() => []);
    for (const [from, to] of graph.edges) { above[to].push(from); below[from].push(to); }
    const differs = (id) => ["culprit", "receiver", "undecided", "unmatched"].includes(nodes[id].state);
    const order = (ids) => [...ids].sort((one, two) => differs(two) - differs(one) || one - two);
    const visible = new Set();
    let chosen = 0;

    const box = el("div", {id: "graph", tabindex: 0, role: "application", "aria-describedby": "graph-help",
      "aria-label": "Graph of the ops around the culprit"});
    const tip = el("div", {id: "tip", hidden: true});
    const detail = el("div", {id: "detail", class: "panel", "aria-live": "polite"});
    const tool = (text, act, label = text) => el("button", {type: "button", onclick: act, "aria-label": label}, text);
    const tools = el("div", {class: "tools", role: "group", "aria-label": "What the graph shows"},
      tool("Show what went in", () => grow(chosen, above)), tool("Show what took it", () => grow(chosen, below)),
      tool("Start over", () => focus(start)), tool("Fit", () => cy.fit(undefined, 30), "Fit the graph into view"),
      tool("+", () => zoom(1.3), "Zoom in"), tool("−", () => zoom(1 / 1.3), "Zoom out"));
    section("neighbourhood", "Around the culprit", legend(new Set(nodes.map((node) => node.state))),
      el("p", {class: "dim", id: "graph-help"}, "Inputs stand above, what takes a value below. Click an op for its story; double-click shows more around it. "
        + "Keys: arrow up goes to what went in, arrow down to what took it, left and right to the neighbours, Enter shows more, + and − zoom."),
      tools, el("div", {class: "field"}, el("div", {}, box, tip), detail));

    const cy = cytoscape({container: box, style: style(), elements: [], minZoom: 0.1, maxZoom: 4,
      boxSelectionEnabled: false, autounselectify: false});

    const title = (node) => (node.argument && node.state !== "culprit" ? `value into ${node.op_type}` : node.op_type);

    function label(id) {
      const node = nodes[id];
      const name = Words.last(node.name);
      const unseen = [...above[id], ...below[id]].filter((other) => !visible.has(other)).length;
      return `${Words.cut(title(node), 30)}${name && name !== node.op_type ? `\n${Words.cut(name, 30)}` : ""}${unseen ? `\n+${unseen}` : ""}`;
    }

    function show(ids) {
      for (const id of ids) visible.add(id);
      const missing = [...visible].filter((id) => cy.getElementById(`n${id}`).empty());
      cy.add(missing.map((id) => ({group: "nodes", data: {id: `n${id}`, number: id, state: nodes[id].state, label: ""}})));
      for (const [from, to] of graph.edges) {
        if (visible.has(from) && visible.has(to) && cy.getElementById(`e${from}-${to}`).empty()) {
          cy.add({group: "edges", data: {id: `e${from}-${to}`, source: `n${from}`, target: `n${to}`}, classes: differs(from) && differs(to) ? "carries" : ""});
        }
      }
      cy.nodes().forEach((node) => node.data("label", label(node.data("number"))));
      cy.layout({name: "dagre", rankDir: "TB", nodeSep: 60, rankSep: 70, animate: false, fit: true, padding: 30}).run();
    }

    function grow(id, direction) {
      const more = order(direction[id]).filter((other) => !visible.has(other)).slice(0, AT_ONCE);
      if (more.length) show(more);
      select(id, false);
    }

    function zoom(factor) {
      cy.zoom({level: cy.zoom() * factor, renderedPosition: {x: box.clientWidth / 2, y: box.clientHeight / 2}});
    }

    function link(id) {
      const node = nodes[id];
      return el("li", {}, el("button", {type: "button", onclick: () => { if (!visible.has(id)) show([id]); select(id, true); }},
        el("span", {class: `state ${node.state}`}, node.state), ` ${title(node)} ${Words.last(node.name)}`));
    }

    function neighbours(title, ids, hidden) {
      if (!ids.length && !hidden) return [];
      return [el("h3", {}, title), el("ul", {class: "list"}, order(ids).map(link)),
        hidden ? el("p", {class: "dim"}, `and ${Words.count(hidden, "op")} that this report does not hold`) : null];
    }

    function select(id, move) {
      chosen = id;
      const node = nodes[id];
      cy.elements().unselect();
      const drawn = cy.getElementById(`n${id}`);
      drawn.select();
      if (move) cy.animate({center: {eles: drawn}, duration: matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 150});
      const facts = [["name", node.name], ["function", node.function], ["when", Words.moment(node)], ["tensor", Words.tensor(node)],
        ["difference", Words.size(node)], ["device", node.device.split("/device:").pop()],
        ["line", node.source ? `${Words.file(node.source.file)}:${node.source.line}` : null], ["only in run", node.only_in && node.only_in.toUpperCase()]];
      detail.replaceChildren();
      put(detail, [el("h3", {}, title(node)), el("p", {class: `state ${node.state}`}, Words.states[node.state]),
        node.source ? el("code", {class: "line"}, node.source.text.trim()) : null,
        el("dl", {}, facts.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
        neighbours("What went in", above[id], node.more_above), neighbours("What took it", below[id], node.more_below)]);
    }

    function walk(key) {
      const go = {ArrowUp: above, ArrowDown: below}[key];
      if (go) {
        const next = order(go[chosen])[0];
        if (next === undefined) return;
        if (!visible.has(next)) show([next]);
        return select(next, true);
      }
      const here = cy.getElementById(`n${chosen}`).position();
      const side = key === "ArrowLeft" ? -1 : 1;
      const row = cy.nodes().filter((node) => Math.abs(node.position("y") - here.y) < 5 && (node.position("x") - here.x) * side > 1)
        .sort((one, two) => (one.position("x") - two.position("x")) * side);
      if (row.nonempty()) select(row[0].data("number"), true);
    }

    // What is nearest, until there is enough to see: two ops far, and fewer where many stand close.
    function around(id) {
      const found = new Set([id]);
      let edge = [id];
      for (let far = 0; far < 2 && found.size < AT_ONCE; far += 1) {
        edge = edge.flatMap((each) => [...order(above[each]).slice(0, AT_ONCE / 2), ...order(below[each]).slice(0, AT_ONCE / 2)])
          .filter((each) => !found.has(each));
        edge.slice(0, 2 * AT_ONCE - found.size).forEach((each) => found.add(each));
      }
      return [...found];
    }

    let start = 0;
    function focus(id) {
      start = id;
      visible.clear();
      cy.elements().remove();
      show(around(id));
      select(id, false);
      if (cy.zoom() > 1.4) { cy.zoom(1.4); cy.center(); }
    }

    cy.on("tap", "node", (event) => select(event.target.data("number"), false));
    cy.on("dbltap", "node", (event) => { const id = event.target.data("number"); grow(id, above); grow(id, below); });
    cy.on("mouseover", "node", (event) => {
      const node = nodes[event.target.data("number")];
      tip.replaceChildren();
      put(tip, [el("strong", {}, title(node)), ` ${node.name}`, el("br"), Words.states[node.state], Words.tensor(node) ? [el("br"), Words.tensor(node)] : null,
        Words.size(node) ? [el("br"), Words.size(node)] : null]);
      const at = event.target.renderedPosition();
      tip.hidden = false;
      tip.style.left = `${Math.max(0, Math.min(at.x + 16, box.clientWidth - tip.offsetWidth))}px`;
      tip.style.top = `${at.y + 16}px`;
    });
    cy.on("mouseout drag pan zoom", () => { tip.hidden = true; });
    box.addEventListener("keydown", (event) => {
      if (event.key.startsWith("Arrow")) walk(event.key);
      else if (event.key === "Enter") { grow(chosen, above); grow(chosen, below); }
      else if (event.key === "+" || event.key === "=") zoom(1.3);
      else if (event.key === "-") zoom(1 / 1.3);
      else return;
      event.preventDefault();
    });
    return {
      cy,
      choose(rank) {
        const id = nodes.findIndex((node) => node.culprit === rank);
        if (id >= 0) focus(id);
      },
      theme() { cy.style(style()); },
    };
  }

  return {draw};
})();
