"use strict";
// The verdict, the culprits, their code, their tensors' story in words, and what was set up differently or not seen.

const Answer = (() => {
  const {el, put, table, section} = Dom;

  function headline(data) {
    const first = data.culprits[0];
    if (data.verdict === "diverged" && first) {
      const where = first.source ? ` at line ${first.source.line} of ${Words.file(first.source.file)}` : "";
      const when = first.step === null ? "" : `, in step ${first.step}`;
      return `first at ${subject(first)}${where}${when}${Words.workers(first, data)}`;
    }
    if (data.verdict === "identical" && data.tolerance) return `${Words.count(data.coverage.compared, "value")} compared, all within the tolerance`;
    if (data.verdict === "identical") return `${Words.count(data.coverage.compared, "value")} compared, none differs`;
    return data.coverage.compared ? "no op can be named" : "nothing could be compared";
  }

  // The ops above a culprit that a cheap recording passed by, and which may be to blame in its place.
  function unrecorded(culprit) {
    return (Array.isArray(culprit.unrecorded) ? culprit.unrecorded : []).map((each) => {
      const line = each.source ? `, ${Words.file(each.source.file)}:${each.source.line}: ${each.source.text.trim()}` : "";
      return each.op_type + (each.name === each.op_type ? "" : ` ${each.name}`) + line;
    });
  }

  function subject(culprit) {
    const count = unrecorded(culprit).length;
    if (!count) return culprit.op_type;
    return `${culprit.op_type} (or ${count === 1 ? "an unrecorded op" : `one of ${count} unrecorded ops`} above it)`;
  }

  function facts(culprit) {
    const rows = [];
    const add = (label, value) => { if (value !== null && value !== undefined && value !== "") rows.push([label, value]); };
    const inside = culprit.source && culprit.source.function ? `, in ${culprit.source.function}` : "";
    add("line", culprit.source ? `${culprit.source.file}:${culprit.source.line}${inside}` : "not known");
    add("op", culprit.name + (culprit.slot > 0 ? `, output ${culprit.slot}` : ""));
    add("executed as", culprit.executed);
    const seeds = Array.isArray(culprit.seeds) ? culprit.seeds : [];
    add("seeds", seeds.map((each, i) => `run ${"AB"[i]}: graph seed ${each.graph}, op seed ${each.op}`).join("; "));
    add("worker", Array.isArray(culprit.tasks) ? culprit.tasks.join(" ") : null);
    add("device", culprit.device);
    add("replica", culprit.replica);
    if (culprit.forward_of) {
      const forward = culprit.forward_of;
      const line = forward.source ? `, ${Words.file(forward.source.file)}:${forward.source.line}: ${forward.source.text.trim()}` : "";
      add("belongs to", forward.name + (forward.op_type ? ` (${forward.op_type})` : "") + line);
    }
    add("when", Words.moment(culprit) + (culprit.function ? ` of ${culprit.function}` : "") + ", counted from 0");
    if (!culprit.b) add("in run B", "not executed");
    else if (Words.moment(culprit.b) !== Words.moment(culprit)) add("in run B", Words.moment(culprit.b));
    const equal = culprit.inputs.filter((item) => item.equal).length;
    add("evidence", culprit.explanation || `${equal} of ${Words.count(culprit.inputs.length, "input")} bit-identical`);
    unrecorded(culprit).forEach((text, at) => add(at ? "\u00a0" : "or above it", text));
    add("size", Words.size(culprit.difference) || "not known: values of this op were not kept");
    add("category", `${culprit.category}${culprit.contained ? ", and it dies out: no result differs" : ""}`);
    add("downstream", culprit.downstream ? `${Words.count(culprit.downstream, "later value")} differ because of it` : null);
    add("follows", culprit.last_common);
    culprit.writers.forEach((writer, run) => add(`writer in ${"AB"[run]}`, writer));
    return el("dl", {}, rows.map(([label, value]) => [el("dt", {}, label), el("dd", {}, value)]));
  }

  const reference = (text) => (/^https:\/\/\S+$/.test(text) ? el("a", {href: text, rel: "noreferrer"}, text) : text);

  function cause(item) {
    return el("div", {class: "cause panel"},
      el("h3", {}, item.title, el("span", {class: "dim"}, ` confidence ${item.confidence}`)),
      el("p", {}, item.explanation),
      el("h3", {}, "Change"), el("pre", {}, item.cure),
      item.source ? el("p", {class: "dim"}, "Source: ", reference(item.source)) : null);
  }

  function told(culprit, meaning) {
    return [
      el("p", {}, `${subject(culprit)} ${meaning[culprit.category]}.`),
      culprit.source && culprit.source.text ? el("code", {class: "line"}, culprit.source.text.trim()) : null,
      facts(culprit),
      culprit.inputs.length ? el("details", {}, el("summary", {}, `Its ${Words.count(culprit.inputs.length, "input")}`),
        table("Inputs of the culprit", ["op", "name", "in both runs"],
          culprit.inputs.map((item) => [item.op_type, item.name, item.equal ? "equal" : "differs"]))) : null,
      el("div", {class: "two"}, culprit.causes.map(cause)),
    ];
  }

  // choose(rank) is called when the reader picks another culprit.
  function draw(data, choose) {
    const root = document.getElementById("answer");
    put(root, [el("h1", {id: "verdict"}, el("span", {class: `verdict ${data.verdict}`}, data.verdict), ` ${headline(data)}`)]);
    document.title = `tfbisect: ${data.verdict} ${headline(data)}`;
    if (data.cut && Object.keys(data.cut).length) {
      const left = Object.entries(data.cut).map(([what, number]) => `${Words.number(number)} of ${what}`).join(", ");
      put(root, [el("p", {class: "dim"}, `Left out to keep this page small: ${left}.`)]);
    }
    if (!data.culprits.length) return () => {};
    const body = el("div", {id: "culprit", "aria-live": "polite"});
    const buttons = data.culprits.map((item, rank) => el("button", {type: "button", onclick: () => choose(rank)},
      `${rank + 1}  ${item.op_type}${item.source ? `  ${Words.file(item.source.file)}:${item.source.line}` : ""}  `
      + `${item.step === null ? "" : `step ${item.step}  `}${item.category}${item.contained ? ", dies out" : ""}`));
    put(root, [body]);
    if (buttons.length > 1) {
      put(root, [el("details", {open: buttons.length < 8},
        el("summary", {}, `All ${buttons.length} ops that differ on their own`),
        el("ul", {class: "list", id: "culprits"}, buttons.map((button) => el("li", {}, button))))]);
    }
    return (rank) => {
      body.replaceChildren();
      put(body, told(data.culprits[rank], data.meaning));
      buttons.forEach((button, at) => button.setAttribute("aria-current", at === rank));
    };
  }

  function frame(item) {
    const around = item.around || {first: item.line, lines: [item.text]};
    return el("div", {class: "source"},
      el("p", {}, `${item.file}:${item.line}${item.function ? `, in ${item.function}` : ""}`),
      el("ol", {tabindex: 0, "aria-label": `Lines around ${Words.file(item.file)}:${item.line}`}, around.lines.map((text, at) => {
        const hit = around.first + at === item.line;
        return el("li", hit ? {class: "hit", "aria-current": "true"} : {},
          el("span", {class: "number"}, around.first + at), el("code", {}, text));
      })));
  }

  function code(data) {
    if (!data.culprits.some((item) => item.code)) return () => {};
    const body = el("div", {class: "two"});
    section("code", "Code of both runs", el("p", {class: "dim"}, "The line that led to the op, and below it the lines that called it; "
      + "what stands around them is the file as it was when the runs were compared."), body);
    return (rank) => {
      const runs = data.culprits[rank].code || {};
      body.replaceChildren();
      put(body, ["a", "b"].map((run) => el("div", {}, el("h3", {}, `Run ${run.toUpperCase()}`),
        runs[run] && runs[run].length ? runs[run].map(frame) : el("p", {class: "dim"}, runs[run] ? "No line of the program's own made it." : "Not executed, or not told."))));
    };
  }

  function environment(data) {
    if (!data.environment.length) return;
    const text = (value) => (value === null || value === undefined ? "not set" : typeof value === "object" ? JSON.stringify(value) : String(value));
    section("environment", "Set up differently", table("Settings that are not the same in all runs",
      ["setting", ...data.environment[0].values.map((_, at) => Words.run(at, data.runs.length))],
      data.environment.map((item) => [item.key, ...item.values.map(text)])));
  }

  function unseen(data) {
    const {coverage} = data;
    const parts = [el("p", {}, `${Words.count(coverage.compared, "value")} compared. `
      + `${Words.number(coverage.undecided)} differ and have an input that was not recorded; `
      + `${Words.number(coverage.unmatched)} were made in one run only and have no partner.`)];
    if (data.warnings.length) parts.push(el("h3", {}, "Warnings"), el("ul", {}, data.warnings.map((text) => el("li", {}, text))));
    if (coverage.opaque.length) {
      parts.push(table("What ran and was not recorded", ["op", "name", "why", "times", "line"], coverage.opaque.map((item) =>
        [item.op_type, item.name, item.reason, Words.number(item.count), item.source ? `${Words.file(item.source.file)}:${item.source.line}` : ""])));
    }
    section("unseen", "What was not seen", parts);
  }

  // {"versions.keras": "3"} of {versions: {keras: "3"}}; lists as they would be typed
  function flat(value, prefix = "") {
    return Object.entries(value).reduce((found, [key, item]) => {
      if (Array.isArray(item)) found[prefix + key] = item.join(" ");
      else if (item !== null && typeof item === "object") Object.assign(found, flat(item, `${prefix}${key}.`));
      else found[prefix + key] = item;
      return found;
    }, {});
  }

  function runs(data) {
    const told = data.runs.map((run) => flat(run));
    const keys = [...new Set(told.flatMap((run) => Object.keys(run)))];
    const text = (value) => (value === undefined || value === null ? "" : String(value));
    if (!keys.length) return;
    section("runs", "The runs", table("What is known of the runs", ["", ...data.runs.map((_, at) => Words.run(at, data.runs.length))],
      keys.map((key) => [key, ...told.map((run) => text(run[key]))])));
  }

  return {draw, code, environment, unseen, runs};
})();
