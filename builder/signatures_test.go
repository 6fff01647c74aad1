package builder_test

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/builder"
	"airlift/builder/fetch"
	"airlift/builder/lock"
	"airlift/builder/upstreamsig"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesigstore"
	"airlift/scripts/fixtures/fakesites"
)

const dl = "dl.k8s.io/release/" + version + "/bin/linux/amd64/"

const pause = "registry.k8s.io/pause:3.9"

// signedUpstream serves a release with signatures as upstream has them, and returns the
// options of a build that requires them.
func signedUpstream(t *testing.T) (*fakesites.Upstream, *fakesigstore.Sigstore, builder.Options) {
	t.Helper()
	u, s := fakesites.New(t, version), fakesigstore.New(t)
	o := options(t, u)
	mirror, root := s.SignRelease(u, version, "amd64")
	m, err := fetch.ParseMirror(mirror)
	if err != nil {
		t.Fatal(err)
	}
	o.Mirrors, o.TrustedRoot, o.VerifySignatures = append(o.Mirrors, m), root, builder.VerifyRequire
	return u, s, o
}

func imageOf(t *testing.T, m *bundle.Manifest, name string) bundle.Image {
	t.Helper()
	for _, i := range m.Images {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("no image %s", name)
	return bundle.Image{}
}

func TestRequiredSignatures(t *testing.T) {
	t.Parallel()
	u, _, o := signedUpstream(t)
	r := run(t, o)
	if n := len(r.Signatures.Verified); n != 9 || len(r.Signatures.Missing) > 0 {
		t.Errorf("verified: %q, missing: %q", r.Signatures.Verified, r.Signatures.Missing)
	}
	if want := []string{"runc", "containerd", "cni-plugins", "crictl"}; !slices.Equal(r.Signatures.OnlyChecksum[:4], want) {
		t.Errorf("only checksum: %q", r.Signatures.OnlyChecksum)
	}
	for _, w := range r.Warnings {
		if strings.Contains(w, "dl.k8s.io") || strings.Contains(w, "registry.k8s.io") {
			t.Errorf("a warning about verified contents: %s", w)
		}
	}
	// The file itself has it, in canonical form.
	f, err := bundle.Open(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range m.Components {
		want := ""
		if c.Name == "kubelet" || c.Name == "kubectl" {
			want = fakesigstore.BinarySigner.Name + " (https://accounts.google.com)"
		}
		if c.SignedBy != want {
			t.Errorf("%s is signed by %q", c.Name, c.SignedBy)
		}
	}
	if by := imageOf(t, m, "pause").SignedBy; by != fakesigstore.ImageSigner.Name+" (https://accounts.google.com)" {
		t.Errorf("pause is signed by %q", by)
	}
	var p builder.Provenance
	text, err := os.ReadFile(r.Provenance)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	if root, err := os.ReadFile(o.TrustedRoot); err != nil || p.TrustedRoot != fmt.Sprintf("%x", sha256.Sum256(root)) {
		t.Errorf("trusted root %q, %v", p.TrustedRoot, err)
	}
	kubelet := p.Components[slices.IndexFunc(p.Components, func(c builder.ProvenanceComponent) bool { return c.Name == "kubelet" })]
	if p.VerifySignatures != "require" || kubelet.Signature != "https://"+dl+"kubelet.sig" || !strings.HasPrefix(kubelet.SignedBy, fakesigstore.BinarySigner.Name) {
		t.Errorf("%+v", kubelet)
	}

	// A second build needs no network, and verifies again.
	u.Close()
	if again := run(t, o); again.SHA256 != r.SHA256 || len(again.Signatures.Verified) != 9 {
		t.Errorf("%+v", again.Signatures)
	}
	other := o
	other.TrustedRoot = filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(other.TrustedRoot, fakesigstore.New(t).TrustedRoot(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := runOne(context.Background(), other); err == nil {
		t.Error("signatures in the cache are accepted without the trusted root that they need")
	}
}

// Whoever replaces a file on the site can also replace its checksum, but not its signature.
func TestRefusedSignatures(t *testing.T) {
	t.Parallel()
	replaced := func(t *testing.T, u *fakesites.Upstream) {
		u.Put(dl+"kubelet", []byte("\x7fELF, but not upstream's"))
		u.Put(dl+"kubelet.sha256", fmt.Appendf(nil, "%x\n", sha256.Sum256(u.Get(dl+"kubelet"))))
	}
	stranger := fakesigstore.Account{Name: "me@example.com", Issuer: "https://accounts.google.com"}
	for name, c := range map[string]struct {
		change func(*testing.T, *fakesites.Upstream, *fakesigstore.Sigstore)
		want   string
	}{
		"file": {func(t *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) { replaced(t, u) }, upstreamsig.ErrContent.Error()},
		"file, signed by another account": {func(t *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			replaced(t, u)
			s.SignFile(u, dl+"kubelet", stranger)
		}, upstreamsig.ErrIdentity.Error()},
		"file, signed with another CA": {func(t *testing.T, u *fakesites.Upstream, _ *fakesigstore.Sigstore) {
			replaced(t, u)
			fakesigstore.New(t).SignFile(u, dl+"kubelet", fakesigstore.BinarySigner)
		}, upstreamsig.ErrLog.Error()},
		"file, other issuer": {func(t *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			s.SignFile(u, dl+"kubelet", fakesigstore.Account{Name: fakesigstore.BinarySigner.Name, Issuer: "https://issuer.example"})
		}, upstreamsig.ErrIssuer.Error()},
		"file, signed too late": {func(t *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			late := fakesigstore.BinarySigner
			late.Late = time.Hour
			s.SignFile(u, dl+"kubelet", late)
		}, upstreamsig.ErrExpired.Error()},
		"file of another release, with its signature": {func(_ *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			u.PutFile(dl+"kubelet", fakesigstore.Binary("kubelet", "v1.26.0", elf.EM_X86_64))
			s.SignFile(u, dl+"kubelet", fakesigstore.BinarySigner)
		}, upstreamsig.ErrOther.Error() + ": the file is not version v1.29.15"},
		"file of another component, with its signature": {func(_ *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			u.PutFile(dl+"kubelet", fakesigstore.Binary("kubectl", "v1.29.15", elf.EM_X86_64))
			s.SignFile(u, dl+"kubelet", fakesigstore.BinarySigner)
		}, upstreamsig.ErrOther.Error()},
		"another image, with its signature": {func(t *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			const reference = "registry.k8s.io/kube-apiserver:v1.29.15"
			u.Push(reference, fakesites.Image(t, "amd64", "etcd"))
			digest := u.Digest(reference)
			u.Push("registry.k8s.io/kube-apiserver:"+fakesigstore.Tag(digest), s.Image("registry.k8s.io/etcd", digest.String(), fakesigstore.ImageSigner))
		}, upstreamsig.ErrOther.Error() + `: it names the image "registry.k8s.io/etcd"`},
		"image of another release, with its signature": {func(t *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			const reference = "registry.k8s.io/kube-apiserver:v1.29.15"
			u.PushIndex(reference, fakesigstore.CommandImages(t, "kube-apiserver", "v1.26.0"))
			s.SignImage(u, reference, fakesigstore.ImageSigner)
		}, "kube-apiserver:v1.29.15: " + upstreamsig.ErrOther.Error() + ": the file is not version v1.29.15"},
		"image without its command, with its signature": {func(t *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			const reference = "registry.k8s.io/kube-proxy:v1.29.15"
			u.PushIndex(reference, fakesigstore.CommandImages(t, "kube-scheduler", "v1.29.15"))
			s.SignImage(u, reference, fakesigstore.ImageSigner)
		}, "does not have the command of its name"},
		"image, signed with another CA": {func(t *testing.T, u *fakesites.Upstream, _ *fakesigstore.Sigstore) {
			fakesigstore.New(t).SignImage(u, pause, fakesigstore.ImageSigner)
		}, upstreamsig.ErrCertificate.Error()},
		"image with the signature of another": {func(t *testing.T, u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			u.Push("registry.k8s.io/pause:"+fakesigstore.Tag(u.Digest(pause)), s.Image("registry.k8s.io/pause", "sha256:"+strings.Repeat("0", 64), fakesigstore.ImageSigner))
		}, upstreamsig.ErrContent.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, s, o := signedUpstream(t)
			o.Refresh = true
			off := o
			off.VerifySignatures, off.TrustedRoot, off.Mirrors = builder.VerifyOff, "", mirrors(t, u)
			c.change(t, u, s)
			for _, mode := range []string{builder.VerifyRequire, builder.VerifyIfPresent} {
				o.VerifySignatures = mode
				_, err := runOne(context.Background(), o)
				if err == nil || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == "" {
					t.Errorf("%s: %v", mode, err)
				}
			}
			if r := run(t, off); r.Signatures != nil {
				t.Errorf("off: %+v", r.Signatures)
			}
		})
	}
}

// A mirror may have no signatures, and the transparency log may be out of reach.
func TestMissingSignatures(t *testing.T) {
	t.Parallel()
	u, s, o := signedUpstream(t)
	u.Remove(dl + "kubelet.cert")
	s.CloseLog()
	_, err := runOne(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), "kubelet v1.29.15: ") || !strings.Contains(err.Error(), "not found") ||
		!strings.Contains(err.Error(), "kubectl v1.29.15: looking for the signature in the transparency log") || strings.Contains(err.Error(), "pause") {
		t.Errorf("require: %v", err)
	}
	o.VerifySignatures = builder.VerifyIfPresent
	r := run(t, o)
	if len(r.Signatures.Verified) != 7 || len(r.Signatures.Missing) != 2 {
		t.Errorf("%+v", r.Signatures)
	}
	if n := slices.IndexFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "not verified: kubelet v1.29.15") }); n < 0 {
		t.Errorf("%q", r.Warnings)
	}
	if by := imageOf(t, r.Manifest, "pause").SignedBy; by == "" {
		t.Error("pause has no verified signature")
	}
}

