"""Tests of the checks of the doctor."""
