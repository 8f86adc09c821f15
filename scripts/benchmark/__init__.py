"""Loads that `scripts/bench` measures. `program` is the command; each other module is one load, or shared by loads."""
