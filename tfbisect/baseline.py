"""What a recorded run gave, as a few KB of JSON to keep beside a test, and a later run compared with it.

Holds 32 bits of the digest of each value in an order that every run of the program has, and 16 bits that say what each
value is; names and lines are those of the later run. What lies beyond LIMIT values is one digest.
"""

import base64
import contextlib
import dataclasses
import heapq
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from tfbisect.categories import REACHES_KERNELS, flattened
from tfbisect.comparison import compare_traces
from tfbisect.culprits import shown
from tfbisect.errors import CannotRead, CannotWrite, Damaged, EmptyTrace, NewerFormat, NotFound, SchemeMismatch
from tfbisect.model import NO_CALL, Comparison, Coverage, Culprit, Graph, Json
from tfbisect.provenance import Run
from tfbisect.steps import Steps
from tfbisect.tables import Trace

FORMAT = 1
LIMIT = 2048  # values that are held one by one: 12 bytes of JSON each
UNORDERED_THREADS = 60000  # threads from here on have numbers that say nothing, or are TensorFlow's own
_PATHS, _SHAPES = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # odd, so that nothing is lost

Words = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Baseline:
    """keys: little-endian 16-bit words, digests: 32-bit words, one for each value; rest: of the values beyond them."""

    test: str
    tensorflow: str
    device: str
    schemes: Json  # of digests, as in a run's info
    setup: Json  # flattened settings that reach what kernels compute
    count: int
    keys: bytes
    digests: bytes
    rest: str

    def to_json(self) -> Json:
        return {
            "format": FORMAT,
            "test": self.test,
            "tensorflow": self.tensorflow,
            "device": self.device,
            "schemes": self.schemes,
            "setup": self.setup,
            "count": self.count,
            "keys": base64.b64encode(self.keys).decode(),
            "digests": base64.b64encode(self.digests).decode(),
            "rest": self.rest,
        }

    @classmethod
    def from_json(cls, data: Any, what: str = "baseline") -> "Baseline":
        """The inverse of `to_json`. Raises NewerFormat, and Damaged for anything that is no baseline."""
        try:
            if int(data["format"]) > FORMAT:
                raise NewerFormat(what, found=f"format {data['format']}", expected=f"at most {FORMAT}")
            found = cls(
                test=str(data["test"]),
                tensorflow=str(data["tensorflow"]),
                device=str(data["device"]),
                schemes=dict(data["schemes"]),
                setup=dict(data["setup"]),
                count=int(data["count"]),
                keys=base64.b64decode(data["keys"], validate=True),
                digests=base64.b64decode(data["digests"], validate=True),
                rest=str(data["rest"]),
            )
            if 2 * len(found.keys) != len(found.digests) or found.count < len(found.digests) // 4:
                raise ValueError("keys and digests of other lengths")
        except KeyError as error:
            raise Damaged(what, found=f"no key {error}", expected="a baseline of tfbisect") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise Damaged(what, found=error, expected="a baseline of tfbisect") from error
        return found


class _Order(NamedTuple):
    """Rows of a trace's events in the order of a baseline, and what each of them is."""

    rows: Words
    keys: Words
    digests: Words

    def rest(self) -> str:
        state = xxhash.xxh3_64(self.keys[LIMIT:].tobytes())
        state.update(self.digests[LIMIT:].tobytes())
        return state.hexdigest()

    def short_keys(self) -> Words:
        return self.keys[:LIMIT].astype("<u2")

    def short_digests(self) -> Words:
        return self.digests[:LIMIT].astype("<u4")


def of(run: Trace, test: str) -> Baseline:
    """The baseline that a recorded run makes. Raises EmptyTrace."""
    order = _ordered(run)
    if not len(order.rows):
        raise EmptyTrace(f"the run of {test}", found="no recorded op", hint="a test that runs TensorFlow")
    return Baseline(
        test=test,
        tensorflow=tensorflow_of(run),
        device=device_of(run),
        schemes=dict(run.info.get("digest", {})),
        setup=_setup(run),
        count=len(order.rows),
        keys=order.short_keys().tobytes(),
        digests=order.short_digests().tobytes(),
        rest=order.rest(),
    )


def tensorflow_of(run: Trace) -> str:
    """The version of TensorFlow that a run had; "none" if it never imported it."""
    return str(run.info.get("versions", {}).get("tensorflow", "none"))


def device_of(run: Trace) -> str:
    """The kinds of devices that a run could use, but for the host: `gpu`, say; `cpu` if there was no other."""
    kinds = {str(name).rsplit("/device:", 1)[-1].partition(":")[0].lower() for name in run.info.get("devices", ())}
    return "-".join(sorted(kinds - {"cpu", ""})) or "cpu"


