package builder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/builder/upstreamsig"
	"airlift/internal/fault"
)

// Values of Options.VerifySignatures.
const (
	// VerifyOff requests no signatures.
	VerifyOff = "off"
	// VerifyIfPresent verifies the signatures that can be found. A signature that does not
	// verify is an error.
	VerifyIfPresent = "if-present"
	// VerifyRequire also fails if a signature cannot be found that upstream publishes.
	VerifyRequire = "require"
)

// SignatureModes are the values of Options.VerifySignatures.
func SignatureModes() []string { return []string{VerifyRequire, VerifyIfPresent, VerifyOff} }

// patience is how long VerifyIfPresent waits for the trusted root and the transparency log.
const patience = 30 * time.Second

// Signatures is the result of the verification of upstream's signatures.
type Signatures struct {
	// Verified names the contents with a verified signature.
	Verified []string
	// OnlyChecksum names the contents that upstream does not sign, or not in a form that Airlift
	// can verify. They were compared with a checksum or digest.
	OnlyChecksum []string
	// Missing lists the contents that upstream signs but whose signature was not found, with the
	// reason. It is empty with VerifyRequire.
	Missing []string

	mode string // of Options.VerifySignatures
	root string // sha256 of the file Options.TrustedRoot, lower-case hex
}

// signed has the signer of a file or image, and upstream's URL of the signature. Both are empty
// before verification.
type signed struct{ by, where string }

func (t Trust) verifies() bool { return cmp.Or(t.VerifySignatures, VerifyOff) != VerifyOff }

// expected is the lock's record of a signature, if this build verifies it. The result is compared
// with it later.
func (t Trust) expected(pinned string) string {
	if !t.verifies() {
		return ""
	}
	return pinned
}

// A trustedRoot is the file Options.TrustedRoot.
type trustedRoot struct {
	verifier *upstreamsig.Verifier
	sha256   string // lower-case hex
}

const hintRoot = "give sigstore's trusted_root.json, for example from the cache of cosign or of another build"

// readRoot checks the options for signatures, and reads the trusted root if it is a file.
func (t Trust) readRoot() (root trustedRoot, err error) {
	if t.VerifySignatures != "" && !slices.Contains(SignatureModes(), t.VerifySignatures) {
		return root, fault.New(fault.Usage, "--verify-signatures %q is not known", t.VerifySignatures).Hint("write --verify-signatures " + strings.Join(SignatureModes(), ", ") + " (one of them)")
	}
	if t.TrustedRoot == "" {
		return root, nil
	}
	if !t.verifies() {
		return root, fault.New(fault.Usage, "--trusted-root needs --verify-signatures").Hint("add --verify-signatures require")
	}
	text, err := os.ReadFile(t.TrustedRoot)
	if err != nil {
		return root, fault.Wrap(fmt.Errorf("reading the trusted root: %w", err), fault.Usage, hintRoot)
	}
	v, err := upstreamsig.NewVerifier(text)
	if err != nil {
		return root, fault.Wrap(fmt.Errorf("--trusted-root %s: %w", t.TrustedRoot, err), fault.Usage, hintRoot)
	}
	return trustedRoot{v, hexSum(text)}, nil
}

// A verification verifies upstream's signatures of the resolved files and images. A signature is
// for a checksum or digest, so it is verified before the download.
type verification struct {
	mode    string // VerifyIfPresent or VerifyRequire
	root    trustedRoot
	rootDir string // for the public trusted root, if root is empty
	refresh bool
	sites   *sites
	report  *reporter
	result  *Signatures
}

// verifier returns the trusted root's, which it downloads if it is not a file.
func (v *verification) verifier(ctx context.Context) (*upstreamsig.Verifier, error) {
	if v.root.verifier != nil {
		return v.root.verifier, nil
	}
	text, err := upstreamsig.FetchRoot(ctx, v.sites.fetch, v.rootDir, nil)
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("downloading sigstore's trusted root: %w", err), fault.Failure,
			"allow access to tuf-repo-cdn.sigstore.dev, or give a trusted_root.json with --trusted-root FILE")
	}
	return upstreamsig.NewVerifier(text)
}

// A subject is a file or image whose signature is verified.
type subject struct {
	name, digest string
	where        string // upstream's URL of the signature
	who          upstreamsig.Identity
	image        bool
	find         func(context.Context) ([]upstreamsig.Material, error)
	result       *signed
}