// Images may have signatures of any account, and statements that are no signatures. Only
// with the right one, they are signed.
func TestOtherSignaturesOfImages(t *testing.T) {
	t.Parallel()
	u, s, o := signedUpstream(t)
	digest := u.Digest(pause)
	u.Push("registry.k8s.io/pause:"+fakesigstore.Tag(digest), s.Image("registry.k8s.io/pause", digest.String(), fakesigstore.BinarySigner))
	_, err := runOne(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), pause+": "+upstreamsig.ErrIdentity.Error()) {
		t.Errorf("%v", err)
	}
	o.VerifySignatures = builder.VerifyIfPresent
	if r := run(t, o); len(r.Signatures.Missing) != 1 || imageOf(t, r.Manifest, "pause").SignedBy != "" {
		t.Errorf("%+v", r.Signatures)
	}
	// cosign's newer form, next to the other signature and a statement.
	of := u.Descriptor(pause)
	u.Push("registry.k8s.io/pause:statement", s.Referrer(of, s.Bundle(digest.String(), "https://slsa.dev/provenance/v1", fakesigstore.ImageSigner)))
	u.Push("registry.k8s.io/pause:signature", s.Referrer(of, s.Bundle(digest.String(), fakesigstore.SignType, fakesigstore.ImageSigner)))
	o.VerifySignatures = builder.VerifyRequire
	if r := run(t, o); imageOf(t, r.Manifest, "pause").SignedBy == "" {
		t.Errorf("%+v", r.Signatures)
	}
}

