"""Tests of the tree itself: what each module, document, script and lock keeps to."""