// subjects lists what upstream signs, and the names of the others.
func (v *verification) subjects(binaries []*binary, all []*image) (list []subject, others []string) {
	for _, bin := range binaries {
		bin.signed = signed{}
		who, ok := upstreamsig.OfFile(bin.URL)
		if !ok {
			others = append(others, bin.Name)
			continue
		}
		list = append(list, subject{name: label(bin), digest: "sha256:" + bin.sum, where: bin.URL + ".sig", who: who, result: &bin.signed,
			find: func(ctx context.Context) ([]upstreamsig.Material, error) { return v.ofFile(ctx, bin) }})
	}
	for _, img := range all {
		img.signed = signed{}
		who, ok := upstreamsig.OfImage(img.Reference)
		if !ok && img.replaces() {
			list = append(list, subject{name: img.Reference, digest: img.Target.Digest, image: true, result: &img.signed, find: unsignedReplacement})
			continue
		}
		if !ok {
			others = append(others, img.Name)
			continue
		}
		repository, _, _ := strings.Cut(img.Reference, "@")
		if n := strings.LastIndex(repository, ":"); n > strings.LastIndex(repository, "/") {
			repository = repository[:n]
		}
		list = append(list, subject{name: img.Reference, digest: img.Target.Digest, where: repository, who: who, image: true, result: &img.signed,
			find: func(ctx context.Context) ([]upstreamsig.Material, error) {
				return v.ofImage(ctx, img.Reference, img.Target.Digest)
			}})
	}
	return list, others
}

// unsignedReplacement is the find of a subject that replaces an image of the catalog, and that nothing can confirm.
func unsignedReplacement(context.Context) ([]upstreamsig.Material, error) {
	return nil, errors.New("it is not from its registry, and upstream does not sign it: compare it with a digest that you know, with --checksum")
}

// run verifies the signatures of binaries and images, and returns the result.
func (v *verification) run(ctx context.Context, binaries []*binary, list []*image) (*Signatures, error) {
	subjects, others := v.subjects(binaries, list)
	v.result = &Signatures{OnlyChecksum: others, mode: v.mode, root: v.root.sha256}
	if len(subjects) == 0 {
		return v.result, nil
	}
	item := v.report.Work("upstream's signatures", 0)
	if err := v.verifyAll(ctx, subjects); err != nil {
		item.Failed()
		return nil, err
	}
	item.Done(fmt.Sprintf("%d of %d verified", len(v.result.Verified), len(subjects)))
	return v.result, nil
}

// verifyAll verifies the signatures of all subjects and reports everything that failed in one
// error.
func (v *verification) verifyAll(ctx context.Context, list []subject) error {
	limited := ctx
	if v.mode == VerifyIfPresent {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	by, err := v.verifier(limited)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && v.mode == VerifyRequire {
		return err
	}
	if err != nil {
		var names []string
		for _, s := range list {
			names = append(names, s.name)
		}
		v.result.Missing = []string{strings.Join(names, ", ") + ": " + err.Error()}
		return nil
	}
	var mu sync.Mutex
	var invalid, missing []string
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, s := range list {
		g.Go(func() error {
			err := v.verifyOne(ctx, by, s)
			mu.Lock()
			defer mu.Unlock()
			var wrong *invalidError
			switch {
			case err == nil:
				v.result.Verified = append(v.result.Verified, s.name)
			case errors.As(err, &wrong):
				invalid = append(invalid, s.name+": "+err.Error())
			default:
				missing = append(missing, s.name+": "+err.Error())
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	slices.Sort(v.result.Verified)
	slices.Sort(missing)
	slices.Sort(invalid)
	return v.judge(invalid, missing)
}

const hintInvalid = "do not use these contents: compare checksums and digests with another source"

// judge decides what failed signatures mean in this mode.
func (v *verification) judge(invalid, missing []string) error {
	if v.mode == VerifyIfPresent {
		v.result.Missing, missing = missing, nil
	}
	lines := slices.Concat(invalid, missing)
	if len(lines) == 0 {
		return nil
	}
	var hints []string
	if len(invalid) > 0 {
		hints = append(hints, hintInvalid)
	}
	if len(missing) > 0 {
		hints = append(hints, "allow access to the sites, or use --verify-signatures if-present and pin the rest with --checksum")
		if v.sites.mirrored() {
			hints = append(hints, "a mirror must have the signatures too")
		}
	}
	return fault.New(fault.Failure, "verifying upstream's signatures:\n  %s", strings.Join(lines, "\n  ")).Hint(strings.Join(hints, "; "))
}

// An invalidError is a signature that exists and does not prove what it should.
type invalidError struct{ err error }

func (e *invalidError) Error() string { return e.err.Error() }
func (e *invalidError) Unwrap() error { return e.err }

// warnings lists the signatures that could not be found.
func (s *Signatures) warnings() (list []string) {
	if s == nil {
		return nil
	}
	for _, m := range s.Missing {
		list = append(list, "the signature was not verified: "+m)
	}
	return list
}
