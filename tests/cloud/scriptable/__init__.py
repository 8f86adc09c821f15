"""The scriptable test cloud: a small API server inside the process, for faults that a real one cannot be made to show.

It stores objects, answers HTTP as a kube-apiserver does and misbehaves on command. It may import `kube` (negotiation,
selectors, codec, patches), nothing else of the product; the contract tests keep it equal to a real server.
"""

from tests.cloud.scriptable.cloud import ScriptableCloud

__all__ = ["ScriptableCloud"]
