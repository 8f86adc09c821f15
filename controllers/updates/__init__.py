"""Updates the pods of DaemonSets with OpenYurt's annotations, and pulls their images first."""
