"use strict";
// All ops that differ, to search, sort and filter.

const Ops = (() => {
  const {el, section} = Dom;

  function rowsOf(differing) {
    const at = Object.fromEntries(differing.columns.map((name, column) => [name, column]));
    return differing.rows.map((row, number) => {
      const source = row[at.source] === null ? null : differing.sources[row[at.source]];
      const item = Object.fromEntries(differing.columns.map((name, column) => [name, row[column]]));
      return {
        id: number, state: item.state, op: item.op_type, name: item.name, function: item.function, events: item.events, step: item.step,
        last: item.last_step, line: source ? `${Words.file(source.file)}:${source.line}` : "", text: source ? source.text : "",
        tensor: Words.tensor(item) || "", ulp: item.max_ulp, relative: item.max_rel === null ? null : Number(item.max_rel),
      };
    });
  }

  function draw(differing) {
    const rows = rowsOf(differing);
    const states = [...new Set(rows.map((row) => row.state))];
    const search = el("input", {type: "search", id: "search", autocomplete: "off", placeholder: "op, name, function, line"});
    const state = el("select", {id: "state"}, el("option", {value: ""}, "all"), states.map((name) => el("option", {value: name}, name)));
    const shown = el("p", {class: "dim", role: "status", id: "shown"});
    const box = el("div", {id: "table"});
    const left = differing.left_out ? ` The first ${Words.number(rows.length)} of ${Words.count(differing.ops, "op")} are listed.` : "";
    section("ops", "All ops that differ", el("p", {class: "dim"}, `${Words.count(differing.ops, "op")}, ${Words.count(differing.events, "value")}.${left} Click a column's head to sort.`),
      el("div", {class: "tools"}, el("label", {}, "Search", search), el("label", {}, "State", state)), shown, box);
    const number = {sorter: "number", hozAlign: "right", sorterParams: {alignEmptyValues: "bottom"}};
    const figure = (cell) => document.createTextNode(cell.getValue() === null || cell.getValue() === undefined ? "" : Words.short(cell.getValue()));
    const table = new Tabulator(box, {
      data: rows, height: Math.min(480, 64 + 28 * Math.max(2, rows.length)), layout: "fitData", placeholder: "No op matches", columnDefaults: {maxWidth: 380, headerSortTristate: true},
      columns: [
        {title: "state", field: "state", formatter: (cell) => el("span", {class: `state ${cell.getValue()}`}, cell.getValue())},
        {title: "op", field: "op"}, {title: "name", field: "name", tooltip: (event, cell) => el("span", {}, cell.getValue())}, {title: "values", field: "events", formatter: figure, ...number},
        {title: "first step", field: "step", ...number}, {title: "last step", field: "last", ...number}, {title: "max ulp", field: "ulp", formatter: figure, ...number},
        {title: "max relative", field: "relative", formatter: figure, ...number}, {title: "line", field: "line", tooltip: (event, cell) => el("code", {}, cell.getData().text)},
        {title: "function", field: "function"}, {title: "tensor", field: "tensor"},
      ],
    });
    const tell = (count) => { shown.textContent = `${Words.count(count, "op")} shown`; };
    function filter() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      table.setFilter((row) => (!state.value || row.state === state.value)
        && words.every((word) => `${row.op} ${row.name} ${row.function} ${row.line} ${row.text}`.toLowerCase().includes(word)));
    }
    table.on("dataFiltered", (_, found) => tell(found.length));
    table.on("tableBuilt", () => { search.addEventListener("input", filter); state.addEventListener("change", filter); tell(rows.length); });
    return table;
  }

  return {draw};
})();
