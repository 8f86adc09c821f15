"""One request, understood: its caller, its question, its route, and its exchange with the client."""
