"""Tests of `addons/telemetry/`."""
