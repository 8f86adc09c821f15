"""What the tests of deployment share: a pod without a kubelet."""
