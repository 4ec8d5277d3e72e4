"""What the graph alone says about how values move through it: forwarders, loop frames, branches, order of writes.

Knows nothing of calls or events; that is `provenance`. All walks are iterative: a chain of ops can be 100,000 long.
"""

import collections
import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from tfbisect.model import ENTERING_STATE, Edge, Graph, GraphKind, Node, NodeFlag, SiteKind

SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
MERGES = frozenset({"Merge", "RefMerge", "_MklMerge"})
ENTERS = frozenset({"Enter", "RefEnter"})
EXITS = frozenset({"Exit", "RefExit"})
NEXTS = frozenset({"NextIteration", "RefNextIteration"})

# Ops that have no value to digest but an identity: what is behind them is state.
_RESOURCES = re.compile(
    r"VarHandleOp|VarHandlesOp|VariableV2|^Variable$|Iterator|HashTable|TableV2$|Queue|TensorArray|^Stack|SeedGenerator|"
    r"Mutex|Barrier|Accumulator|Reader|SummaryWriter|MemoryCache|^Resource$|RngState"
)
_VARIANTS = re.compile(r"Dataset|TensorList|Optional|Variant|TensorMap")
VARIANT, STRING = 21, 7  # DataType numbers of tensorflow/core/framework/types.proto
OVERWRITES = frozenset({"AssignVariableOp", "Assign", ENTERING_STATE})  # what was there before does not matter
# Takes a variable's handle and gives nothing of its bytes away, or overwrites them unseen.
IGNORES_STATE = OVERWRITES | frozenset({
    "VarIsInitializedOp", "IsVariableInitialized", "VarHandleOp", "DestroyResourceOp",
    "DisableCopyOnRead", "VariableShape", "NoOp", "_Retval",
})  # fmt: skip
PURE_READS = frozenset({"ReadVariableOp", "_ReadVariablesOp", "ResourceGather", "ResourceGatherNd"})
_REF_READS = frozenset({"Identity", "RefIdentity"})  # of a v1 reference variable
# Writes that leave the rest of the variable as it was, and whose event holds only the rows they wrote.
PARTIAL_WRITE = re.compile(r"Scatter|Sparse")
# Ops that run a function whose ops are not events of the same graph.
CALLS = frozenset({
    "PartitionedCall", "StatefulPartitionedCall", "XlaLaunch", "_XlaRun", "_XlaCompile", "RemoteCall", "While",
    "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase", "MapDefun", "SymbolicGradient",
})  # fmt: skip
_REF_VARIABLES = frozenset({"VariableV2", "Variable", "TemporaryVariable"})
_PASSED = int(NodeFlag.PASSED)
MOST_PARTS = 200  # values that an input is made of beyond which it takes a walk


class Role(enum.IntEnum):
    """What an output of a node is to a walk that looks for where its value comes from."""

    EVENT = 0  # recorded: the walk ends here
    ARGUMENT = 1  # goes on at the caller
    CONSTANT = 2
    FORWARD = 3  # the value of its inputs, in another form or chosen among them
    HANDLE = 4  # an identity, behind which is state
    UNSEEN = 5  # ran, and was not recorded


class Way(enum.IntEnum):
    """How to find the event of an input quickly."""

    HERE = 0  # an op of the same call and iteration; with its site
    ENTRY = 1  # an argument of the call that has an event; with its site
    CONSTANT = 2  # with its site
    CALLER = 3  # an argument that is what the caller made; with its number
    WALK = 4  # by a walk; with the input's place


class Target:
    """An output of a graph, reached through ops that merely hand it on."""

    __slots__ = ("node", "role", "site", "slot")

    def __init__(self, role: Role, node: int, slot: int, site: int) -> None:
        self.role, self.node, self.slot, self.site = role, node, slot, site