def read(path: Path) -> Baseline:
    """Raises NotFound, CannotRead, Damaged and NewerFormat."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"baseline {path}", found="no such file", hint="pytest --tfbisect-update") from error
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRead(f"baseline {path}", found=error) from error
    try:
        data = json.loads(text)
    except ValueError as error:
        raise Damaged(f"baseline {path}", found=error, expected="JSON", hint="pytest --tfbisect-update") from error
    return Baseline.from_json(data, f"baseline {path}")


def write(path: Path, baseline: Baseline) -> None:
    """Write it whole or not at all. Raises CannotWrite."""
    draft = path.with_suffix(path.suffix + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(baseline.to_json(), indent=1) + "\n", encoding="utf-8", newline="\n")
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise CannotWrite(f"baseline {path}", found=error.strerror) from error


def compare_with(baseline: Baseline, name: str, run: Trace) -> Comparison:
    """Compare a run (B) with what a baseline says of an earlier one (A, shown as `name`).

    Raises SchemeMismatch, and what `compare_traces` raises.
    """
    if baseline.schemes != run.info.get("digest"):
        found = f"{baseline.schemes} in {name}, {run.info.get('digest')} in this run"
        raise SchemeMismatch("digests", found=found, expected="one scheme", hint="pytest --tfbisect-update")
    order = _ordered(run)
    keys, digests = np.frombuffer(baseline.keys, "<u2"), np.frombuffer(baseline.digests, "<u4")
    mine, values = order.short_keys(), order.short_digests()
    common = min(len(keys), len(mine))
    other = np.flatnonzero(keys[:common] != mine[:common])
    same = int(other[0]) if len(other) else common  # so many values are of the same ops
    differing = np.flatnonzero(digests[:same] != values[:same])
    complete = same == len(keys) == len(mine) and baseline.count == len(order.rows)
    if not len(differing) and not complete and same < len(mine):
        return _structure(baseline, name, run, order, same)
    kept = order.rows[:same]
    later, earlier = run.events[np.sort(kept)], run.events[:]
    earlier["digest"][kept[differing]] ^= np.uint64(1)
    earlier["value"] = 0  # values are those of the later run
    earlier = earlier[np.sort(kept)]
    a = run.replaced(name, events=earlier, journal=_journal(run, baseline))
    comparison = compare_traces(a, run.replaced(run.path, events=later))
    verdict, warnings = comparison.verdict, list(comparison.warnings)
    beyond = len(order.rows) - same
    if not complete:
        verdict = "inconclusive" if verdict == "identical" else verdict
        warnings.append(f"behind the first {same} values this run executed other ops than the baseline's")
    elif baseline.rest != order.rest():
        verdict = "inconclusive" if verdict == "identical" else verdict
        warnings.append(f"{beyond} more values are held as one digest, and that differs: which of them is not known")
    return dataclasses.replace(comparison, verdict=verdict, warnings=tuple(warnings))


def _structure(baseline: Baseline, name: str, run: Trace, order: _Order, place: int) -> Comparison:
    """Other ops were executed: the first that the baseline does not have."""
    view = Run(run)
    steps = Steps(view)
    row = int(order.rows[place])
    op_name, op_type, source = shown(view, row)
    call = view.event_call[row]
    node = view.node(row)
    last = shown(view, int(order.rows[place - 1])) if place else None
    culprit = Culprit(
        op_type=op_type,
        name=op_name,
        function=node.function,
        slot=view.node_of(row)[2],
        thread=int(run.calls["thread"][call]) if call >= 0 else 0,
        device=node.device,
        replica=None,
        call=steps.ordinal(call) if call >= 0 else None,
        step=steps.step(call) if call >= 0 else None,
        iteration=run.iteration(int(run.events["path"][row])),
        b=None,
        category="structure",
        contained=False,
        source=source,
        explanation="in its place the baseline has another op, or another shape",
        last_common=f"{last[1]} {last[0]}" if last else None,
    )
    return Comparison(
        verdict="diverged",
        runs=({"path": name, "events": baseline.count}, {"path": run.path, "events": len(order.rows)}),
        warnings=(f"the baseline has {baseline.count} values, this run {len(order.rows)}",),
        coverage=Coverage(place, len(order.rows) - place),
        culprits=(culprit,),
    )


# ---------------------------------------------------------------------------------------------------------------------
# The order of a baseline
# ---------------------------------------------------------------------------------------------------------------------


def _ordered(run: Trace) -> _Order:
    """The values of a run by call, op (producers first, else by name), output and iteration.

    Calls in threads whose numbers say nothing are left out: they arrive in any order.
    """
    calls, events = run.calls, run.events
    usable = calls["thread"] < UNORDERED_THREADS
    first_call = np.full(len(run.graphs), len(calls), np.int64)
    np.minimum.at(first_call, calls["graph"][usable], np.flatnonzero(usable))
    constant = events["call"] == np.uint64(NO_CALL)
    place = np.searchsorted(calls["id"], events["call"])
    place[constant] = first_call[run.sites["graph"][events["site"][constant]]]
    known = place < len(calls)
    known[known] &= usable[place[known]]
    rows = np.flatnonzero(known)
    sites, site_keys = _sites(run, np.unique(events["site"][rows]))
    paths = {int(number): run.iteration(int(number)) for number in np.unique(events["path"][rows])}
    shapes = {int(number): run.shape(int(number)) for number in np.unique(events["shape"][rows])}
    ranks = {number: rank for rank, number in enumerate(sorted(paths, key=lambda number: paths[number]))}
    path_rank = _looked_up(ranks, events["path"][rows], np.int64)
    order = np.lexsort((path_rank, sites[events["site"][rows]], place[rows]))
    rows = rows[order]
    path_keys = _looked_up({n: _hash(path) for n, path in paths.items()}, events["path"][rows], np.uint64)
    shape_keys = _looked_up({n: _hash(shape) for n, shape in shapes.items()}, events["shape"][rows], np.uint64)
    keys = site_keys[events["site"][rows]] + path_keys * _PATHS + shape_keys * _SHAPES
    return _Order(rows, keys, events["digest"][rows])


def _sites(run: Trace, wanted: Words) -> tuple[Words, Words]:
    """For each site: its rank among the sites of its graph, and a digest of what it is."""
    ranks, keys = np.zeros(len(run.sites), np.int64), np.zeros(len(run.sites), np.uint64)
    for number in np.unique(run.sites["graph"][wanted]).tolist():
        graph = run.graphs[number]
        node_rank = _producers_first(graph)
        sites = run.sites_of(number).tolist()
        rows = {site: run.sites[site] for site in sites}
        sites.sort(key=lambda site: (node_rank[rows[site]["node"]], int(rows[site]["kind"]), int(rows[site]["slot"])))
        for rank, site in enumerate(sites):
            node = graph.nodes[rows[site]["node"]]
            ranks[site] = rank
            keys[site] = _hash((graph.name, node.name, node.op, int(rows[site]["kind"]), int(rows[site]["slot"])))
    return ranks, keys


def _producers_first(graph: Graph) -> list[int]:
    """Each node's place in an order that depends on names and edges alone; a loop's way back is no edge."""
    nodes = graph.nodes
    inputs = [{edge.src for edge in node.inputs if nodes[edge.src].op != "NextIteration"} for node in nodes]
    consumers: list[list[int]] = [[] for _ in nodes]
    for number, sources in enumerate(inputs):
        for source in sources:
            consumers[source].append(number)
    waiting = [len(sources) for sources in inputs]
    ready = [(node.name, number) for number, node in enumerate(nodes) if not waiting[number]]
    heapq.heapify(ready)
    place = [len(nodes)] * len(nodes)
    done = 0
    while ready:
        _name, number = heapq.heappop(ready)
        place[number], done = done, done + 1
        for consumer in consumers[number]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, (nodes[consumer].name, consumer))
    return place


def _looked_up(known: Mapping[int, int], numbers: Words, dtype: Any) -> Words:
    table = np.zeros(max(known, default=0) + 1, dtype)
    for number, value in known.items():
        table[number] = value
    return table[numbers]


def _hash(what: object) -> int:
    return xxhash.xxh3_64_intdigest(repr(what).encode("utf-8", "backslashreplace"))


# ---------------------------------------------------------------------------------------------------------------------
# The set-up
# ---------------------------------------------------------------------------------------------------------------------


def _setup(run: Trace) -> Json:
    return {key: value for key, value in flattened(run.info).items() if REACHES_KERNELS.match(key)}


def _journal(run: Trace, baseline: Baseline) -> Words:
    """The journal of the run that a baseline was made of, as far as it is known: this run's, under that set-up."""
    info: Json = {}
    for key, value in {**flattened(run.info), **dict.fromkeys(_setup(run)), **baseline.setup}.items():
        group, _, name = key.partition(".")
        if value is None:
            continue
        if name:
            info.setdefault(group, {})[name] = value
        else:
            info[group] = value
    lines: list[Json] = [{"kind": "info", "run": info}]
    lines += [{"kind": "opaque", **item.to_json()} for item in run.opaque]
    lines += [{"kind": "dropped", "what": what, "count": count} for what, count in run.dropped.items()]
    lines.append({"kind": "end", **(run.end or {"status": "complete", "exit": None, "reason": None})})
    text = "".join(json.dumps(line, separators=(",", ":"), default=str) + "\n" for line in lines)
    return np.frombuffer(text.encode(), np.uint8)
