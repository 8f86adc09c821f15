"""Client programs of several ecosystems, straight at kube-apiserver and through a hub: what each of them sees."""
