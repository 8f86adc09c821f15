"""What interfaces show of flows."""
