"""Which kind of fault a culprit shows, by evidence.

Takes for granted that the culprit is one: `bisector` decides that.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tfbisect.effects import Effects
from tfbisect.equality import Equality, Finding
from tfbisect.flow import CALLS, PARTIAL_WRITE, STRING
from tfbisect.model import GraphKind, Node, NodeFlag, SiteKind
from tfbisect.provenance import Kind, Ref, Run, Terminal
from tfbisect.threads import CALLBACK_THREAD
from tfbisect.written import Change

# RunInfo keys (flattened) whose values reach what kernels compute.
REACHES_KERNELS = re.compile(
    r"^(versions\.(tensorflow|keras|numpy)|devices|threads|flags|build|determinism|machine\.(architecture|processor|cores))"
    r"(\.|$)|"
    r"^environment\.(TF_NUM_(INTRA|INTER)OP_THREADS|TF_ENABLE_ONEDNN_OPTS|TF_DISABLE_MKL|TF_DETERMINISTIC_OPS|TF_CUDNN_\w+|"
    r"TF_CUBLAS_\w+|TF_XLA_FLAGS|TF_ENABLE_XLA\w*|TF_USE_CUDNN_\w+|TF_FORCE_\w+|TF_AUTOTUNE\w*|TF_ALLOW_\w+|TF_OVERRIDE_\w+|"
    r"TF_ENABLE_\w*MATH\w*|XLA_FLAGS|ONEDNN_\w+|DNNL_\w+|MKL_\w+|OMP_\w+|KMP_\w+|GOMP_\w+|OPENBLAS_\w+|CUDA_VISIBLE_DEVICES|"
    r"CUDNN_\w+|CUBLAS_\w+|NVIDIA_TF32_OVERRIDE|NCCL_\w+|HIP_VISIBLE_DEVICES|ROCM_\w+)$"
)
_GIVES_INPUT = re.compile(
    r"IteratorGetNext|QueueDequeue|ReaderRead|^ReadFile$|^Restore|OptionalGetValue|TakeManySparse|Unstage|^_?Placeholder|"
    r"DatasetToSingleElement|ReduceDataset|GetNextFromShard|^_Recv|BoostedTreesLoad|RecordInput|MapUnstage"
)
_SEEDED = re.compile(
    r"^Stateless(Random|Truncated|Multinomial|Parameterized|Shuffle|Sample)|GetKeyCounter|^RngReadAndSkip|^RngSkip|SeedGenerator|"
    r"^Stateful(Uniform|StandardNormal|TruncatedNormal|Random)|ShuffleDataset|RandomDataset"
)
_PARALLEL = re.compile(r"Parallel|MapAndBatch|Prefetch|Sloppy|Queue|Barrier")
# Data set ops whose number decides how many elements there are, and how large.
_SHAPES_ELEMENTS = re.compile(r"(Batch|Window|Take|Skip|Repeat|Shard)\w*Dataset")
_TABLE = re.compile(r"^LookupTable")
_INTEGERS = frozenset({3, 9, 4, 5, 6, 17, 22, 23})  # DataType numbers
_WALK = 3000


def of_finding(finding: Finding, node: Node) -> str:
    """The category of a difference that no event explains."""
    if finding.what == "extra":
        return "environment" if node.op in CALLS else "structure"
    if finding.what == "attrs" and node.flags & NodeFlag.RANDOM:
        return "rng"  # seeds are attributes
    return {"edge": "structure", "attrs": "structure", "circle": "structure", "state": "state", "order": "race"}.get(
        finding.what, "unknown"
    )


class Categories:
    """Categories of differing events that are culprits."""

    def __init__(self, equality: Equality, effects: Effects, environment: Iterable[str]) -> None:
        self._equality, self._effects = equality, effects
        self._reached = [key for key in environment if REACHES_KERNELS.search(key)]
        self._a, self._b = equality.a, equality.b

    def of_change(self, change: Change) -> str:
        """The category of what a function was written otherwise by."""
        run = (self._a, self._b)[change.side]
        nodes = run.trace.graphs[change.graph].nodes
        if change.what == "attrs":
            return "rng" if nodes[change.node].flags & NodeFlag.RANDOM else "structure"
        if change.what != "constant":
            return "structure"
        below = {change.node}
        for number, node in enumerate(nodes):
            if any(edge.src in below for edge in node.inputs):
                if node.flags & NodeFlag.RANDOM or _SEEDED.search(node.op):
                    return "rng"
                below |= {number} if node.op in ("Pack", "Cast", "Reshape", "ConcatV2", "Identity") else set()
        return "host"

    @property
    def set_up_differently(self) -> bool:
        """Whether the runs' settings differ in a way that reaches what kernels compute, and which kernels run."""
        return bool(self._reached)

    def of_event(self, number: int, entry: bool) -> str:
        """The category of a culprit; `entry`: it takes a variable that nothing recorded wrote before."""
        row, other = self._equality.pairs[number]
        flow, index, _slot, kind = self._a.node_of(row)
        node = flow.nodes[index]
        if kind == SiteKind.CONST:
            return "host"
        if self._shapes_differ(row, other):
            return "structure"
        if node.flags & NodeFlag.ENTERING:
            return "state"
        if self._a.host_value(row):
            return self.of_host_value(number, row)
        if node.flags & NodeFlag.RANDOM:
            return "race" if self._may_overlap(row) and self._same_in_other_order(row) else "rng"
        if _unordered(self._a, row) or _unordered(self._b, other):
            return "race"
        if node.flags & NodeFlag.HOST:
            return "host"
        maker = self._handle_maker(row)
        if _GIVES_INPUT.search(node.op) or "Iterator" in maker:
            by_chance = self._same_in_other_order(row, all_of_them=True) and self._runs_in_parallel(row)
            return "race" if by_chance else "input"
        if entry or flow.pure_read(index) or _TABLE.search(node.op):
            return "state"
        pure = not node.flags & NodeFlag.STATEFUL or node.op in CALLS
        pure = pure or (kind == SiteKind.WRITE and not PARTIAL_WRITE.search(node.op))
        devices = self._b.node(other).device.rpartition("/")[2] != node.device.rpartition("/")[2]
        if pure and (self._reached or devices):
            return "environment"
        hides = node.flags & NodeFlag.OPAQUE and node.op not in CALLS  # several ops in one, of whatever kind
        return "unknown" if hides and not node.flags & NodeFlag.STATEFUL else "kernel"

    def of_host_value(self, number: int | None, row: int) -> str:
        """A value of Python's: a seed, an array, or a scalar."""
        run = self._a
        shape = run.trace.shape(run.event_shape[row])
        if self.permuted(row):
            return "structure"
        if run.dtype(row) in _INTEGERS and number is not None and self._seeds(number, row):
            return "rng"
        if shape == () and run.dtype(row) in _INTEGERS and _SHAPES_ELEMENTS.search(run.node(row).op):
            return "structure"
        if run.dtype(row) == STRING or shape == ():
            return "host"
        return "input"

    def permuted(self, row: int) -> bool:
        """Whether a function took the same values in both runs, as other arguments: iteration over a set, say."""
        calls = [taker[0] for taker in (self._a.first_takers.get(self._a.event_call[row]),) if taker is not None]
        for call in calls or [self._a.event_call[row]]:
            other = self._equality.alignment.call_to_b[call] if call >= 0 else -1
            if other >= 0:
                one, two = self._a.taken(call), self._b.taken(other)
                return len(one) > 1 and one != two and sorted(one) == sorted(two)
        return False

    def _seeds(self, number: int, row: int) -> bool:
        """Whether an integer reaches the seed, key or state of an op that draws random numbers."""
        run = self._a
        call, slot = run.event_call[row], run.node_of(row)[2]
        takers = [run.flow(taker) for taker, _argument in run.takers.get((call, slot), ())]
        ops = [flow.nodes[flow.graph.op] for flow in takers if flow.graph.kind == GraphKind.EAGER]
        below = self._effects.near(number, _WALK)
        ops += [run.node(self._equality.pairs[each][0]) for each in below]
        return any(op.flags & NodeFlag.RANDOM or _SEEDED.search(op.op) for op in ops)

    def _shapes_differ(self, row: int, other: int) -> bool:
        """Whether the two values are not of one shape and dtype."""
        if self._a.dtype(row) != self._b.dtype(other):
            return True
        one = self._a.trace.shape(self._a.event_shape[row])
        two = self._b.trace.shape(self._b.event_shape[other])
        return one is not None and two is not None and one != two

    def _same_in_other_order(self, row: int, all_of_them: bool = False) -> bool:
        """Whether what an op gave in all its runs is the same in A and B (half of it, where draws can be lost), but in
        another order: counted over its events that differ."""
        equality = self._equality
        site = self._a.event_site[row]
        rows = [equality.pairs[number] for number in np.flatnonzero(equality.sites == site).tolist()]
        one = Counter(self._a.event_digest[pair[0]] for pair in rows)
        two = Counter(self._b.event_digest[pair[1]] for pair in rows)
        shared = (one & two).total()
        return len(rows) > 1 and (shared == len(rows) if all_of_them else 2 * shared >= len(rows))

    def _may_overlap(self, row: int) -> bool:
        """Whether runs of an op can overtake each other: in a loop, or in several threads."""
        if self._a.node(row).frame:
            return True
        site, threads = self._a.event_site[row], self._a.trace.calls["thread"]
        calls = self._equality.calls[self._equality.sites == site]
        used = set(threads[calls].tolist())
        return len(used) > 1 or CALLBACK_THREAD in used

    def _runs_in_parallel(self, row: int) -> bool:
        """Whether something in the data set above an element can change the order by timing."""
        run = self._a
        terminal = _handle_input(run, row)
        if terminal is None:
            return True  # a queue: whoever fills it may race
        handle = run.handle(terminal)
        waiting = [call for call, _node, _path in run.feeders.get(handle, ())] + [terminal.ref.call]
        done: set[int] = set()
        while waiting and len(done) < _WALK:
            call = waiting.pop()
            if call < 0 or call in done:
                continue
            done.add(call)
            graph = run.flow(call).graph
            if any(_PARALLEL.search(node.op) for node in graph.nodes):
                return True
            waiting += [run.links.get((call, argument), (-1, 0))[0] for argument in graph.args]
        return False

    def _handle_maker(self, row: int) -> str:
        """The op type behind the first identity among an op's inputs."""
        terminal = _handle_input(self._a, row)
        return self._a.flow(terminal.ref.call).nodes[terminal.ref.node].op if terminal is not None else ""


