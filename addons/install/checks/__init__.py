"""Checks of the doctor: the node, the cloud, and the form of a finding. Checks change nothing."""
