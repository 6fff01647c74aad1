package builder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"airlift/builder/fetch"
	"airlift/builder/upstreamsig"
	"airlift/images/release"
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

const hintRoot = "give sigstore's trusted_root.json, for example from the cache of cosign or of another build"

// readRoot checks the options for signatures, and reads the trusted root if it is a file.
func (b *build) readRoot() (err error) {
	if b.VerifySignatures != "" && !slices.Contains(SignatureModes(), b.VerifySignatures) {
		return fault.New(fault.Usage, "--verify-signatures %q is not known", b.VerifySignatures).Hint("write --verify-signatures " + strings.Join(SignatureModes(), ", ") + " (one of them)")
	}
	if b.TrustedRoot == "" {
		return nil
	}
	if !b.verifies() {
		return fault.New(fault.Usage, "--trusted-root needs --verify-signatures").Hint("add --verify-signatures require")
	}
	text, err := os.ReadFile(b.TrustedRoot)
	if err != nil {
		return fault.Wrap(fmt.Errorf("reading the trusted root: %w", err), fault.Usage, hintRoot)
	}
	if b.trustedRoot, err = upstreamsig.NewVerifier(text); err != nil {
		return fault.Wrap(fmt.Errorf("--trusted-root %s: %w", b.TrustedRoot, err), fault.Usage, hintRoot)
	}
	b.rootSHA256 = hexSum(text)
	return nil
}

// verifier returns the trusted root's, which it downloads if it is not a file.
func (b *build) verifier(ctx context.Context) (*upstreamsig.Verifier, error) {
	if b.trustedRoot != nil {
		return b.trustedRoot, nil
	}
	text, err := upstreamsig.FetchRoot(ctx, b.fetch, filepath.Join(b.CacheDir, "trusted-root"), nil)
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
func (b *build) subjects() (list []subject, others []string) {
	for _, bin := range b.binaries {
		bin.signed = signed{}
		who, ok := upstreamsig.OfFile(bin.URL)
		if !ok {
			others = append(others, bin.Name)
			continue
		}
		list = append(list, subject{name: bin.label(), digest: "sha256:" + bin.sum, where: bin.URL + ".sig", who: who, result: &bin.signed,
			find: func(ctx context.Context) ([]upstreamsig.Material, error) { return b.signaturesOfFile(ctx, bin) }})
	}
	for _, img := range b.images {
		img.signed = signed{}
		who, ok := upstreamsig.OfImage(img.Reference)
		s := subject{name: img.Reference, digest: img.Target.Digest, image: true, who: who, result: &img.signed}
		switch {
		case ok:
			s.where = release.Repository(img.Reference)
			s.find = func(ctx context.Context) ([]upstreamsig.Material, error) {
				return b.signaturesOfImage(ctx, img.Reference, img.Target.Digest)
			}
		case img.local != nil && img.digest == "" && release.Reserved(img.Reference): // it replaces an image of the catalog
			s.find = func(context.Context) ([]upstreamsig.Material, error) {
				return nil, errors.New("it is not from its registry, and upstream does not sign it: compare it with a digest that you know, with --checksum")
			}
		default:
			others = append(others, img.Name)
			continue
		}
		list = append(list, s)
	}
	return list, others
}

// verifySignatures verifies upstream's signatures of the resolved files and images, and compares the
// result with the lock. A signature is for a checksum or digest, so it is verified before the download.
func (b *build) verifySignatures(ctx context.Context) error {
	if !b.verifies() {
		return nil
	}
	subjects, others := b.subjects()
	b.signed = &Signatures{OnlyChecksum: others}
	if len(subjects) > 0 {
		item := b.Report.Work("upstream's signatures", 0)
		if err := b.verifyAll(ctx, subjects); err != nil {
			item.Failed()
			return err
		}
		item.Done(fmt.Sprintf("%d of %d verified", len(b.signed.Verified), len(subjects)))
	}
	if b.Lock == nil {
		return nil
	}
	now, err := b.newLock()
	if err != nil {
		return err
	}
	return b.drift(b.Lock, now)
}

// verifyAll verifies the signatures of all subjects and reports everything that failed in one
// error.
func (b *build) verifyAll(ctx context.Context, list []subject) error {
	limited, cancel := b.patient(ctx)
	defer cancel()
	by, err := b.verifier(limited)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && b.VerifySignatures == VerifyRequire {
		return err
	}
	if err != nil {
		var names []string
		for _, s := range list {
			names = append(names, s.name)
		}
		b.signed.Missing = []string{strings.Join(names, ", ") + ": " + err.Error()}
		return nil
	}
	var mu sync.Mutex
	var invalid, missing []string
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, s := range list {
		g.Go(func() error {
			err := b.verifyOne(ctx, by, s)
			mu.Lock()
			defer mu.Unlock()
			var wrong *invalidError
			switch {
			case err == nil:
				b.signed.Verified = append(b.signed.Verified, s.name)
			case errors.As(err, &wrong):
				invalid = append(invalid, s.name+": "+err.Error())
			default:
				missing = append(missing, s.name+": "+err.Error())
			}
			return nil
		})
	}
	_ = g.Wait() // no error
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, list := range [][]string{b.signed.Verified, missing, invalid} {
		slices.Sort(list)
	}
	return b.judge(invalid, missing)
}

// patient limits the wait of VerifyIfPresent.
func (b *build) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.VerifySignatures == VerifyIfPresent {
		return context.WithTimeout(ctx, patience)
	}
	return ctx, func() {}
}

