package builder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"airlift/bundle/builder/upstreamsig"
	"airlift/images/fetch"
)

// verifyOne verifies the signature that an earlier build found, or else upstream's signatures. It
// is stored for later builds, which verify it again.
func (v *verification) verifyOne(ctx context.Context, by *upstreamsig.Verifier, s subject) error {
	key := "signature of " + s.where + " for " + s.digest
	if text, ok := v.sites.cache.Recall(key); ok && !v.refresh {
		var m upstreamsig.Material
		if json.Unmarshal([]byte(text), &m) == nil {
			if _, err := by.Any([]upstreamsig.Material{m}, s.digest, s.who); err == nil {
				*s.result = signed{s.who.String(), s.where}
				return nil
			}
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
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return v.sites.cache.Remember(key, string(text))
}

// ofFile requests FILE.sig and FILE.cert, and looks for the signature in the transparency log.
func (v *verification) ofFile(ctx context.Context, bin *binary) ([]upstreamsig.Material, error) {
	var parts [2]string
	for n, suffix := range []string{".sig", ".cert"} {
		text, _, err := v.sites.fetch.Text(ctx, bin.URL+suffix)
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
	return v.inLog(ctx, d)
}

// inLog requests the entries of a signature from the transparency log.
func (v *verification) inLog(ctx context.Context, d *upstreamsig.Detached) ([]upstreamsig.Material, error) {
	query, err := d.Query()
	if err != nil {
		return nil, err
	}
	if v.mode == VerifyIfPresent {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	answer, _, err := v.sites.fetch.Ask(ctx, fetch.Question{URL: upstreamsig.LogURL, Accept: "application/json", JSON: query})
	if err != nil {
		return nil, fmt.Errorf("looking for the signature in the transparency log: %w", err)
	}
	list, err := d.WithLog(answer)
	if err != nil {
		return nil, &invalidError{err}
	}
	return list, nil
}

// ofImage requests the signatures of an image from its registry, also if the image itself is from a
// local source.
func (v *verification) ofImage(ctx context.Context, reference, digest string) ([]upstreamsig.Material, error) {
	documents, err := v.sites.registry.Signatures(ctx, reference, digest, upstreamsig.BundleType)
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
		more, err := v.inLog(ctx, d)
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
