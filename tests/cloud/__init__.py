"""The test clouds: a real Kubernetes control plane with its real clients, and the link between a hub and it. This
package may start processes, open sockets on loopback and write below a temporary folder. The product imports nothing
from it, and it imports neither `addons` nor `controllers`."""
