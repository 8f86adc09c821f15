"""Tests of `addons/requests/exchange/`."""