class Flow:
    """Facts about one graph. sites: {(node, slot, kind): site id}; dtypes: TensorFlow's DataType of each site id."""

    def __init__(self, graph: Graph, sites: Mapping[tuple[int, int, int], int], dtypes: Sequence[int]) -> None:
        self.graph, self.nodes, self.sites, self._dtypes = graph, graph.nodes, sites, dtypes
        self._targets: dict[tuple[int, int], Target] = {}
        self._ways: dict[int, list[tuple[int, int, int]]] = {}

    # -- values --------------------------------------------------------------------------------------------------

    @cached_property
    def _data(self) -> list[tuple[Edge, ...]]:
        return [tuple(edge for edge in node.inputs if edge.slot >= 0) for node in self.nodes]

    @cached_property
    def flags(self) -> list[int]:
        """The flags of each node as plain numbers, which are much faster to ask than enums."""
        return [int(node.flags) for node in self.nodes]

    def data_inputs(self, node: int) -> tuple[Edge, ...]:
        return self._data[node]

    def target(self, node: int, slot: int) -> Target:
        """Where an output's value comes from within the graph, through single-input forwarders of the same frame."""
        key = node, slot
        found = self._targets.get(key)
        if found is None:
            found = self._targets[key] = self._find(node, slot)
        return found

    def _find(self, node: int, slot: int) -> Target:
        passed: set[int] = set()
        while True:
            here = self.nodes[node]
            if here.op == "_Arg":
                return Target(Role.ARGUMENT, node, slot, self.sites.get((node, 0, SiteKind.ARG), -1))
            site = self.sites.get((node, 0, SiteKind.CONST), -1)
            if site >= 0:
                return Target(Role.CONSTANT, node, slot, site)
            following = self._through(here, slot)
            if following is None or node in passed:
                return self._end(node, slot)
            passed.add(node)
            node, slot = following

    def _through(self, node: Node, slot: int) -> Edge | None:
        """The one input whose value a forwarder hands on, if it stays in the same loop frame."""
        if not node.flags & NodeFlag.FORWARDER or node.op in MERGES or node.op in NEXTS:
            return None
        data = [edge for edge in node.inputs if edge.slot >= 0]
        if node.op in SWITCHES:
            data = data[:1]
        elif node.op == "IdentityN":
            data = data[slot : slot + 1]
        if len(data) != 1 or self.nodes[data[0].src].frame != node.frame:
            return None
        return data[0]

    def _end(self, number: int, slot: int) -> Target:
        node = self.nodes[number]
        if node.flags & NodeFlag.FORWARDER:
            role = Role.FORWARD if any(edge.slot >= 0 for edge in node.inputs) else Role.UNSEEN
            return Target(role, number, slot, -1)
        site = self.sites.get((number, slot, SiteKind.OUTPUT), -1)
        if site >= 0:
            return Target(Role.FORWARD if self._dtypes[site] == VARIANT else Role.EVENT, number, slot, site)
        data = any(edge.slot >= 0 for edge in node.inputs)
        if node.op in _REF_VARIABLES:
            return Target(Role.HANDLE, number, slot, -1)
        if node.flags & (NodeFlag.OPAQUE | NodeFlag.HOSTVALUE) and not (data and _VARIANTS.search(node.op)):
            return Target(Role.UNSEEN, number, slot, -1)
        if self.graph.kind == GraphKind.ENTRY or not data or _RESOURCES.search(node.op):
            return Target(Role.HANDLE, number, slot, -1)
        # No event and nothing hidden: a variant (a list of tensors, a dataset), which is what went into it. Its digest,
        # if it has one, is derived from the op and its inputs, so it is never blamed.
        return Target(Role.FORWARD, number, slot, -1)

    def ways(self, node: int) -> list[tuple[int, int, int]]:
        """For each data input of a node its place, a `Way` and what that needs.

        An input that a cheap recording passed by has one for each value that it is made of.
        """
        found = self._ways.get(node)
        if found is None:
            found = self._ways[node] = []
            for place, edge in enumerate(self.data_inputs(node)):
                ways = self._ways_to(node, place, edge)
                found += [(place, *way) for way in ways]
        return found

    def _ways_to(self, node: int, place: int, edge: Edge) -> Sequence[tuple[int, int]]:
        """The ways to what an input is made of; the one walk, where it takes a walk to any of them."""
        found: dict[tuple[int, int], None] = {}
        waiting, seen = [edge], {edge}
        while waiting:
            here = waiting.pop()
            target = self.target(here.src, here.slot)
            passed = self.flags[target.node] & _PASSED and self.nodes[target.node].frame == self.nodes[node].frame
            if target.role == Role.FORWARD and passed and len(seen) < MOST_PARTS:
                parts = [each for each in reversed(self.data_inputs(target.node)) if each not in seen]
                seen.update(parts)
                waiting += parts
                continue
            way = self._way(node, place, here)
            if way[0] == Way.WALK:
                return [way]
            found[way] = None
        return list(found)

    def _way(self, node: int, place: int, edge: Edge) -> tuple[int, int]:
        target = self.target(edge.src, edge.slot)
        source = self.nodes[target.node]
        if target.role == Role.ARGUMENT:
            return (Way.ENTRY, target.site) if target.site >= 0 else (Way.CALLER, source.index)
        if target.role == Role.CONSTANT:
            return Way.CONSTANT, target.site
        if target.role == Role.EVENT and source.frame == self.nodes[node].frame:
            return Way.HERE, target.site
        return Way.WALK, place

    def pure_read(self, node: int) -> bool:
        """Whether an op gives what a variable holds and nothing else."""
        op = self.nodes[node].op
        if op in _REF_READS and not self.nodes[node].flags & NodeFlag.FORWARDER:
            data = self.data_inputs(node)
            return bool(data) and self.target(data[0].src, data[0].slot).role == Role.HANDLE
        return op in PURE_READS

    # -- order ---------------------------------------------------------------------------------------------------

    @cached_property
    def order(self) -> list[int]:
        """The nodes, producers first; back edges of loops are left out, and an Exit follows all of its loop."""
        nodes = self.nodes
        waiting = [0] * len(nodes)
        consumers: list[list[int]] = [[] for _ in nodes]
        for i in range(len(nodes)):
            for src in self._before(i):
                consumers[src].append(i)
                waiting[i] += 1
        ready = collections.deque(i for i, count in enumerate(waiting) if not count)
        order: list[int] = []
        while ready:
            i = ready.popleft()
            order.append(i)
            for consumer in consumers[i]:
                waiting[consumer] -= 1
                if not waiting[consumer]:
                    ready.append(consumer)
        if len(order) < len(nodes):  # a cycle that is no loop: not of TensorFlow's making
            seen = set(order)
            order += [i for i in range(len(nodes)) if i not in seen]
        return order

    @cached_property
    def position(self) -> list[int]:
        """Each node's place in `order`."""
        place = [0] * len(self.nodes)
        for at, node in enumerate(self.order):
            place[node] = at
        return place

    @cached_property
    def _loop_ends(self) -> dict[tuple[str, ...], list[int]]:
        """{loop frame: what runs last in an iteration}"""
        followed: set[int] = set()
        for node in self.nodes:
            followed.update(src for src, _slot in node.inputs if self.nodes[src].frame == node.frame)
        ends: dict[tuple[str, ...], list[int]] = {}
        for i, node in enumerate(self.nodes):
            if node.frame and node.op not in EXITS and (node.op in NEXTS or i not in followed):
                ends.setdefault(node.frame, []).append(i)
        return ends

    def _before(self, number: int) -> Iterator[int]:
        """What runs before a node in the same iteration; before an Exit, the whole loop."""
        node = self.nodes[number]
        for src, _slot in node.inputs:
            if not (node.op in MERGES and self.nodes[src].op in NEXTS):
                yield src
        if node.op in EXITS and node.inputs:
            yield from self._loop_ends.get(self.nodes[node.inputs[0].src].frame, ())

    @cached_property
    def _frame_places(self) -> dict[tuple[str, ...], int]:
        """Where each loop stands in `order` as seen from outside: behind all that enters it, before all that leaves."""
        places: dict[tuple[str, ...], int] = {}
        for at, number in enumerate(self.order):
            if self.nodes[number].op in ENTERS:
                places[self.nodes[number].frame] = at
        return places

    def moment(self, node: int, iterations: tuple[int, ...]) -> tuple[int, ...]:
        """Sorts nodes in iterations of loops by an order in which they can have run."""
        frame = self.nodes[node].frame
        if not frame:
            return (self.position[node],)
        parts: list[int] = []
        for depth, iteration in enumerate(iterations[: len(frame)]):
            parts += (self._frame_places.get(frame[: depth + 1], 0), iteration)
        return (*parts, self.position[node])

    @cached_property
    def writes_above(self) -> list[int]:
        """For each node a set of bits: which `writers` ran before it, by number (see `writer_bit`)."""
        above = [0] * len(self.nodes)
        for i in self.order:
            bits = 0
            for src in self._before(i):
                bits |= above[src] | self.writer_bit.get(src, 0)
            above[i] = bits
        return above

    @cached_property
    def writer_bit(self) -> dict[int, int]:
        """{node that can change a variable: its bit in `writes_above`}; Python callbacks can, through nested calls."""
        found = {node for node, _slot, kind in self.sites if kind == SiteKind.WRITE}
        found |= {i for i, node in enumerate(self.nodes) if node.flags & NodeFlag.HOST}
        return {node: 1 << number for number, node in enumerate(sorted(found))}

    @cached_property
    def sites_by_node(self) -> dict[int, list[int]]:
        """{node: its sites that have an event each time it runs}"""
        found: dict[int, list[int]] = {}
        for (node, _slot, kind), site in self.sites.items():
            if kind in (SiteKind.OUTPUT, SiteKind.WRITE):
                found.setdefault(node, []).append(site)
        return found

    @cached_property
    def hosts(self) -> list[int]:
        """The nodes that run Python."""
        return [i for i, node in enumerate(self.nodes) if node.flags & NodeFlag.HOST]

    def reaches(self, above: int, below: int) -> bool:
        """Whether a path of edges leads from a node down to another one, within an iteration."""
        seen, stack = {below}, [below]
        while stack:
            here = stack.pop()
            if here == above:
                return True
            more = [src for src in self._before(here) if src not in seen]
            seen.update(more)
            stack += more
        return False

    # -- branches ------------------------------------------------------------------------------------------------

    @cached_property
    def guards(self) -> list[frozenset[tuple[int, int]]]:
        """For each node the outputs of Switches that must have been taken for it to run: (Switch, output)."""
        found: list[frozenset[tuple[int, int]]] = [frozenset()] * len(self.nodes)
        for i in self.order:
            node = self.nodes[i]
            if node.op in MERGES:
                data = [edge for edge in node.inputs if edge.slot >= 0 and self.nodes[edge.src].op not in NEXTS]
                sides = [self._taken_by(found, edge) for edge in data]
                here = frozenset.intersection(*sides) if sides else frozenset()
                here = here.union(*(self._taken_by(found, edge) for edge in node.inputs if edge.slot < 0))
            else:
                here = frozenset().union(*(self._taken_by(found, edge) for edge in node.inputs))
            if node.op in EXITS:
                here = frozenset(taken for taken in here if len(self.nodes[taken[0]].frame) <= len(node.frame))
            found[i] = here
        return found

    @cached_property
    def switches(self) -> frozenset[int]:
        """The nodes that hand their first input to one output, by their second."""
        nodes = enumerate(self.nodes)
        return frozenset(i for i, node in nodes if node.op in SWITCHES and len(self.data_inputs(i)) > 1)

    def _taken_by(self, guards: list[frozenset[tuple[int, int]]], edge: Edge) -> frozenset[tuple[int, int]]:
        if edge.slot >= 0 and edge.src in self.switches:
            return guards[edge.src] | {(edge.src, edge.slot)}
        return guards[edge.src]

    def chooses(self, merge: int) -> list[int]:
        """The Switches whose predicates decide which input of a Merge is alive, by node number."""
        sides = [self._taken_by(self.guards, edge) for edge in self.data_inputs(merge)]
        if not sides:
            return []
        return sorted({switch for switch, _ in frozenset.union(*sides) - frozenset.intersection(*sides)})

    def loop_merge(self, number: int) -> bool:
        """Whether a Merge is the head of a loop."""
        return any(self.nodes[edge.src].op in NEXTS for edge in self.data_inputs(number))

    @cached_property
    def conditions(self) -> dict[tuple[str, ...], list[int]]:
        """{loop frame: its LoopConds}"""
        found: dict[tuple[str, ...], list[int]] = {}
        for i, node in enumerate(self.nodes):
            if node.op == "LoopCond" and self.data_inputs(i):
                found.setdefault(node.frame, []).append(i)
        return found

    @cached_property
    def consumers(self) -> list[list[int]]:
        """For each node those that take its outputs, control edges left out."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for src, slot in node.inputs:
                if slot >= 0 and (not found[src] or found[src][-1] != i):
                    found[src].append(i)
        return found
