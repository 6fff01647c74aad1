package preflight

// kernelChecks look at the kernel.
type kernelChecks struct{ subject *subject }

// kernelChecks returns the methods of this subject for that subject.
func (s *subject) kernelChecks() kernelChecks { return kernelChecks{s} }

// networkChecks look at names, addresses, ports and the firewall.
type networkChecks struct{ subject *subject }

// networkChecks returns the methods of this subject for that subject.
func (s *subject) networkChecks() networkChecks { return networkChecks{s} }

// fileChecks look at files, directories and disks.
type fileChecks struct{ subject *subject }

// fileChecks returns the methods of this subject for that subject.
func (s *subject) fileChecks() fileChecks { return fileChecks{s} }

// kubeletChecks look at the kubelet's configuration, and at services that are in its way.
type kubeletChecks struct{ subject *subject }

// kubeletChecks returns the methods of this subject for that subject.
func (s *subject) kubeletChecks() kubeletChecks { return kubeletChecks{s} }

// systemChecks look at the machine, its runtime and the versions.
type systemChecks struct{ subject *subject }

// systemChecks returns the methods of this subject for that subject.
func (s *subject) systemChecks() systemChecks { return systemChecks{s} }
