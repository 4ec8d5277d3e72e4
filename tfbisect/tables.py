"""A trace in memory: the tables of a file, checked, and looked up.

Opens no file (`trace.load` does) and judges nothing; what it drops or doubts it counts in `problems`.
"""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from tfbisect import frames, schema
from tfbisect.errors import Damaged
from tfbisect.events import BLOCK, CheckedEvents, Events
from tfbisect.model import NO_CALL, Edge, Graph, GraphKind, Node, NodeFlag, Opaque, SiteKind, Source
from tfbisect.notebook import MOST, Card, Facts, Grid, Shown

try:
    import ml_dtypes

    _more_types: Any = ml_dtypes
except ImportError:  # bfloat16 and float8 values are read as integers
    _more_types = None

Array = npt.NDArray[Any]
Spans = Sequence[tuple[int, int]]  # (start, length) of kept values in bytes


class Draw(NamedTuple):
    """An op that draws random numbers, as the program made it."""

    name: str
    op: str
    stack: int
    graph_seed: int
    op_seed: int


class Trace(Shown):
    """One recorded run; immutable, and no file is open.

    `calls` (sorted by id), `links` (sorted by call) and `sites` are NumPy structured arrays with the columns of
    `schema`, and `events` (sorted by call, constants last) can be used like one, see `CheckedEvents`. Rows that
    refer to what is not there were dropped, and `problems` says how many: what they stood for is *not recorded*. A
    link is kept if the call it leads to is missing (that call had not ended): use `call_row`. `reads`: (moment,
    call, result) of each value that Python looked at, the first time; a moment is a number between call ids, or
    that of the first call after it; `info["options"]["reads"]` says whether looks were recorded.
    """

    def __init__(
        self,
        path: str,
        tables: Mapping[str, Array],
        values: Callable[[Spans], list[bytes]],
        events: Events | None = None,
    ) -> None:
        """events: instead of those in `tables`."""
        self.path = path
        self._tables = tables
        self._read_values = values
        self._problems: list[str] = []
        self._check_numbered()
        self._string_bytes = tables["string_bytes"].tobytes()
        self._string_ends: list[int] = tables["string_ends"].tolist()
        self._strings: list[str | None] = [None] * len(self._string_ends)
        self._sources: dict[int, Source] = {}
        self._stacks: dict[int, tuple[Source, ...]] = {0: ()}
        self._check_strings()
        self.sites = tables["sites"]
        self.calls = self._checked_calls()
        self.links = self._checked_links()
        rows = tables["events"]
        self.events = self._checked_events(Events.of([rows], len(rows)) if events is None else events)
        self.graphs: Sequence[Graph] = _Graphs(self)
        self._read_journal()
        for table in (*tables.values(), self.calls, self.links):
            table.flags.writeable = False
        self.problems = tuple(self._problems)

    @property
    def options(self) -> dict[str, Any]:
        """What the recording was asked for: `options` of `info`."""
        found = self.info.get("options")
        return found if isinstance(found, dict) else {}

    @property
    def kinds(self) -> Array:
        """The kind of each graph."""
        return self._tables["graphs"]["kind"]

    def graphs_with(self, wanted: Callable[[str], object]) -> list[int]:
        """The graphs that have ops of the types for which `wanted` is true."""
        nodes = self._tables["nodes"]
        types = [id for id in np.unique(nodes["op"]).tolist() if wanted(self.string(id))]
        found: list[int] = np.unique(nodes["graph"][np.isin(nodes["op"], types)]).tolist()
        return found

    def table(self, name: str) -> Array:
        """A table as it is in the file."""
        return self._tables[name]

    def replaced(self, path: str, **tables: Array) -> "Trace":
        """The same trace under another name, with some of its tables replaced."""
        return Trace(path, {**self._tables, **tables}, self._read_values, None if "events" in tables else self.events)

    # -- lookups -----------------------------------------------------------------------------------------------------

    def string(self, id: int) -> str:
        text = self._strings[id]
        if text is None:
            start = self._string_ends[id - 1] if id else 0
            text = self._string_bytes[start : self._string_ends[id]].decode("utf-8", "backslashreplace")
            self._strings[id] = text
        return text

    def stack(self, id: int) -> tuple[Source, ...]:
        """The Python stack, outermost frame first; () for stack 0."""
        stack = self._stacks.get(id)
        if stack is None:
            rows = self._tables["stacks"]
            frames, at = [], id
            while at:
                parent, frame = rows[at].item()
                frames.append(self._source(frame))
                at = parent
            stack = self._stacks[id] = tuple(reversed(frames))
        return stack

    def source(self, stack_id: int) -> Source | None:
        """The user's innermost line of a stack; None for stack 0."""
        return self._source(int(self._tables["stacks"]["frame"][stack_id])) if stack_id else None

    def shape(self, id: int) -> tuple[int, ...] | None:
        """A tensor shape; None for shape 0, the unknown."""
        return self._span("shape_items", "shape_ends", id) if id else None

    def iteration(self, id: int) -> tuple[int, ...]:
        """A loop iteration, outermost loop first; () outside loops."""
        return self._span("path_items", "path_ends", id)

    @property
    def shapes(self) -> range:
        """The ids of all shapes but the unknown one."""
        return range(1, len(self._tables["shape_ends"]))

    @property
    def iterations(self) -> range:
        """The ids of all loop iterations."""
        return range(len(self._tables["path_ends"]))

    def dtype(self, site: int) -> str:
        """The name of the element type of a site's events."""
        return dtype_name(int(self.sites["dtype"][site]))

    def value(self, event_row: int) -> Array | None:
        """The kept tensor of a row of `events`; None if it was not kept. Read from the file at each call.

        Its type is bfloat16 or float8 only with ml_dtypes installed, else the unsigned integer of that size. Without a
        known shape it is one-dimensional. Raises Damaged, and NotFound if the file has gone.
        """
        return self.values([event_row])[0]

    def values(self, event_rows: Sequence[int]) -> list[Array | None]:
        """What `value` gives for each of the rows, the file being opened once."""
        numbers = self.events["value"]
        kept = [row for row in event_rows if numbers[row]]
        spans = [self._tables["values"][numbers[row]].item() for row in kept]
        found = iter(self._read_values(spans) if spans else ())
        data = {row: self._shaped(row, raw) for row, raw in zip(kept, found, strict=True)}
        return [data.get(row) for row in event_rows]

    def value_length(self, value: int) -> int:
        """The bytes of a kept value, by its number in the column `value` of `events`."""
        return int(self._tables["values"]["length"][value])

    def _shaped(self, event_row: int, raw: bytes) -> Array | None:
        dtype = numpy_dtype(int(self.sites["dtype"][self.events["site"][event_row]]))
        shape = self.shape(int(self.events["shape"][event_row]))
        if dtype is None or len(raw) % dtype.itemsize:
            return None
        if shape is not None and math.prod(shape) * dtype.itemsize != len(raw):
            return None  # a write of some rows of a table keeps those rows
        flat = np.frombuffer(raw, dtype)
        return flat if shape is None else flat.reshape(shape)

    def kept(self, event_row: int) -> bytes | None:
        """The kept bytes of a row of `events`, whatever its type and shape: of a write of some rows, those rows."""
        return self._kept(int(self.events["value"][event_row]))

    def definition(self, graph: int, node: int) -> bytes | None:
        """How an op was made: TensorFlow's NodeDef without name and inputs, serialized. None: it was not recorded."""
        return self._kept(self._definitions.get((graph, node), 0))

    def outside(self, graph: int) -> Opaque | None:
        """Why a function was recorded from outside, its arguments and results only; None: its ops were recorded."""
        known = self.graphs[graph]
        if known.kind != GraphKind.OPAQUE:
            return None
        return next((item for item in self.opaque if item.name == known.name), None)

    def _kept(self, number: int) -> bytes | None:
        return self._read_values([self._tables["values"][number].item()])[0] if number else None

    def to_frame(self) -> Any:
        """All events as a pandas DataFrame, see `frames.columns`. Raises ImportError without pandas."""
        import pandas

        return pandas.DataFrame(frames.columns(self))

    def _card(self) -> Card:
        kept = int(np.count_nonzero(self.events["value"]))
        names = Counter(self.graphs[graph].name for graph in self.calls["graph"].tolist())
        rows = [("file", self.path), ("calls", f"{len(self.calls):,}"), ("values kept", f"{kept:,}")]
        rows += [("problem", problem) for problem in self.problems]
        most = [(count, name) for name, count in names.most_common(MOST)]
        blocks: list[Facts | Grid] = [Facts(rows), Grid("Runs most", ("calls", "what"), most)]
        if self.opaque:
            unseen = [(item.op_type, item.name, item.reason, item.count) for item in self.opaque]
            blocks.append(Grid("Not seen", ("op", "name", "reason", "times"), unseen, False))
        state = "complete" if self.complete else "incomplete"
        return Card(state, f"recording of {len(self.events):,} values", blocks)

    def call_row(self, call_id: int) -> int | None:
        """The row of a call in `calls`; None if it was not recorded to its end."""
        return self._call_rows.get(call_id)

    def events_of(self, call_id: int) -> slice:
        """The rows of a call in `events`; empty for a call that is not there."""
        row = self._call_rows.get(call_id)
        return slice(0, 0) if row is None else slice(*self._event_spans[row])

    def links_of(self, call_id: int) -> slice:
        """The rows of a call in `links`, by argument; empty for a call that is not there."""
        row = self._call_rows.get(call_id)
        return slice(0, 0) if row is None else slice(*self._link_spans[row])

    def sites_of(self, graph_id: int) -> Array:
        """The site ids of a graph, ascending."""
        order, ends = self._sites_by_graph
        return order[ends[graph_id - 1] if graph_id else 0 : ends[graph_id]]

    def constants(self, graph_id: int) -> dict[int, int]:
        """The rows in `events` of a graph's constants, by node."""
        return self._constants.get(graph_id, {})

    # -- indexes, made when first used -------------------------------------------------------------------------------

    @cached_property
    def _call_rows(self) -> dict[int, int]:
        return {id: row for row, id in enumerate(self.calls["id"].tolist())}

    @cached_property
    def _definitions(self) -> dict[tuple[int, int], int]:
        return {(graph, node): value for graph, node, value in self._tables["definitions"].tolist()}

    @cached_property
    def _event_spans(self) -> list[tuple[int, int]]:
        starts = self.events.starts(len(self.calls)).tolist()
        return list(itertools.pairwise(starts))

    @cached_property
    def _link_spans(self) -> list[tuple[int, int]]:
        return _spans(self.links["call"], self.calls["id"])

    @cached_property
    def _sites_by_graph(self) -> tuple[Array, list[int]]:
        graph = self.sites["graph"]
        return np.argsort(graph, kind="stable"), _ends(graph, len(self.graphs)).tolist()

    @cached_property
    def _constants(self) -> dict[int, dict[int, int]]:
        first = self.events.called
        found: dict[int, dict[int, int]] = {}
        sites = self.sites[self.events["site"][first:]]
        for i, (graph, node) in enumerate(zip(sites["graph"].tolist(), sites["node"].tolist(), strict=True)):
            found.setdefault(graph, {})[node] = first + i
        return found

    def _span(self, items: str, ends: str, id: int) -> tuple[int, ...]:
        table = self._tables[ends]
        return tuple(self._tables[items][int(table[id - 1]) if id else 0 : int(table[id])].tolist())

    def _source(self, frame: int) -> Source:
        source = self._sources.get(frame)
        if source is None:
            file, line, function, text = self._tables["frames"][frame].item()
            source = Source(self.string(file), line, self.string(function), self.string(text))
            self._sources[frame] = source
        return source

    # -- checks ------------------------------------------------------------------------------------------------------

    def _damaged(self, table: str, bad: Any, found: str) -> None:
        if np.any(bad):
            row = int(np.flatnonzero(bad)[0])
            raise Damaged(f"trace {self.path}: table {table}", found=f"{found} (row {row})", expected="what is there")

    def _check_numbered(self) -> None:
        """Rows that others refer to by number: one of them missing would shift the rest, so none may be wrong."""
        tables = self._tables
        counts = {name: len(table) for name, table in tables.items()}
        for name, rows in schema.FIRST_ROWS.items():
            first = np.array(rows, schema.BY_NAME[name].dtype)
            if not np.array_equal(tables[name][: len(first)], first):
                raise Damaged(f"trace {self.path}: table {name}", found="other first rows", expected=rows)
        for what, items in (("string", "bytes"), ("path", "items"), ("shape", "items")):
            items, ends = f"{what}_{items}", f"{what}_ends"
            values = tables[ends]
            self._damaged(ends, values[1:] < values[:-1], "an end before the one before it")
            self._damaged(ends, values > counts[items], f"an end behind the last of {items}")
        paths = tables["path_ends"]
        self._damaged("path_ends", paths[1:] == paths[:-1], "an iteration of no loop")
        self._damaged("path_items", tables["path_items"] < 0, "a negative iteration")
        strings = tables["string_ends"]
        self._damaged("string_ends", strings[1:] - strings[:-1] > schema.MAX_STRING_BYTES, "an endless string")
        self._damaged("shape_items", tables["shape_items"] < 0, "a negative dimension")
        self._in_range("frames", {"file": "string_ends", "function": "string_ends", "text": "string_ends"})
        stacks = tables["stacks"][1:]
        self._damaged("stacks", stacks["parent"] > np.arange(len(stacks)), "a stack that is built on a later one")
        self._damaged("stacks", stacks["frame"] >= counts["frames"], "no such frame")
        kept, length = tables["values"], np.uint64(counts["value_bytes"])
        self._damaged("values", (kept["start"] > length) | (kept["length"] > length - kept["start"]), "no such bytes")
        self._in_range("graphs", {"name": "string_ends", "raw_name": "string_ends"})
        self._damaged("graphs", tables["graphs"]["kind"] > max(GraphKind), "an unknown kind")
        self._in_range(
            "nodes",
            {"graph": "graphs", "stack": "stacks"}
            | dict.fromkeys(("name", "op", "device", "function", "forward_name", "frame"), "string_ends"),
        )
        for name in ("nodes", "edges"):
            graph = tables[name]["graph"]
            self._damaged(name, graph[1:] < graph[:-1], "graphs in another order")
        nodes = tables["nodes"]
        self._node_ends = _ends(nodes["graph"], counts["graphs"])
        sizes = np.diff(self._node_ends, prepend=0)
        self._damaged("nodes", nodes["forward"] >= sizes[nodes["graph"]], "no such node")
        self._in_range("edges", {"graph": "graphs"})
        edges = tables["edges"]
        self._edge_ends = _ends(edges["graph"], counts["graphs"])
        self._damaged("edges", edges["slot"] < -1, "no such slot")
        for column in ("node", "src"):
            self._damaged("edges", edges[column] >= sizes[edges["graph"]], "no such node")
        self._in_range("sites", {"graph": "graphs"})
        sites = tables["sites"]
        self._damaged("sites", sites["node"] >= sizes[sites["graph"]], "no such node")
        self._damaged("sites", sites["slot"] < 0, "no such slot")
        self._damaged("sites", sites["kind"] > max(SiteKind), "an unknown kind")
        self._in_range("definitions", {"graph": "graphs", "value": "values"})
        definitions = tables["definitions"]
        self._damaged("definitions", definitions["node"] >= sizes[definitions["graph"]], "no such node")

    def _in_range(self, name: str, columns: Mapping[str, str]) -> None:
        for column, target in columns.items():
            bad = self._tables[name][column] >= len(self._tables[target])
            self._damaged(name, bad, f"no such {column}")

    def _check_strings(self) -> None:
        data, starts = self._tables["string_bytes"], self._tables["string_ends"][:-1]
        starts = starts[starts < len(data)]
        try:
            self._string_bytes.decode("utf-8")
            broken = bool(np.any((data[starts] & 0xC0) == 0x80))
        except UnicodeDecodeError:
            broken = True
        if broken:
            self._problems.append("some names are not UTF-8: shown with escapes")

    def _keep(self, rows: Array, bad: Array, what: str) -> Array:
        count = int(np.count_nonzero(bad))
        if not count:
            return rows
        self._problems.append(f"{count} {what}: dropped")
        return rows[~bad]

    def _checked_calls(self) -> Array:
        rows = self._tables["calls"]
        bad = (rows["graph"] >= len(self._tables["graphs"])) | (rows["stack"] >= len(self._tables["stacks"]))
        bad |= (rows["state"] > 1) | (rows["id"] >= 2**63) | (rows["parent"] < -1)
        bad |= (rows["parent"] >= 0) & (rows["parent"].astype(np.uint64) >= rows["id"])
        rows = _sorted(self._keep(rows, bad, "calls of what is not there"), "id")
        again = np.zeros(len(rows), bool)
        again[1:] = rows["id"][1:] == rows["id"][:-1]
        return self._keep(rows, again, "calls with the number of another one")

    def _checked_links(self) -> Array:
        rows, graphs = self._tables["links"], self._tables["graphs"]
        known, _ = _find(self.calls["id"], rows["call"])
        rows = self._keep(rows, ~known, "arguments of calls that did not end")
        made = rows["src_call"] >= 0
        source = rows["src_call"].astype(np.uint64)
        known, at = _find(self.calls["id"], source)
        entry = np.zeros(len(rows), bool)
        loose = graphs["kind"] == GraphKind.ENTRY
        loose[self._tables["nodes"]["graph"][self._tables["nodes"]["flags"] & NodeFlag.HOSTVALUE > 0]] = True
        entry[known] = loose[self.calls["graph"][at[known]]]
        # What a call is given was there before it started; an entry or a value of Python's can be numbered later.
        bad = (rows["src_call"] < -1) | (made & ~entry & (source >= rows["call"]))
        missing = int(np.count_nonzero(made & ~known & ~bad))
        if missing:
            self._problems.append(f"{missing} arguments come from calls that did not end")
        rows = self._keep(rows, bad, "arguments from calls that started later")
        order = np.lexsort((rows["arg"], rows["call"]))
        return rows[order]

    def _checked_events(self, events: Events) -> CheckedEvents:
        targets = (("site", "sites"), ("path", "path_ends"), ("shape", "shape_ends"), ("value", "values"))
        bad = np.zeros(len(events), np.bool_)
        for column, table in targets if len(events) else ():
            if events[column].max() >= len(self._tables[table]):
                bad |= events[column] >= len(self._tables[table])
        events = self._kept_events(events, bad, "events of what is not there")
        ids, lengths = events.spans
        known, _ = _find(self.calls["id"], ids)
        known |= ids == np.uint64(NO_CALL)
        events = self._kept_events(events, np.repeat(~known, lengths), "events of calls that did not end")
        events = self._kept_events(events, self._strange_events(events), "events of another graph than the call's")
        ids = events.spans[0]
        if not np.all(ids[1:] > ids[:-1]):
            events = events.chosen(np.argsort(events["call"], kind="stable"))
            ids = events.spans[0]
        known, at = _find(self.calls["id"], ids)
        return CheckedEvents(events, np.where(known, at, -1))

    def _strange_events(self, events: Events) -> Array:
        """For each event whether its site is no place in what its call ran."""
        sites, (ids, lengths) = self._tables["sites"], events.spans
        constant, (known, at) = ids == np.uint64(NO_CALL), _find(self.calls["id"], ids)
        graphs = np.full(len(ids), -1, np.int64)  # of no call
        graphs[known] = self.calls["graph"][at[known]]
        own = np.where(sites["kind"] == SiteKind.CONST, -1, sites["graph"].astype(np.int64))
        graphs[constant] = -1
        bad = np.zeros(len(events), np.bool_)
        ends = np.cumsum(lengths)
        low = 0
        while low < len(ids):  # spans together that have BLOCK events at least
            high = max(low + 1, int(np.searchsorted(ends, ends[low] + BLOCK)))
            span = slice(int(ends[low] - lengths[low]), int(ends[min(high, len(ids)) - 1]))
            bad[span] = np.repeat(graphs[low:high], lengths[low:high]) != own[events["site"][span]]
            low = high
        return bad

    def _kept_events(self, events: Events, bad: Array, what: str) -> Events:
        count = int(np.count_nonzero(bad))
        if not count:
            return events
        self._problems.append(f"{count} {what}: dropped")
        return events.chosen(~bad)

    # -- the journal -------------------------------------------------------------------------------------------------

    def _read_journal(self) -> None:
        self.info: dict[str, Any] = {}
        self.dropped: dict[str, int] = {}
        self.end: dict[str, Any] | None = None
        self.reads: list[tuple[int, int, int]] = []
        self.executed: dict[tuple[int, int], str] = {}  # (graph, node): the kernel that ran in the place of its op
        self.states: list[dict[str, Any]] = []  # of the program between its steps, where they were taken
        self.state_cost: dict[str, Any] | None = None
        self.variable_names: dict[int, str] = {}  # of those in `states`, by their number
        self.seeds: dict[tuple[int, int], tuple[int, int]] = {}  # (graph, node): graph seed and op seed
        self.scopes: dict[int, str] = {}  # graph: what its ops that draw were made in
        self.made: dict[str, list[Draw]] = {}  # the ops that draw of such a scope, as they were made
        opaque: dict[tuple[str, str, str], Opaque] = {}
        *lines, rest = self._tables["journal"].tobytes().split(b"\n")
        bad = int(bool(rest))
        for line in lines:
            try:
                self._journal_line(json.loads(line), opaque)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
                bad += 1
        if bad:
            self._problems.append(f"{bad} lines of the journal could not be read: dropped")
        self.opaque = tuple(opaque.values())
        self.complete = self.end is not None and self.end.get("status") == "complete"
        if self.end is None:
            self._problems.append("the recording has no end: the process died or still runs")
        elif not self.complete:
            self._problems.append(f"the recording ended early: {self.end.get('reason') or 'no reason given'}")

    def _known_stack(self, number: Any) -> int:
        return int(number) if 0 <= int(number) < len(self._tables["stacks"]) else 0

    def _journal_line(self, entry: dict[str, Any], opaque: dict[tuple[str, str, str], Opaque]) -> None:
        kind = entry["kind"]
        if kind == "info":
            _merge(self.info, entry["run"])
        elif kind == "opaque":
            item = Opaque.from_json(entry)
            key = (item.name, item.op_type, item.reason)
            seen = opaque.get(key)
            count = item.count + (seen.count if seen else 0)
            opaque[key] = Opaque(*key, count, item.source or (seen.source if seen else None))
        elif kind == "dropped":
            what = str(entry["what"])
            self.dropped[what] = self.dropped.get(what, 0) + int(entry["count"])
        elif kind == "reads":
            self.reads += [(int(moment), int(call), int(result)) for moment, call, result in entry["rows"]]
        elif kind == "executed":
            graph = int(entry["graph"])
            self.executed.update({(graph, int(node)): str(op) for node, op in entry["ops"].items()})
        elif kind == "state":
            variables = [(int(number), int(value)) for number, value in entry["variables"]]
            results = [int(value) for value in entry["results"]]
            self.states.append(
                {"at": int(entry["at"]), "step": int(entry["step"]), "variables": variables, "results": results}
            )
        elif kind == "variable":
            self.variable_names[int(entry["number"])] = str(entry["name"])
        elif kind == "state_cost":
            self.state_cost = {key: float(entry[key]) for key in ("seconds", "of", "steps")}
        elif kind == "seeds":
            graph, scope = int(entry["graph"]), str(entry["scope"])
            self.scopes[graph] = scope
            self.seeds.update({(graph, int(node)): (int(one), int(two)) for node, one, two in entry["drawn"]})
            self.made.setdefault(scope, []).extend(
                Draw(str(name), str(op), self._known_stack(stack), int(one), int(two))
                for name, op, stack, one, two in entry["made"]
            )
        elif kind == "end":
            self.end = {key: entry.get(key) for key in ("status", "exit", "reason")}


