"use strict";
// Plots over time, along the way to a result and of the culprit's tensor. Each is also there as a table.

const Plots = (() => {
  const {el, put, table, section} = Dom;
  let ready = false; // before the page is laid out, no plot knows how wide it is
  const drawn = []; // {box, make, plot}: to be drawn again in other colours or another width
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function axis(text, more = {}) {
    return {label: text, stroke: colour("ink"), grid: {stroke: colour("line"), width: 1}, ticks: {stroke: colour("line"), width: 1}, labelSize: 22, ...more};
  }

  function add(box, make) {
    const item = {box, make, plot: null};
    drawn.push(item);
    if (ready) redraw(item);
  }

  function redraw(item) {
    if (item.plot) item.plot.destroy();
    const width = Math.max(240, item.box.clientWidth || 600);
    const {options, values} = item.make();
    item.plot = new uPlot({width, height: 240, ...options}, values, item.box);
  }

  function remove(box) {
    const at = drawn.findIndex((item) => item.box === box);
    if (at >= 0) { if (drawn[at].plot) drawn[at].plot.destroy(); drawn.splice(at, 1); }
  }

  const whole = (_, splits) => splits.map((value) => (Number.isInteger(value) ? String(value) : ""));
  const decade = (value) => value !== null && Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;
  const decades = (_, splits) => splits.map((value) => (decade(value) ? value : null));
  const small = (_, splits) => splits.map((value) => (value === null ? "" : value >= 0.01 && value < 1e4 ? String(value) : value.toExponential(0)));
  const positive = (values) => values.map((value) => (value !== null && Number(value) > 0 && Number.isFinite(Number(value)) ? Number(value) : null));

  function folded(title, head, rows) {
    return el("details", {}, el("summary", {}, "The same as a table"), table(title, head, rows));
  }

  function lines(box, label, xText, x, series) {
    const parts = series.filter((item) => item.values.some((value) => value !== null));
    if (!parts.length) return false;
    add(box, () => ({
      options: {
        scales: {x: {time: false}, y: {distr: 3, log: 10}},
        axes: [axis(xText, {values: whole}), axis(label, {values: small, size: 60, grid: {stroke: colour("line"), width: 1, filter: decades}, ticks: {stroke: colour("line"), filter: decades}})],
        series: [{label: xText}, ...parts.map((item, at) => ({label: item.name, stroke: colour(at ? "plot2" : "plot"), width: 2, dash: at ? [6, 4] : undefined,
          points: {show: true, size: 6}, spanGaps: true, value: (_, value) => (value === null || value === undefined ? "--" : Words.short(value))}))],
      },
      values: [x, ...parts.map((item) => item.values)],
    }));
    return true;
  }

  function time(data) {
    const steps = (data.timeline || []).filter((item) => item.step !== null);
    const growth = data.growth && data.growth.points.length > 1 ? data.growth : null;
    if (!steps.length && !growth) return;
    const node = section("time", "Divergence over time");
    const two = el("div", {class: "two"});
    put(node, [two]);
    if (steps.length) perStep(data, steps, two);
    if (growth) along(growth, two);
  }

  function perStep(data, steps, two) {
    const box = el("div", {class: "plot", role: "img", "aria-label": "Bars: differing values in each step"});
    const name = (item) => (item.step === null ? "no step" : item.to === item.step ? String(item.step) : `${item.step} to ${item.to}`);
    const part = el("div", {}, el("h3", {}, "Differing values per step"), box);
    put(two, [part]);
    add(box, () => ({
      options: {
        scales: {x: {time: false, range: (_, low, high) => [low - 0.6, high + 0.6]}, y: {range: (_, low, high) => [0, Math.max(1, high * 1.05)]}},
        axes: [axis("step", {values: whole, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000]}), axis("values", {size: 64})],
        series: [{label: "step"}, {label: "differing", stroke: colour("plot"), fill: colour("plot"), paths: uPlot.paths.bars({size: [0.8, 60]}), points: {show: false}}],
      },
      values: [steps.map((item) => item.step), steps.map((item) => item.differing)],
    }));
    const all = data.timeline;
    put(part, [folded("Differing values per step", ["step", "compared", "differing", "culprits", "undecided", "largest relative error"], all.map((item) =>
      [name(item), Words.number(item.compared), Words.number(item.differing), Words.number(item.culprit), Words.number(item.undecided), Words.short(item.max_rel)]))]);
    const errors = el("div", {class: "plot", role: "img", "aria-label": "Line: the largest measured error in each step"});
    const second = el("div", {}, el("h3", {}, "Largest error per step"), errors);
    put(two, [second]);
    const measured = lines(errors, "error", "step", steps.map((item) => item.step),
      [{name: "relative", values: positive(steps.map((item) => item.max_rel))}, {name: "absolute", values: positive(steps.map((item) => item.max_abs))}]);
    if (!measured) second.replaceChildren(el("h3", {}, "Largest error per step"), el("p", {class: "dim"}, "Not known: no values of what differs were kept. Record with --values all, or with a pattern, to see it."));
  }

  function along(growth, two) {
    const box = el("div", {class: "plot", role: "img", "aria-label": "Line: the error along the way from the culprit to a result"});
    const part = el("div", {}, el("h3", {}, "Error on the way from the culprit to a result"),
      el("p", {class: "dim"}, `The way has ${Words.count(growth.events, "op")}; those whose values were kept are drawn.`), box);
    put(two, [part]);
    const points = growth.points;
    const measured = lines(box, "error", "ops from the culprit", points.map((item) => item.position),
      [{name: "relative", values: positive(points.map((item) => item.max_rel))}, {name: "absolute", values: positive(points.map((item) => item.max_abs))}]);
    if (!measured) box.replaceWith(el("p", {class: "dim"}, "Their values were not kept, so the error is not known."));
    put(part, [folded("From the culprit to a result", ["ops from it", "op", "name", "step", "max ulp", "max relative", "line"], points.map((item) =>
      [item.position, item.op_type, item.name, item.step === null ? "" : item.step, Words.short(item.max_ulp), Words.short(item.max_rel),
        item.file ? `${Words.file(item.file)}:${item.line}` : ""]))]);
  }

  function histogram(bins, part) {
    const box = el("div", {class: "plot", role: "img", "aria-label": "Bars: how many elements are so many ulp apart"});
    put(part, [el("h3", {}, "How far apart, in ulp"), box]);
    const name = ([low, high]) => (low === high ? Words.number(low) : low >= 1024 ? `2^${Math.round(Math.log2(low))}` : `${low}–${high}`);
    add(box, () => ({
      options: {
        scales: {x: {time: false, range: () => [-0.7, bins.length - 0.3]}, y: {range: (_, low, high) => [0, Math.max(1, high * 1.05)]}},
        axes: [axis("ulp", {splits: () => bins.map((_, at) => at), values: (_, splits) => splits.map((at) => name(bins[at])), rotate: bins.length > 6 ? -45 : 0, size: bins.length > 6 ? 64 : 36}), axis("elements", {size: 60})],
        series: [{label: "ulp", value: (_, at) => (at === null || at === undefined ? "" : name(bins[at]))}, {label: "elements", stroke: colour("plot"), fill: colour("plot"),
          paths: uPlot.paths.bars({size: [0.8, 60]}), points: {show: false}}],
      },
      values: [bins.map((_, at) => at), bins.map((bin) => bin[2])],
    }));
    put(part, [folded("Elements by distance in ulp", ["ulp", "elements"], bins.map((bin) => [name(bin), Words.number(bin[2])]))]);
    return box;
  }

  function where(picture, part) {
    const {counts} = picture, rows = counts.length, columns = counts[0].length;
    const canvas = el("canvas", {class: "where", role: "img", "aria-label": "Where the tensor differs", width: columns, height: rows, "aria-describedby": "where-text"});
    canvas.style.aspectRatio = `${columns} / ${Math.max(rows, columns / 8)}`;
    const touched = counts.flatMap((row, at) => row.map((count, column) => [at, column, count])).filter((cell) => cell[2]);
    const span = (values) => [Math.min(...values), Math.max(...values)];
    const [top, bottom] = span(touched.map((cell) => cell[0])), [left, right] = span(touched.map((cell) => cell[1]));
    const across = picture.shape.length ? picture.shape[picture.shape.length - 1] : 1;
    const down = picture.shape.slice(0, -1).reduce((one, two) => one * two, 1);
    const line = (low, high, each, all) => (low === high && each === 1 ? `${low}` : `${low * each} to ${Math.min(all, (high + 1) * each) - 1}`);
    const text = el("p", {class: "dim", id: "where-text"}, `The tensor [${picture.shape.join(", ")}]: leading dimensions down, the last one across; `
      + `a cell is ${Words.number(picture.down)} by ${Words.count(picture.across, "element")}, and the stronger its colour, the more of it differ. `
      + `${Words.count(touched.length, "cell")} of ${Words.number(rows * columns)} hold differences, in rows ${line(top, bottom, picture.down, down)} and columns ${line(left, right, picture.across, across)}.`);
    put(part, [el("h3", {}, "Where in the tensor"), canvas, text]);
    canvas.addEventListener("mousemove", (event) => {
      const row = Math.min(rows - 1, Math.floor(event.offsetY / canvas.clientHeight * rows)), column = Math.min(columns - 1, Math.floor(event.offsetX / canvas.clientWidth * columns));
      if (row >= 0 && column >= 0) canvas.title = `row ${row * picture.down}, column ${column * picture.across}: ${Words.number(counts[row][column])} of ${Words.number(picture.full)} differ`;
    });
    return () => {
      const paint = canvas.getContext("2d");
      paint.clearRect(0, 0, columns, rows);
      paint.fillStyle = colour("plot");
      for (const [row, column, count] of touched) {
        paint.globalAlpha = 0.25 + 0.75 * Math.min(1, count / picture.full);
        paint.fillRect(column, row, 1, 1);
      }
    };
  }

  let paintWhere = () => {};
  function tensor(data) {
    if (!data.culprits.some((item) => item.spread)) return () => {};
    const body = el("div", {class: "two"});
    section("tensor", "The culprit's tensor", body);
    let bars = null;
    return (rank) => {
      const {spread} = data.culprits[rank];
      if (bars) remove(bars);
      bars = null;
      paintWhere = () => {};
      body.replaceChildren();
      if (!spread) { put(body, [el("p", {class: "dim"}, "Values of this op were not kept.")]); return; }
      const left = el("div", {}), right = el("div", {});
      put(body, [left, right]);
      if (spread.ulp.length) bars = histogram(spread.ulp, left);
      if (spread.where) { paintWhere = where(spread.where, right); paintWhere(); }
    };
  }

  function redrawAll() {
    ready = true;
    drawn.forEach(redraw);
    paintWhere();
  }
  return {time, tensor, redraw: redrawAll};
})();
