"""Updates of the pods of DaemonSets as OpenYurt's annotations ask for it, and the pull of their images before."""