class _Graphs(Sequence[Graph]):
    """The graphs of a trace, each built when it is first asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._built: dict[int, Graph] = {}
        self._frames: dict[int, tuple[str, ...]] = {0: ()}

    def __len__(self) -> int:
        return len(self._trace._tables["graphs"])

    @overload
    def __getitem__(self, index: int) -> Graph: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Graph]: ...

    def __getitem__(self, index: int | slice) -> Graph | Sequence[Graph]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        graph = self._built.get(number)
        if graph is None:
            graph = self._built[number] = self._build(number)
        return graph

    def __iter__(self) -> Iterator[Graph]:
        return (self[i] for i in range(len(self)))

    def _build(self, number: int) -> Graph:
        trace, tables = self._trace, self._trace._tables
        string = trace.string
        rows = tables["nodes"][_between(trace._node_ends, number)].tolist()
        inputs: list[list[Edge]] = [[] for _ in rows]
        for _, node, src, slot in tables["edges"][_between(trace._edge_ends, number)].tolist():
            inputs[node].append(Edge(src, slot))
        nodes = []
        for i, row in enumerate(rows):
            _, name, op, device, function, stack, attrs, index, forward, forward_name, flags, frame = row
            if frame not in self._frames:
                self._frames[frame] = tuple(string(frame).split("\n"))
            nodes.append(
                Node(
                    name=string(name),
                    op=string(op),
                    device=string(device),
                    function=string(function),
                    stack=stack,
                    attrs=attrs,
                    index=index,
                    forward=forward,
                    forward_name=string(forward_name),
                    flags=NodeFlag(flags),
                    frame=self._frames[frame],
                    inputs=tuple(sorted(inputs[i], key=_is_control)),
                )
            )
        name, raw_name, kind, structure = tables["graphs"][number].item()
        return Graph(number, string(name), string(raw_name), GraphKind(kind), structure, tuple(nodes))


def dtype_name(number: int) -> str:
    """The name of a TensorFlow DataType number; those above 100 are references to the same type."""
    return schema.DTYPES.get(number - 100 if number > 100 else number, f"dtype {number}")


def numpy_dtype(number: int) -> schema.Dtype | None:
    """The NumPy type of a TensorFlow DataType number; None for strings, resources, variants and unknown numbers."""
    name = dtype_name(number)
    if name in ("string", "resource", "variant") or name.startswith("dtype"):
        return None
    plain = name.removeprefix("q")  # quantized types are their integers; quint8 is uint8
    if plain in np.sctypeDict:
        return _little_endian(plain)
    if hasattr(_more_types, name):
        return _little_endian(getattr(_more_types, name))
    return _little_endian("u2" if name == "bfloat16" else "u1")


def _little_endian(what: Any) -> schema.Dtype:
    dtype: schema.Dtype = np.dtype(what).newbyteorder("<")
    return dtype


def _is_control(edge: Edge) -> bool:
    return edge.slot < 0


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _sorted(rows: Array, column: str) -> Array:
    keys = rows[column]
    return rows if np.all(keys[1:] >= keys[:-1]) else rows[np.argsort(keys, kind="stable")]


def _find(ids: Array, wanted: Array) -> tuple[Array, Array]:
    """Whether each wanted number is among the sorted ids, and where."""
    at = np.searchsorted(ids, wanted)
    known = at < len(ids)
    known[known] = ids[at[known]] == wanted[known]
    return known, at


def _ends(graph: Array, count: int) -> Array:
    """Where the rows of each graph end, if they are in the order of the graphs."""
    return np.cumsum(np.bincount(graph, minlength=count))


def _between(ends: Array, number: int) -> slice:
    return slice(int(ends[number - 1]) if number else 0, int(ends[number]))


def _spans(column: Array, ids: Array) -> list[tuple[int, int]]:
    starts, ends = np.searchsorted(column, ids, "left"), np.searchsorted(column, ids, "right")
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
