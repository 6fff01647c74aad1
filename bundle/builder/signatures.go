package builder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/fetch"
	"airlift/bundle/lock"
	"airlift/bundle/upstreamsig"
	"airlift/fault"
	"airlift/images/registry"
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
	// Verified are the names of what has a verified signature.
	Verified []string
	// OnlyChecksum are the names of what upstream does not sign in a form that can be
	// verified here. It was compared with a checksum or digest.
	OnlyChecksum []string
	// Missing are what upstream signs, and whose signature could not be found, with the
	// reason. It is empty with VerifyRequire.
	Missing []string
}

// signed is who signed a file or image, and upstream's URL of the signature. Both are empty
// before it was verified.
type signed struct{ by, where string }

func (b *builder) verifies() bool { return cmp.Or(b.VerifySignatures, VerifyOff) != VerifyOff }

// expected is what the lock has about a signature, if this build verifies it. It is compared
// with the result later.
func (b *builder) expected(pinned string) string {
	if !b.verifies() {
		return ""
	}
	return pinned
}

func (b *builder) checkSignatureOptions() error {
	if b.VerifySignatures != "" && !slices.Contains(SignatureModes(), b.VerifySignatures) {
		return fault.New(fault.Usage, "write --verify-signatures "+strings.Join(SignatureModes(), ", ")+" (one of them)", "--verify-signatures %q is not known", b.VerifySignatures)
	}
	if b.TrustedRoot == "" {
		return nil
	}
	if !b.verifies() {
		return fault.New(fault.Usage, "add --verify-signatures require", "--trusted-root needs --verify-signatures")
	}
	_, err := b.readRoot()
	return err
}

const hintRoot = "give sigstore's trusted_root.json, for example from the cache of cosign or of another build"

func (b *builder) readRoot() (*upstreamsig.Verifier, error) {
	text, err := os.ReadFile(b.TrustedRoot)
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading the trusted root: %w", err), fault.Usage, hintRoot)
	}
	b.rootSum = hexSum(text)
	v, err := upstreamsig.NewVerifier(text)
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("--trusted-root %s: %w", b.TrustedRoot, err), fault.Usage, hintRoot)
	}
	return v, nil
}

