package sitefile

// Values of the fields apiVersion and kind.
const (
	APIVersion = "airlift/v1"
	Kind       = "Bundle"
)

// A document is bundle.yaml as it is written. Every field but the first two may be missing.
type document struct {
	APIVersion text `yaml:"apiVersion"` // APIVersion
	Kind       text `yaml:"kind"`       // Kind

	// KubernetesVersion is v1.29.15, v1.29 or stable, as --version.
	KubernetesVersion text `yaml:"kubernetesVersion"`
	// Architectures are amd64, arm64 or both, as --arch. There is a bundle for each.
	Architectures []text `yaml:"architectures"`
	// CNI is the pod network, flannel or none, as --cni.
	CNI text `yaml:"cni"`
	// Only lists what an additional bundle has: images, manifests or both, as --only.
	Only []text `yaml:"only"`
	// Base is the bundle whose layers an additional bundle leaves out, as --base.
	Base text `yaml:"base"`
	// ComponentVersions are for a Kubernetes version that is newer than the known ones,
	// as --etcd-version and the others.
	ComponentVersions componentVersions `yaml:"componentVersions"`

	// AddOns are add-ons of the catalog, as --addon.
	AddOns []text `yaml:"addons"`
	// Images are references, as --image. The images that Manifests name need not be listed.
	Images []text `yaml:"images"`
	// Manifests are applied by init in this order.
	Manifests []manifest `yaml:"manifests"`
	// Files are written by init and join.
	Files []file `yaml:"files"`
	// SystemdUnits are written, enabled and started by init and join.
	SystemdUnits []unit `yaml:"systemdUnits"`

	// Mirrors are HOST=URL, as --mirror.
	Mirrors []text `yaml:"mirrors"`
	// RegistryCAs are FILE, HOST=FILE or DIR, as --registry-ca.
	RegistryCAs []text `yaml:"registryCAs"`
	// Checksums are NAME=sha256:HEX, as --checksum.
	Checksums []text `yaml:"checksums"`
	// ChecksumFiles are files in the format of sha256sum, as --checksums.
	ChecksumFiles []text `yaml:"checksumFiles"`
	// VerifySignatures is require, if-present or off, as --verify-signatures.
	VerifySignatures text `yaml:"verifySignatures"`
	// TrustedRoot is a trusted_root.json of sigstore, as --trusted-root.
	TrustedRoot text `yaml:"trustedRoot"`
	// Require and Without name optional components, as the flags.
	Require []text `yaml:"require"`
	Without []text `yaml:"without"`

	// KeepCompressedLayers is true or false, as --keep-compressed-layers.
	KeepCompressedLayers boolean `yaml:"keepCompressedLayers"`
	// Compression is fastest, default or best, as --compression.
	Compression text `yaml:"compression"`
	// Output is the file to write, as --output.
	Output text `yaml:"output"`
}

type componentVersions struct {
	Etcd    text `yaml:"etcd"`
	CoreDNS text `yaml:"coredns"`
	Pause   text `yaml:"pause"`
	Crictl  text `yaml:"crictl"`
}

// A manifest has either a path or a chart.
type manifest struct {
	// Name is a DNS label. It is unique in the file.
	Name text `yaml:"name"`
	// Path is a YAML file, a directory of YAML files, or a directory with a
	// kustomization.yaml.
	Path text `yaml:"path"`
	// Chart is a Helm chart, which is rendered when the bundle is built.
	Chart *chart `yaml:"chart"`
	// Namespace is the namespace of objects that name none.
	Namespace text `yaml:"namespace"`
	// ImagePullPolicy may be IfNotPresent: then imagePullPolicy: Always is replaced.
	ImagePullPolicy text `yaml:"imagePullPolicy"`
}

// A chart is a Helm chart with its values.
type chart struct {
	// Source is a directory, an archive (.tgz), oci://REGISTRY/REPOSITORY, or the URL of a
	// chart repository.
	Source text `yaml:"source"`
	// Name is the chart's name in a chart repository.
	Name text `yaml:"name"`
	// Version is the chart's exact version. A chart from a network needs it.
	Version text `yaml:"version"`
	// Digest is the sha256 that the archive must have, sha256:HEX.
	Digest text `yaml:"digest"`
	// Release is the name of the release. By default it is the manifest's name.
	Release text `yaml:"release"`
	// Values are files with values, later ones override earlier ones.
	Values []text `yaml:"values"`
	// Set are KEY=VALUE, as helm's --set. They override Values.
	Set []text `yaml:"set"`
}

// A file is copied to the hosts.
type file struct {
	// Path is the absolute path on the host.
	Path text `yaml:"path"`
	// Source is the file on the machine that builds the bundle.
	Source text `yaml:"source"`
	// Mode is the permissions in octal digits, by default 0644.
	Mode text `yaml:"mode"`
	// Nodes are control-plane, worker or all, which is the default.
	Nodes text `yaml:"nodes"`
}

// A unit is a systemd unit.
type unit struct {
	// Source is the unit's file on the machine that builds the bundle.
	Source text `yaml:"source"`
	// Name is the unit's name, by default the name of Source.
	Name text `yaml:"name"`
	// Nodes are as in file.
	Nodes text `yaml:"nodes"`
}
