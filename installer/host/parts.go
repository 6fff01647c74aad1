package host

// Upgrades are the files of an upgrade.
type Upgrades struct{ host *Host }

// Upgrades returns the methods of this host for that subject.
func (h *Host) Upgrades() Upgrades { return Upgrades{h} }

// SiteFiles are the site's own files.
type SiteFiles struct{ host *Host }

// SiteFiles returns the methods of this host for that subject.
func (h *Host) SiteFiles() SiteFiles { return SiteFiles{h} }
