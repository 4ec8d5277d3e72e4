"use strict";
// What more than two runs, several workers, or a tolerance, add to the report.

const More = (() => {
  const {el, table, section} = Dom;
  const runs = (groups) => groups.map((group) => group.map((run) => run + 1).join(" ")).join(" | ");

  function many(data) {
    const found = data.many_runs;
    if (!found) return;
    const {doubt, cross_check: check} = found;
    const certain = doubt.agreeing < doubt.pairs
      ? `${doubt.pairs - doubt.agreeing} of ${Words.count(doubt.pairs, "pair")} did not agree.`
      : `All ${Words.count(doubt.pairs, "pair")} agree: what ${(100 * doubt.excluded).toFixed(0)} in 100 pairs show stays unseen with chance 0.05.`;
    section("many", `All ${data.runs.length} runs`,
      el("p", {}, `${Words.count(found.outcomes.length, "outcome")}: runs ${runs(found.outcomes)}. ${certain}`),
      el("p", {class: "dim"}, "Graph, code, tensor and time line below are those of the pair in which the first culprit is shown."),
      table("Pairs of runs", ["runs", "verdict", "values compared", "differing"], found.pairs.map((pair) =>
        [pair.runs.map((run) => run + 1).join(" and "), pair.verdict, Words.number(pair.compared), Words.number(pair.differing)])),
      found.culprits.length ? table("How often each culprit shows", ["op", "name", "shows in", "equal outputs"], found.culprits.map((item) =>
        [item.op_type, item.name, `${item.seen_in.length} of ${item.pairs}`, item.groups.length ? runs(item.groups) : ""])) : null,
      el("p", {class: "dim"}, `Grouped by op and inputs, without alignment: ${Words.count(check.checked, "value")}; ${check.confirmed} of `
        + `${Words.count(found.culprits.length, "culprit")} gave several outputs for equal inputs.`));
  }

  const STATES = {identical: "identical", diverged: "differs by itself", inconclusive: "inconclusive",
    received: "differs only by what others put into collective ops"};

  function workers(data) {
    const found = data.workers;
    if (!Array.isArray(found) || !found.length) return;
    section("workers", `All ${Words.count(found.length, "worker")}`,
      el("p", {class: "dim"}, "Graph, code, tensor and time line below are those of the first worker on which the first culprit is."),
      table("What became of each worker", ["worker", "state", "values compared", "differing", "undecided", "run A", "run B"], found.map((each) =>
        [each.task, STATES[each.state] || each.state, Words.number(each.compared), Words.number(each.differing), Words.number(each.undecided), ...each.traces])));
  }

  function tolerance(data) {
    const found = data.tolerance;
    if (!found) return;
    const error = (value) => (value === null ? "" : Words.short(value));
    section("tolerance", "Within the tolerance",
      el("p", {}, `rtol ${Words.short(found.rtol)}, atol ${Words.short(found.atol)}, ulp ${found.ulp}: ${Words.number(found.equal)} values bit-identical, `
        + `${Words.number(found.within)} within, ${Words.number(found.beyond)} beyond, ${Words.number(found.not_measured)} not measured.`),
      found.growth.length ? table("How the error grows, from where it enters to the last result", ["op", "name", "line", "rms error", "largest relative", "ulp", "within"],
        found.growth.map((item) => [item.op_type === item.op_type_b ? item.op_type : `${item.op_type} / ${item.op_type_b}`, item.name,
          item.source ? `${Words.file(item.source.file)}:${item.source.line}` : "", error(item.rms), error(item.max_rel), error(item.max_ulp), item.within ? "yes" : "no"])) : null,
      found.graph_differences.length ? table(`The graphs are not the same: ${Words.count(found.graph_differences_total, "op")}`, ["in A", "in B", "name", "instead", "line"],
        found.graph_differences.map((item) => [item.op_type_a, item.op_type_b, item.name, item.instead, item.source ? `${Words.file(item.source.file)}:${item.source.line}` : ""])) : null);
  }

  return {many, workers, tolerance};
})();