// A signature with a key pair has no account, so the image is treated as not signed, in both forms
// of cosign.
func TestSignaturesOfImagesWithKey(t *testing.T) {
	t.Parallel()
	for name, push := range map[string]func(*fakesites.Upstream, *fakesigstore.Sigstore){
		"older form": func(u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			digest := u.Digest(pause)
			u.Push("registry.k8s.io/pause:"+fakesigstore.Tag(digest), s.ImageWithKey("registry.k8s.io/pause", digest.String()))
		},
		"newer form": func(u *fakesites.Upstream, s *fakesigstore.Sigstore) {
			digest := u.Digest(pause)
			u.Push("registry.k8s.io/pause:"+fakesigstore.Tag(digest), s.Image("registry.k8s.io/pause", digest.String())) // no signatures
			u.Push("registry.k8s.io/pause:key", s.Referrer(u.Descriptor(pause), s.WithKey(s.Bundle(digest.String(), fakesigstore.SignType, fakesigstore.ImageSigner))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, s, o := signedUpstream(t)
			push(u, s)
			_, err := runOne(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), pause+": "+upstreamsig.ErrIdentity.Error()+": the image is signed with a key") ||
				strings.Contains(fault.Hint(err), "do not use") || !strings.Contains(fault.Hint(err), "if-present") {
				t.Errorf("require: %v, hint %q", err, fault.Hint(err))
			}
			o.VerifySignatures = builder.VerifyIfPresent
			r := run(t, o)
			if len(r.Signatures.Missing) != 1 || !strings.Contains(r.Signatures.Missing[0], pause) || imageOf(t, r.Manifest, "pause").SignedBy != "" {
				t.Errorf("if-present: %+v", r.Signatures)
			}
		})
	}
}

