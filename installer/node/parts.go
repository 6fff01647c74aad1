package node

// Containerd is the container runtime that the kubelet of this host uses.
type Containerd struct{ machine *Machine }

// Containerd returns them for this machine.
func (m *Machine) Containerd() Containerd { return Containerd{m} }

// Quorum is that of the cluster's etcd, as this host sees it.
type Quorum struct{ machine *Machine }

// Quorum returns them for this machine.
func (m *Machine) Quorum() Quorum { return Quorum{m} }