def _unordered(run: Run, row: int) -> bool:
    """Whether an op reads or writes a variable that another op writes, and nothing orders the two."""
    flow, node, _slot, kind = run.node_of(row)
    if kind != SiteKind.WRITE and not flow.pure_read(node):
        return False
    terminal = _handle_input(run, row)
    if terminal is None:
        return False
    call, path = run.event_call[row], run.event_path[row]
    here = Ref(call, node, 0, path)
    writes = [write for write in run.writes.get(run.handle(terminal), ()) if write.row != row]
    if any(not run.is_ordered(here, write) for write in writes if write.call == call):
        return True
    return any(in_other_thread(run, call, write.call) for write in writes)


def in_other_thread(run: Run, call: int, write: int) -> bool:
    """Whether a write stands in another thread and may have happened before or after a call: threads race for it.

    What the main thread did before is done: it starts the others.
    """
    threads = run.trace.calls["thread"]
    return bool(threads[write] != threads[call]) and (bool(threads[write] != 0) or write > call)


def _handle_input(run: Run, row: int) -> Terminal | None:
    flow, node, _slot, _kind = run.node_of(row)
    call, path = run.event_call[row], run.event_path[row]
    for edge in flow.data_inputs(node):
        terminal = run.terminal(run.input_ref(call, flow, node, edge, path))
        if terminal.kind == Kind.HANDLE:
            return terminal
    return None


def flattened(info: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested RunInfo with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in info.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found.update(flattened(value, name + "."))
        else:
            found[name] = value
    return found
