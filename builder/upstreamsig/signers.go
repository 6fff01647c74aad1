package upstreamsig

import (
	"fmt"
	"regexp"
	"strings"

	"airlift/images/release"
)

// An Identity is an account that signs.
type Identity struct {
	// Name is the certificate's subject alternative name.
	Name string
	// Issuer is the service that checked the account when the certificate was issued.
	Issuer string

	// image is the normalized repository that a signature of an image must name.
	image string
}

// String is the form in manifests: "NAME (ISSUER)".
func (i Identity) String() string { return fmt.Sprintf("%s (%s)", i.Name, i.Issuer) }

const google = "https://accounts.google.com"

// OfFile returns who signs the file at url: upstream publishes FILE.sig and FILE.cert next to FILE. It
// returns false if upstream publishes no signature that this package can verify.
//
// Since v1.26: kubernetes.io/docs/tasks/administer-cluster/verify-signed-artifacts, "Verifying binary
// signatures".
func OfFile(url string) (Identity, bool) {
	if !strings.HasPrefix(url, "https://dl.k8s.io/release/") {
		return Identity{}, false
	}
	return Identity{Name: "krel-staging@k8s-releng-prod.iam.gserviceaccount.com", Issuer: google}, true
}

// OfImage returns who signs the image: upstream publishes signatures in the image's repository, as cosign
// does. A signature in cosign's older form must also name the repository of the image.
//
// All images that are promoted to registry.k8s.io: the same page, "Verifying image signatures", and
// SignerAccount in promoter/image/options of github.com/kubernetes-sigs/promo-tools. The images also
// have a signature of the account that signs binaries. It is made before promotion and proves less.
func OfImage(reference string) (Identity, bool) {
	if !strings.HasPrefix(reference, "registry.k8s.io/") {
		return Identity{}, false
	}
	return Identity{Name: "krel-trust@k8s-releng-prod.iam.gserviceaccount.com", Issuer: google, image: normalize(release.Repository(reference))}, true
}

// registries are the names of the registry of Kubernetes in signatures: today's name, and the names
// of the registries behind it, which signatures used until v1.27. Until v1.28, images of the root
// also had the path kubernetes/: github.com/kubernetes-sigs/promo-tools, pull request 928 and issue
// 935.
var registries = regexp.MustCompile(`^(registry\.k8s\.io|k8s\.gcr\.io|([a-z]+\.)?gcr\.io/k8s-artifacts-prod|[a-z0-9-]+-docker\.pkg\.dev/k8s-artifacts-prod/images)/(kubernetes/)?`)

// normalize returns a repository in the form of today's registry.
func normalize(repository string) string {
	return registries.ReplaceAllString(repository, "registry.k8s.io/")
}
