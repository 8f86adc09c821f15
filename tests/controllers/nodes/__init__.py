"""Tests of the controller that installs hubs on labelled nodes."""
