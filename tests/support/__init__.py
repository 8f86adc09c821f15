"""Helpers of all tests: the detector of blocked event loops, a server in a thread, a clock, a browser, a terminal."""
