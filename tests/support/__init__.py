"""Helpers of all tests: the detector of blocked event loops, a server's thread, a browser, a terminal."""
