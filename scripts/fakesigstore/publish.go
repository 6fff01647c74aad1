package fakesigstore

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/images/release"
	"airlift/scripts/fakesites"
)

// Files returns the contents of FILE.sig and FILE.cert for a file, as on dl.k8s.io.
func (s *Sigstore) Files(content []byte, a Account) (sig, cert []byte) {
	s.t.Helper()
	return s.FilesOf(sha256.Sum256(content), a)
}

// FilesOf is Files for a sha256.
func (s *Sigstore) FilesOf(sum [sha256.Size]byte, a Account) (sig, cert []byte) {
	s.t.Helper()
	signed := s.Sign(sum, a)
	return encode(signed.Signature), encode(signed.Certificate)
}

func encode(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(b)) }

// Payload is what cosign signs for an image.
func Payload(repository, digest string) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, repository, digest)
}

// The accounts that sign Kubernetes' binaries and images.
var (
	BinarySigner = Account{Name: "krel-staging@k8s-releng-prod.iam.gserviceaccount.com", Issuer: "https://accounts.google.com"}
	ImageSigner  = Account{Name: "krel-trust@k8s-releng-prod.iam.gserviceaccount.com", Issuer: "https://accounts.google.com"}
)

// SignRelease signs what Kubernetes signs of a release, and replaces the binaries and the images of
// Kubernetes itself by some that have the version of the release. It returns the mirror of the
// transparency log and the path of the trusted root, for flags.
func (s *Sigstore) SignRelease(u *fakesites.Upstream, version, arch string) (mirror, trustedRoot string) {
	s.t.Helper()
	c, err := release.For(version, arch, release.Flannel, release.Versions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, b := range c.Binaries {
		if file, ok := strings.CutPrefix(b.URL, "https://dl.k8s.io/"); ok {
			putBinary(u, "dl.k8s.io/"+file, version, arch)
			s.SignFile(u, "dl.k8s.io/"+file, BinarySigner)
		}
	}
	for _, i := range c.Images {
		if strings.HasPrefix(i.Reference, "registry.k8s.io/") {
			putImage(u, i.Reference, version)
			s.SignImage(u, i.Reference, ImageSigner)
		}
	}
	trustedRoot = filepath.Join(s.t.TempDir(), "trusted_root.json")
	if err := os.WriteFile(trustedRoot, s.TrustedRoot(), 0o644); err != nil {
		s.t.Fatal(err)
	}
	u.Forget()
	return s.Mirror(), trustedRoot
}

// SignFile serves FILE.sig and FILE.cert.
func (s *Sigstore) SignFile(u *fakesites.Upstream, file string, a Account) {
	s.t.Helper()
	sig, cert := s.Files(u.Get(file), a)
	u.Put(file+".sig", sig)
	u.Put(file+".cert", cert)
}

// SignImage pushes the signatures of an image, one for each account.
func (s *Sigstore) SignImage(u *fakesites.Upstream, reference string, accounts ...Account) {
	s.t.Helper()
	repository, _, _ := strings.Cut(reference, ":")
	digest := u.Digest(reference)
	u.Push(repository+":"+Tag(digest), s.Image(repository, digest.String(), accounts...))
}

// Image returns the image with the tag that Tag returns: a layer for each account.
func (s *Sigstore) Image(repository, digest string, accounts ...Account) v1.Image {
	s.t.Helper()
	payload := Payload(repository, digest)
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, a := range accounts {
		signed := s.Sign(sha256.Sum256(payload), a)
		var err error
		img, err = mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"), Annotations: s.Annotations(signed)})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return img
}

// ImageWithKey is Image for a signature with a key pair, as of "cosign sign --key": it has no
// certificate.
func (s *Sigstore) ImageWithKey(repository, digest string) v1.Image {
	s.t.Helper()
	payload := Payload(repository, digest)
	annotations := s.Annotations(s.Sign(sha256.Sum256(payload), Account{}))
	delete(annotations, "dev.sigstore.cosign/certificate")
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"), Annotations: annotations})
	if err != nil {
		s.t.Fatal(err)
	}
	return img
}

// Tag is the tag of the signatures of an image.
func Tag(digest v1.Hash) string { return "sha256-" + digest.Hex + ".sig" }
