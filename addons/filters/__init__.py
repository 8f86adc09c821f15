"""The filters: one module per filter, each a pure function of one object and the inputs it asks for.

A filter keeps, changes or drops the object and says why. Here live the filters, the words they share
(verdicts, inputs, topology) and their one order (`chain`). No I/O, no clock, no mitmproxy: only `kube` and
the standard library come in.
"""
