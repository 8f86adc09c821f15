"""The controller that keeps one Service for each ServiceGrid."""
