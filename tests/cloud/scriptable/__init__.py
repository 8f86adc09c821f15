"""The scriptable test cloud: a small API server in the test's process, for faults that a real one cannot produce. It
stores objects, responds over HTTP like kube-apiserver, and fails on command. Of the product it may import only `kube`
(negotiation, selectors, codec, patches); the contract tests keep it equal to a real server."""

from tests.cloud.scriptable.cloud import ScriptableCloud

__all__ = ["ScriptableCloud"]
