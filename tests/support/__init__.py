"""What every test stands on: the detector of what holds an event loop, with its own tests."""
