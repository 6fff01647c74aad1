package oci

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"airlift/builder/fetch"
	"airlift/bundle"
	"airlift/bundle/encoder"
)

// A compressed blob is described once: the cache remembers what was found. The description
// depends on the blob alone, so the same inputs give the same bundle.

func compressedKey(digest string) string {
	return "encoder of " + digest + ", version " + encoder.Version()
}

// RecallCompressed returns the description of the blob with this digest, which contains the
// layer diffID, and whether the cache knows it. With keep, the cache must also have a blob
// that no encoder gives. The description is nil if the blob is the layer itself.
func RecallCompressed(ctx context.Context, cache *fetch.Cache, diffID, digest string, keep bool) (*bundle.Compressed, bool, error) {
	if digest == diffID {
		return nil, true, nil
	}
	text, ok := cache.Recall(compressedKey(digest))
	var c bundle.Compressed
	if !ok || json.Unmarshal([]byte(text), &c) != nil || c.Digest != digest {
		return nil, false, nil
	}
	if keep && c.Encoder == "" {
		if _, ok, err := cache.Has(ctx, Hex(digest)); !ok || err != nil {
			return nil, false, err
		}
	}
	return &c, true, nil
}

// DescribeCompressed finds out which encoder gives the blob that open opens. The layer diffID
// must be in the cache. With keep, a blob that no encoder gives is stored.
func DescribeCompressed(ctx context.Context, cache *fetch.Cache, open encoder.Opener, diffID, digest string, size int64, keep bool) (*bundle.Compressed, error) {
	if c, ok, err := RecallCompressed(ctx, cache, diffID, digest, keep); ok || err != nil {
		return c, err
	}
	r, ok, err := encoder.Find(ctx, open, cache.Opener(Hex(diffID)))
	if err != nil {
		return nil, err
	}
	c := &bundle.Compressed{Digest: digest, Size: size}
	if ok {
		c.Encoder, c.Header = r.Encoder, hex.EncodeToString(r.Header)
	} else if keep {
		if err := storeBlob(ctx, cache, open, digest); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return c, cache.Remember(compressedKey(digest), string(text))
}

func storeBlob(ctx context.Context, cache *fetch.Cache, open encoder.Opener, digest string) error {
	content, err := open()
	if err != nil {
		return err
	}
	defer content.Close()
	_, _, err = cache.Put(ctx, content, Hex(digest))
	return err
}
