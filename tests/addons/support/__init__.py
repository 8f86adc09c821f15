"""Helpers of the tests of `addons/`: parts of a hub with stand-ins for the others."""
