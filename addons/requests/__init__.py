"""One request, understood: who calls, what is asked, and the route that it takes."""
