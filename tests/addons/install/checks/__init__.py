"""Tests of the doctor's checks."""
