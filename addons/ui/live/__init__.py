"""What people see of a hub that runs, as it happens: a line for each request, and its flows."""