// Without the trusted root, nothing can be verified.
func TestNoTrustedRoot(t *testing.T) {
	t.Parallel()
	_, _, o := signedUpstream(t)
	m, err := fetch.ParseMirror("tuf-repo-cdn.sigstore.dev=http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	o.Mirrors, o.TrustedRoot = append(o.Mirrors, m), ""
	o.VerifySignatures = builder.VerifyIfPresent
	r := run(t, o)
	if len(r.Signatures.Verified) != 0 || len(r.Signatures.Missing) != 1 || !strings.Contains(r.Signatures.Missing[0], "trusted root") {
		t.Errorf("%+v", r.Signatures)
	}
	o.VerifySignatures = builder.VerifyRequire
	_, err = runOne(context.Background(), o)
	if err == nil || !strings.Contains(fault.Hint(err), "--trusted-root") {
		t.Errorf("%v, hint %q", err, fault.Hint(err))
	}
}

func TestSignaturesAndLock(t *testing.T) {
	t.Parallel()
	u, _, o := signedUpstream(t)
	var l *lock.Lock
	o.LockPath = filepath.Join(t.TempDir(), "bundle.lock")
	o.Resolved = func(got *lock.Lock) error { l = got; return nil }
	first := run(t, o)
	o.Lock, o.Resolved = l, nil
	if again := run(t, o); again.SHA256 != first.SHA256 {
		t.Error("a build with the lock has other contents")
	}
	off := o
	off.VerifySignatures, off.TrustedRoot = builder.VerifyOff, ""
	if _, err := runOne(context.Background(), off); err == nil || !strings.Contains(err.Error(), "component kubelet signedBy") {
		t.Errorf("off: %v", err)
	}
	// What was verified once must not be missing later.
	u.Remove(dl + "kubelet.sig")
	o.VerifySignatures, o.CacheDir = builder.VerifyIfPresent, filepath.Join(t.TempDir(), "cache")
	if _, err := runOne(context.Background(), o); err == nil || !strings.Contains(err.Error(), "component kubelet signedBy") {
		t.Errorf("missing: %v", err)
	}
}

func TestSignatureOptions(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	for name, change := range map[string]func(*builder.Options){
		"unknown":             func(o *builder.Options) { o.VerifySignatures = "yes" },
		"root without mode":   func(o *builder.Options) { o.TrustedRoot = "x.json" },
		"root does not exist": func(o *builder.Options) { o.VerifySignatures, o.TrustedRoot = builder.VerifyRequire, "x.json" },
		"root is another file": func(o *builder.Options) {
			o.VerifySignatures, o.TrustedRoot = builder.VerifyRequire, "signatures_test.go"
		},
	} {
		o := options(t, u)
		change(&o)
		_, err := runOne(context.Background(), o)
		if fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(u.Requests()); n > 0 {
		t.Errorf("%d requests", n)
	}
	o := options(t, u)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o.VerifySignatures = builder.VerifyIfPresent
	if _, err := runOne(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
