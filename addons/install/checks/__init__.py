"""Checks of the doctor: the node, the cloud, and the findings. Checks change nothing."""
