"""The controller that makes a Service in each cell of a ServiceGrid."""
