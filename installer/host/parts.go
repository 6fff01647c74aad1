package host

// Systemd are the units of systemd on the host.
type Systemd struct{ host *Host }

// Systemd returns the methods of this host for that subject.
func (h *Host) Systemd() Systemd { return Systemd{h} }

// Records are what the ledger has: what Airlift wrote, claimed and owns on the host.
type Records struct{ host *Host }

// Records returns the methods of this host for that subject.
func (h *Host) Records() Records { return Records{h} }

// NetworkClaims are the directories and interfaces of the pod network.
type NetworkClaims struct{ host *Host }

// Networks returns the methods of this host for that subject.
func (h *Host) Networks() NetworkClaims { return NetworkClaims{h} }

// Detection finds out what the host has.
type Detection struct{ host *Host }

// Detection returns the methods of this host for that subject.
func (h *Host) Detection() Detection { return Detection{h} }

// Kernel is what a node needs of the kernel: modules, sysctls, mounts and routes.
type Kernel struct{ host *Host }

// Kernel returns the methods of this host for that subject.
func (h *Host) Kernel() Kernel { return Kernel{h} }

// Upgrades are the files of an upgrade.
type Upgrades struct{ host *Host }

// Upgrades returns the methods of this host for that subject.
func (h *Host) Upgrades() Upgrades { return Upgrades{h} }

// Runs are the records of the latest runs.
type Runs struct{ host *Host }

// RunRecords returns the methods of this host for that subject.
func (h *Host) RunRecords() Runs { return Runs{h} }

// SiteFiles are the site's own files.
type SiteFiles struct{ host *Host }

// SiteFiles returns the methods of this host for that subject.
func (h *Host) SiteFiles() SiteFiles { return SiteFiles{h} }

// Removal is what reset removes.
type Removal struct{ host *Host }

// Removal returns the methods of this host for that subject.
func (h *Host) Removal() Removal { return Removal{h} }
