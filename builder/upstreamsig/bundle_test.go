package upstreamsig_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"airlift/builder/upstreamsig"
	"airlift/scripts/fixtures/fakesigstore"
)

// cosign's newer form: a statement that names the image, signed and in a bundle.
func TestBundles(t *testing.T) {
	s := fakesigstore.New(t)
	v := verifier(t, s.TrustedRoot())
	who, _ := upstreamsig.OfImage("registry.k8s.io/pause:3.10")
	digest, other := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	stranger := fakesigstore.Account{Name: "me@example.com", Issuer: who.Issuer}
	valid := s.Bundle(digest, fakesigstore.SignType, fakesigstore.ImageSigner)
	attestation := s.Bundle(digest, "https://slsa.dev/provenance/v1", fakesigstore.ImageSigner)
	foreign := s.Bundle(digest, fakesigstore.SignType, stranger)
	for name, c := range map[string]struct {
		bundles [][]byte
		want    error
	}{
		"valid":                    {[][]byte{valid}, nil},
		"valid, after others":      {[][]byte{attestation, foreign, valid}, nil},
		"none":                     {nil, upstreamsig.ErrNone},
		"attestation":              {[][]byte{attestation}, upstreamsig.ErrNone},
		"other account":            {[][]byte{attestation, foreign, attestation}, upstreamsig.ErrIdentity},
		"key":                      {[][]byte{s.WithKey(valid)}, upstreamsig.ErrIdentity},
		"key, and other image":     {[][]byte{s.WithKey(valid), s.Bundle(other, fakesigstore.SignType, fakesigstore.ImageSigner)}, upstreamsig.ErrContent},
		"valid, after a key":       {[][]byte{s.WithKey(valid), valid}, nil},
		"other image":              {[][]byte{foreign, s.Bundle(other, fakesigstore.SignType, fakesigstore.ImageSigner)}, upstreamsig.ErrContent},
		"other CA":                 {[][]byte{fakesigstore.New(t).Bundle(digest, fakesigstore.SignType, fakesigstore.ImageSigner)}, upstreamsig.ErrCertificate},
		"no bundle":                {[][]byte{[]byte("{}")}, upstreamsig.ErrForm},
		"log index as in no proof": {[][]byte{bytes.Replace(valid, []byte(`"28719030"`), []byte(`"28719031"`), 1)}, upstreamsig.ErrLog},
	} {
		t.Run(name, func(t *testing.T) {
			var list []upstreamsig.Material
			for _, b := range c.bundles {
				list = append(list, upstreamsig.Material{Bundle: b})
			}
			if _, err := v.Any(list, digest, who); c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Errorf("err = %v", err)
			}
		})
	}
}
