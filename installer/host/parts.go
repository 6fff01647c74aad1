package host

// Upgrades are the files of an upgrade, or of a reconfiguration, in a directory.
type Upgrades struct {
	host *Host
	dir  string
}

// Upgrades returns the methods of this host for upgrades.
func (h *Host) Upgrades() Upgrades { return Upgrades{h, UpgradeDir} }

// Reconfigurations returns the same methods for reconfigurations.
func (h Upgrades) Reconfigurations() Upgrades { return Upgrades{h.host, ReconfigureDir} }
