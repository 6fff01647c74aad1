package upstreamsig

import (
	"fmt"
	"regexp"
	"strings"
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

// A signer is the account that signs the files or images of a host.
type signer struct {
	// prefix is the beginning of the URL, or of an image's reference.
	prefix string
	Identity
}

// fileSigners publish FILE.sig and FILE.cert next to FILE.
var fileSigners = []signer{
	// Since v1.26: kubernetes.io/docs/tasks/administer-cluster/verify-signed-artifacts,
	// "Verifying binary signatures".
	{"https://dl.k8s.io/release/", Identity{Name: "krel-staging@k8s-releng-prod.iam.gserviceaccount.com", Issuer: google}},
}

// imageSigners publish signatures in the image's repository, as cosign does.
var imageSigners = []signer{
	// All images that are promoted to registry.k8s.io: the same page, "Verifying image
	// signatures", and SignerAccount in promoter/image/options of
	// github.com/kubernetes-sigs/promo-tools. The images also have a signature of the
	// account that signs binaries. It is made before promotion and proves less.
	{"registry.k8s.io/", Identity{Name: "krel-trust@k8s-releng-prod.iam.gserviceaccount.com", Issuer: google}},
}

// OfFile returns who signs the file at url. It returns false if upstream publishes no signature
// that this package can verify.
func OfFile(url string) (Identity, bool) { return find(fileSigners, url) }

// OfImage returns who signs the image. A signature in cosign's older form must also name the
// repository of the image.
func OfImage(reference string) (who Identity, ok bool) {
	who, ok = find(imageSigners, reference)
	if ok {
		repository, _, _ := strings.Cut(reference, "@")
		if n := strings.LastIndex(repository, ":"); n > strings.LastIndex(repository, "/") {
			repository = repository[:n]
		}
		who.image = normalize(repository)
	}
	return who, ok
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

func find(signers []signer, name string) (Identity, bool) {
	for _, s := range signers {
		if strings.HasPrefix(name, s.prefix) {
			return s.Identity, true
		}
	}
	return Identity{}, false
}
