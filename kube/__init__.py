"""The parts of Kubernetes that hub and manager share.

`wire`, `requests` and `objects` are pure: they do no I/O and read no clock. `http`, `store` and `disk` do the I/O
that keeps a copy of a part of the cluster. No module here imports addons, controllers, mitmproxy or the kubernetes
package, or depends on a filter or a rule. Objects never pass through typed models, which would drop unknown
fields.
"""
