"""Helpers of the tests on a real node: the commands of a page, hub and manager, and pods that call."""
