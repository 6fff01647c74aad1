package phases

// InitOptions are the user's options for init that are not part of the
// configuration.
type InitOptions struct {
	// FromFile reports whether the configuration comes from a file. It then replaces the
	// configuration of an existing cluster.
	FromFile bool
	// UserToken reports whether the user gave the token. Otherwise init
	// generated it.
	UserToken bool
	// SkipTokenPrint and SkipCertificateKeyPrint keep secrets out of the
	// summary.
	SkipTokenPrint, SkipCertificateKeyPrint bool
	// Kubeconfig is the kubeconfig with which a phase reaches the cluster.
	Kubeconfig string
	// KubeconfigDir is the directory in which the phase kubeconfig writes.
	KubeconfigDir string
	// RenderDir and PrintManifest write the add-ons' or the site's manifests to a directory
	// or to standard output. Nothing is installed then.
	RenderDir     string
	PrintManifest bool
	// ForceConflicts also replaces fields of the site's manifests that others have
	// changed in the cluster.
	ForceConflicts bool
}

// ManifestsOnly reports whether init only prints the manifests or writes them
// to a directory.
func (o InitOptions) ManifestsOnly() bool { return o.PrintManifest || o.RenderDir != "" }
