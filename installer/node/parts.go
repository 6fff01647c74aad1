package node

// Containerd is the container runtime that the kubelet of this host uses.
type Containerd struct{ machine *Machine }

// Containerd returns the methods of this machine for that subject.
func (m *Machine) Containerd() Containerd { return Containerd{m} }

// Quorum is the quorum of the cluster's etcd, as this host sees it.
type Quorum struct{ machine *Machine }

// Quorum returns the methods of this machine for that subject.
func (m *Machine) Quorum() Quorum { return Quorum{m} }
