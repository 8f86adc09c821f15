"""One request, understood: who calls, what is asked, the route that it takes, and its exchange with the client."""