// verifier reads or downloads the trusted root.
func (b *builder) verifier(ctx context.Context) (*upstreamsig.Verifier, error) {
	if b.TrustedRoot != "" {
		return b.readRoot()
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
func (b *builder) subjects() (list []subject, others []string) {
	for _, bin := range b.binaries {
		if bin.dropped {
			continue
		}
		bin.signed = signed{}
		who, ok := upstreamsig.OfFile(bin.URL)
		if !ok {
			others = append(others, bin.Name)
			continue
		}
		list = append(list, subject{name: label(bin), digest: "sha256:" + bin.sum, where: bin.URL + ".sig", who: who, result: &bin.signed,
			find: func(ctx context.Context) ([]upstreamsig.Material, error) { return b.ofFile(ctx, bin) }})
	}
	for _, img := range b.images {
		img.signed = signed{}
		who, ok := upstreamsig.OfImage(img.Reference)
		if !ok || img.registry == nil {
			others = append(others, img.Name)
			continue
		}
		repository, _, _ := strings.Cut(img.Reference, "@")
		if n := strings.LastIndex(repository, ":"); n > strings.LastIndex(repository, "/") {
			repository = repository[:n]
		}
		list = append(list, subject{name: img.Reference, digest: img.Target.Digest, where: repository, who: who, image: true, result: &img.signed,
			find: func(ctx context.Context) ([]upstreamsig.Material, error) { return b.ofImage(ctx, img.registry) }})
	}
	return list, others
}

// verifySignatures verifies upstream's signatures of what was resolved. A signature is for
// a checksum or digest, so it is verified before the download.
func (b *builder) verifySignatures(ctx context.Context) error {
	if !b.verifies() {
		return nil
	}
	list, others := b.subjects()
	b.signed = &Signatures{OnlyChecksum: others}
	if len(list) > 0 {
		item := b.Progress.Item("upstream's signatures", 0)
		if err := b.verifyAll(ctx, list); err != nil {
			item.Failed()
			return err
		}
		item.Done(fmt.Sprintf("%d of %d verified", len(b.signed.Verified), len(list)))
	}
	if b.Lock == nil {
		return nil
	}
	now, err := b.lock()
	if err != nil {
		return err
	}
	return b.drift(lock.Differences(b.Lock, now))
}

// verifyAll verifies the signatures of all subjects and reports everything that failed in one
// error.
func (b *builder) verifyAll(ctx context.Context, list []subject) error {
	limited := ctx
	if b.VerifySignatures == VerifyIfPresent {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	v, err := b.verifier(limited)
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
			err := b.verifyOne(ctx, v, s)
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
	if err := g.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	slices.Sort(b.signed.Verified)
	slices.Sort(missing)
	slices.Sort(invalid)
	return b.judge(invalid, missing)
}

// judge decides what failed signatures mean in this mode.
func (b *builder) judge(invalid, missing []string) error {
	if b.VerifySignatures == VerifyIfPresent {
		b.signed.Missing, missing = missing, nil
	}
	lines := slices.Concat(invalid, missing)
	if len(lines) == 0 {
		return nil
	}
	var hints []string
	if len(invalid) > 0 {
		hints = append(hints, "do not use these contents: compare checksums and digests with another source")
	}
	if len(missing) > 0 {
		hints = append(hints, "allow access to the sites, or use --verify-signatures if-present and pin the rest with --checksum")
		if len(b.Mirrors) > 0 {
			hints = append(hints, "a mirror must have the signatures too")
		}
	}
	return fault.New(fault.Failure, strings.Join(hints, "; "), "verifying upstream's signatures:\n  %s", strings.Join(lines, "\n  "))
}

// An invalidError is a signature that exists and does not prove what it should.
type invalidError struct{ err error }

func (e *invalidError) Error() string { return e.err.Error() }
func (e *invalidError) Unwrap() error { return e.err }

// verifyOne verifies a signature: the one that an earlier build found, or else those of
// upstream. It is stored for later builds, which verify it again.
func (b *builder) verifyOne(ctx context.Context, v *upstreamsig.Verifier, s subject) error {
	key := "signature of " + s.where + " for " + s.digest
	if text, ok := b.cache.Recall(key); ok && !b.Refresh {
		var m upstreamsig.Material
		if json.Unmarshal([]byte(text), &m) == nil {
			if _, err := v.Any([]upstreamsig.Material{m}, s.digest, s.who); err == nil {
				*s.result = signed{s.who.String(), s.where}
				return nil
			}
		}
	}
	found, err := s.find(ctx)
	if err != nil {
		return err
	}
	m, err := v.Any(found, s.digest, s.who)
	// Anyone may add a signature or a statement to an image, where a registry permits it. So
	// that of another account is as good as none.
	if errors.Is(err, upstreamsig.ErrNone) || s.image && errors.Is(err, upstreamsig.ErrIdentity) {
		return err
	}
	if err != nil {
		return &invalidError{err}
	}
	*s.result = signed{s.who.String(), s.where}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return b.cache.Remember(key, string(text))
}

// ofFile requests FILE.sig and FILE.cert, and looks for the signature in the transparency log.
func (b *builder) ofFile(ctx context.Context, bin *binary) ([]upstreamsig.Material, error) {
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
func (b *builder) inLog(ctx context.Context, d *upstreamsig.Detached) ([]upstreamsig.Material, error) {
	query, err := d.Query()
	if err != nil {
		return nil, err
	}
	if b.VerifySignatures == VerifyIfPresent {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
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

// ofImage requests the signatures of an image.
func (b *builder) ofImage(ctx context.Context, img *registry.Image) ([]upstreamsig.Material, error) {
	documents, err := b.registry.Signatures(ctx, img.Reference, img.Target.Digest, upstreamsig.BundleType)
	if err != nil {
		return nil, err
	}
	if len(documents) == 0 {
		return nil, fmt.Errorf("the registry has no signature for %s", img.Target.Digest)
	}
	var list []upstreamsig.Material
	var last error
	for _, s := range documents {
		if s.Annotations == nil {
			list = append(list, upstreamsig.Material{Bundle: s.Document})
			continue
		}
		m, d, err := upstreamsig.ParseAnnotated(s.Document, s.Annotations)
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
