package charts

import (
	"airlift/bundle/builder/manifests"
)

// A Chart is a chart to render, with its values and API versions.
type Chart struct {
	// Name is a directory, an archive (.tgz), oci://registry.example.com/charts/app, or the
	// name of a chart in Repository.
	Name string
	// Repository is the URL of a chart repository: the directory of its index.yaml. It is
	// empty for the other forms of Name.
	Repository string
	// Version is a version, or a range as in Helm: "~1.2". Empty means the newest release.
	// It must be empty for a directory and an archive.
	Version string
	// Digest, if not empty, is the required sha256 of the archive: "sha256:<hex>".
	Digest string

	// Release is the name of the release. Empty means the chart's name.
	Release string
	// Namespace is the namespace of the release. Empty means "default".
	Namespace string

	// ValueFiles are the paths of files with values. Later ones win over earlier ones,
	// Values over ValueFiles, and Set over Values.
	ValueFiles []string
	Values     map[string]any
	// Set are values as --set of Helm takes them: "controller.replicas=2,service.type=NodePort".
	Set []string

	// KubernetesVersion is the version of the cluster: "v1.37.1".
	KubernetesVersion string
	// APIVersions are the API versions that CustomResourceDefinitions of other charts add to
	// Kubernetes' own, such as "monitoring.coreos.com/v1" or
	// "monitoring.coreos.com/v1/ServiceMonitor".
	APIVersions []string
}

// A Rendering is the result of rendering a chart.
type Rendering struct {
	// Name, Version and AppVersion are the chart's.
	Name, Version, AppVersion string
	// Digest is the sha256 of the archive: "sha256:<hex>". It is empty for a directory.
	Digest string
	// URL is where the archive was downloaded, or empty.
	URL string
	// Objects are in the order in which a host applies them. File is the template. Line is 0,
	// because lines of the result do not match lines of the template.
	Objects []*manifests.Object
	// Notes report what is different from an installation with Helm.
	Notes []string
}
