"""The filters: each a pure function of one object and the inputs it asks for.

A filter keeps, changes or drops the object and says why. Here live the words that filters share (verdicts, inputs) and
their one order (`chain`). `builtin` has the hub's own filters; `plugins` says what a filter of somebody else must have.
No I/O, no clock, no mitmproxy: only `kube` and the standard library come in.
"""
