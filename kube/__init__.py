"""What the hub and the manager share about Kubernetes, and nothing else.

Pure modules know the wire: request info, content negotiation, both encodings, watch frames, selectors, Status errors
and resource versions. They do no I/O and read no clock. Modules with I/O (client, reflector, store) keep a copy of a
part of the cluster. Nothing here imports addons, controllers, mitmproxy or the kubernetes package, knows a filter or
a rule, or passes objects through typed models, which would drop the fields that they do not know.
"""
