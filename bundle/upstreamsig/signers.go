package upstreamsig

import (
	"fmt"
	"strings"
)

// An Identity is an account that signs.
type Identity struct {
	// Name is the certificate's subject alternative name.
	Name string
	// Issuer is the service that checked the account when the certificate was issued.
	Issuer string
}

// String is the form in manifests: "NAME (ISSUER)".
func (i Identity) String() string { return fmt.Sprintf("%s (%s)", i.Name, i.Issuer) }

const google = "https://accounts.google.com"

// A signer is what signs the files or images of a host.
type signer struct {
	// prefix is the beginning of the URL, or of an image's reference.
	prefix string
	Identity
}

// fileSigners publish FILE.sig and FILE.cert next to FILE.
var fileSigners = []signer{
	// Since v1.26: kubernetes.io/docs/tasks/administer-cluster/verify-signed-artifacts,
	// "Verifying binary signatures".
	{"https://dl.k8s.io/release/", Identity{"krel-staging@k8s-releng-prod.iam.gserviceaccount.com", google}},
}

// imageSigners publish signatures in the image's repository, as cosign does.
var imageSigners = []signer{
	// All images that are promoted to registry.k8s.io: the same page, "Verifying image
	// signatures", and SignerAccount in promoter/image/options of
	// github.com/kubernetes-sigs/promo-tools. The images also have a signature of the
	// account that signs binaries. It is made before promotion and proves less.
	{"registry.k8s.io/", Identity{"krel-trust@k8s-releng-prod.iam.gserviceaccount.com", google}},
}

// OfFile returns who signs the file at url. It returns false if upstream publishes no
// signature, or none that this package can verify.
func OfFile(url string) (Identity, bool) { return find(fileSigners, url) }

// OfImage returns who signs the image.
func OfImage(reference string) (Identity, bool) { return find(imageSigners, reference) }

func find(signers []signer, name string) (Identity, bool) {
	for _, s := range signers {
		if strings.HasPrefix(name, s.prefix) {
			return s.Identity, true
		}
	}
	return Identity{}, false
}
