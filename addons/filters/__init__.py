"""The filters: each a pure function of one object and the inputs that it asks for.

A filter keeps, changes or drops the object and gives the reason. This package has the types that filters share
(verdicts, inputs) and their one order (`chain`). `builtin` has the hub's own filters; `plugins` defines what a filter
from another package must have. No I/O, no clock, no mitmproxy: only `kube` and the standard library come in.
"""