const hintInvalid = "do not use these contents: compare checksums and digests with another source"

// judge decides what failed signatures mean in this mode.
func (b *build) judge(invalid, missing []string) error {
	if b.VerifySignatures == VerifyIfPresent {
		b.signed.Missing, missing = missing, nil
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
		if len(b.Mirrors) > 0 {
			hints = append(hints, "a mirror must have the signatures too")
		}
	}
	return fault.New(fault.Failure, "verifying upstream's signatures:\n  %s", strings.Join(lines, "\n  ")).Hint(strings.Join(hints, "; "))
}

// An invalidError is a signature that exists and does not prove what it should.
type invalidError struct{ err error }

func (e *invalidError) Error() string { return e.err.Error() }
func (e *invalidError) Unwrap() error { return e.err }

// verifyOne verifies the signature that an earlier build found, or else upstream's signatures. It
// is stored for later builds, which verify it again.
func (b *build) verifyOne(ctx context.Context, by *upstreamsig.Verifier, s subject) error {
	key := "signature of " + s.where + " for " + s.digest
	var known upstreamsig.Material
	if recall(b.cache, key, &known) && !b.Refresh {
		if _, err := by.Any([]upstreamsig.Material{known}, s.digest, s.who); err == nil {
			*s.result = signed{s.who.String(), s.where}
			return nil
		}
	}
	found, err := s.find(ctx)
	if err != nil {
		return err
	}
	m, err := by.Any(found, s.digest, s.who)
	// Anyone may add a signature or a statement to an image, where a registry permits it. So a
	// signature by another account proves nothing.
	if errors.Is(err, upstreamsig.ErrNone) || s.image && errors.Is(err, upstreamsig.ErrIdentity) {
		return err
	}
	if err != nil {
		return &invalidError{err}
	}
	*s.result = signed{s.who.String(), s.where}
	return remember(b.cache, key, m)
}

// signaturesOfFile requests FILE.sig and FILE.cert, and looks for the signature in the transparency log.
func (b *build) signaturesOfFile(ctx context.Context, bin *binary) ([]upstreamsig.Material, error) {
	var parts [2]string
	for n, suffix := range []string{".sig", ".cert"} {
		text, _, err := b.fetch.Text(ctx, bin.URL+suffix)
		if err != nil {
			return nil, fmt.Errorf("downloading the signature: %w", err)
		}
		parts[n] = text
	}
	d, err := upstreamsig.ParseFiles([]byte(parts[0]), []byte(parts[1]), bin.sum)
	if err == nil {
		err = d.Check()
	}
	if err != nil {
		return nil, &invalidError{err}
	}
	return b.inLog(ctx, d)
}

// inLog requests the entries of a signature from the transparency log.
func (b *build) inLog(ctx context.Context, d *upstreamsig.Detached) ([]upstreamsig.Material, error) {
	query, err := d.Query()
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.patient(ctx)
	defer cancel()
	answer, _, err := b.fetch.Ask(ctx, fetch.Question{URL: upstreamsig.LogURL, Accept: "application/json", JSON: query})
	if err != nil {
		return nil, fmt.Errorf("looking for the signature in the transparency log: %w", err)
	}
	list, err := d.WithLog(answer)
	if err != nil {
		return nil, &invalidError{err}
	}
	return list, nil
}

// signaturesOfImage requests the signatures of an image from its registry, also if the image itself is from a
// local source.
func (b *build) signaturesOfImage(ctx context.Context, reference, digest string) ([]upstreamsig.Material, error) {
	documents, err := b.registry.Signatures(ctx, reference, digest, upstreamsig.BundleType)
	if err != nil {
		return nil, err
	}
	if len(documents) == 0 {
		return nil, fmt.Errorf("the registry has no signature for %s", digest)
	}
	var list []upstreamsig.Material
	var last error
	for _, s := range documents {
		if s.Annotations == nil {
			list = append(list, upstreamsig.Material{Bundle: s.Document})
			continue
		}
		m, d, err := upstreamsig.ParseAnnotated(s.Document, s.Annotations)
		if errors.Is(err, upstreamsig.ErrIdentity) {
			last = cmp.Or(last, err) // as good as none: see verifyOne
			continue
		}
		if err != nil {
			last = &invalidError{err}
			continue
		}
		if m != nil {
			list = append(list, *m)
			continue
		}
		more, err := b.inLog(ctx, d)
		if err != nil {
			last = err
		}
		list = append(list, more...)
	}
	if len(list) == 0 {
		return nil, last
	}
	return list, nil
}
