"""Helpers of the tests of the filters: objects to filter, and checks of what came of them."""
