"""What can be asked for when a run is recorded, in the words of the options.

Imported before the program runs, so it imports nothing.
"""

ALL, SUSPECTS = "all", "suspects"
OPS = (ALL, SUSPECTS)
"""Which ops are recorded; `passed` says which the second leaves out."""
OPAQUE, EXPAND = "opaque", "expand"
XLA = (OPAQUE, EXPAND)
"""What becomes of functions that XLA compiles: one event for each result, or op by op without XLA."""
