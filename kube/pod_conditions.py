"""The pod conditions by which manager and hubs coordinate an update. OpenYurt defines them, so either side may be
OpenYurt's."""

from __future__ import annotations

NEED_UPGRADE = "PodNeedUpgrade"
"""True if the pod's DaemonSet has a newer template. The message names its revision."""
IMAGE_READY = "PodImageReady"
"""True if the images of the revision in the message are on the node. False requests them."""
VERSION_PREFIX = "controllerrevision: "
"""Precedes the revision's hash in a message."""
