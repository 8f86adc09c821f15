"""The filters: each a pure function of one object and the inputs that it requests.

A filter keeps, changes or drops the object and gives the reason. This package has the types that filters share
(verdicts, inputs) and their fixed order (`chain`). `builtin` has the built-in filters; `plugins` defines the interface
of a filter from another package. No I/O, no clock, no mitmproxy: only `kube` and the standard library are imported.
"""
