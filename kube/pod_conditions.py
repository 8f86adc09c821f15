"""The conditions by which a manager and hubs agree on the update of a pod: OpenYurt's, of whatever make either is."""

from __future__ import annotations

NEED_UPGRADE = "PodNeedUpgrade"
"""Whether the pod's DaemonSet has a newer template, of the revision that the message names."""
IMAGE_READY = "PodImageReady"
"""Whether the images of the revision that the message names are on the node: False asks for them."""
VERSION_PREFIX = "controllerrevision: "
"""The prefix of the revision's hash in a message."""
