package upstreamsig_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sigstore/sigstore-go/pkg/testing/data"

	"airlift/builder/upstreamsig"
	"airlift/scripts/fixtures/fakesigstore"
)

// capi is the image of testdata/kpromo.json.
const capi = "registry.k8s.io/cluster-api/cluster-api-controller:v1.5.0"

const capiDigest = "sha256:f34016d3a494f9544a16137c9bba49d8756c574a0a1baf96257903409ef82f77"

// kpromo is a signature of Kubernetes as cosign stores it.
type kpromo struct {
	payload     []byte
	annotations map[string]string
}

// published reads testdata/kpromo.json. change may change the text of the log entry.
func published(t *testing.T, change func(string) string) kpromo {
	t.Helper()
	text, err := os.ReadFile("testdata/kpromo.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Payload string          `json:"payload"`
		Bundle  json.RawMessage `json:"bundle"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var entry struct{ Payload struct{ Body []byte } }
	if err := json.Unmarshal(file.Bundle, &entry); err != nil {
		t.Fatal(err)
	}
	var body struct {
		Spec struct {
			Signature struct {
				Content   string
				PublicKey struct{ Content []byte }
			}
		}
	}
	if err := json.Unmarshal(entry.Payload.Body, &body); err != nil {
		t.Fatal(err)
	}
	k := kpromo{[]byte(file.Payload), map[string]string{
		"dev.cosignproject.cosign/signature": body.Spec.Signature.Content,
		"dev.sigstore.cosign/certificate":    string(body.Spec.Signature.PublicKey.Content),
		"dev.sigstore.cosign/bundle":         string(file.Bundle),
	}}
	if change != nil {
		k.annotations["dev.sigstore.cosign/bundle"] = change(string(file.Bundle))
	}
	return k
}

func (k kpromo) verify(t *testing.T, v *upstreamsig.Verifier, digest string, who upstreamsig.Identity) error {
	t.Helper()
	m, _, err := upstreamsig.ParseAnnotated(k.payload, k.annotations)
	if err != nil {
		return err
	}
	_, err = v.Any([]upstreamsig.Material{*m}, digest, who)
	return err
}

// publicRoot is sigstore's own trusted root, as in the tests of its library.
func publicRoot(t *testing.T) *upstreamsig.Verifier {
	t.Helper()
	text, err := data.TrustedRoot(t, "public-good.json").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return verifier(t, text)
}

func verifier(t *testing.T, root []byte) *upstreamsig.Verifier {
	t.Helper()
	v, err := upstreamsig.NewVerifier(root)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The signature and the trusted root are real ones, and the account is in the table.
func TestSignatureOfKubernetes(t *testing.T) {
	who, ok := upstreamsig.OfImage(capi)
	if !ok {
		t.Fatal("the table does not have the image")
	}
	if err := published(t, nil).verify(t, publicRoot(t), capiDigest, who); err != nil {
		t.Error(err)
	}
}

func TestSignatureOfKubernetesChanged(t *testing.T) {
	who, _ := upstreamsig.OfImage(capi)
	staging, _ := upstreamsig.OfFile("https://dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet")
	other := upstreamsig.Identity{Name: who.Name, Issuer: "https://issuer.example"}
	public, private := publicRoot(t), verifier(t, fakesigstore.New(t).TrustedRoot())
	none := func(*kpromo) {}
	for name, c := range map[string]struct {
		change func(*kpromo)
		root   *upstreamsig.Verifier
		digest string
		who    upstreamsig.Identity
		want   error
	}{
		"other account":      {none, public, capiDigest, staging, upstreamsig.ErrIdentity},
		"other issuer":       {none, public, capiDigest, other, upstreamsig.ErrIssuer},
		"other image":        {none, public, "sha256:" + strings.Repeat("0", 64), who, upstreamsig.ErrContent},
		"other trusted root": {none, private, capiDigest, who, upstreamsig.ErrCertificate},
		"changed statement":  {func(k *kpromo) { k.payload = append(k.payload, ' ') }, public, capiDigest, who, upstreamsig.ErrContent},
		"changed signature":  {flipSignature, public, capiDigest, who, upstreamsig.ErrSignature},
		"later in the log": {func(k *kpromo) { *k = published(t, replace("1690304684", "1690309999")) }, public, capiDigest, who,
			upstreamsig.ErrExpired},
		"other second in the log": {func(k *kpromo) { *k = published(t, replace("1690304684", "1690304685")) }, public, capiDigest, who,
			upstreamsig.ErrLog},
		"other log": {func(k *kpromo) { *k = published(t, replace(`"c0d2`, `"c0d3`)) }, public, capiDigest, who, upstreamsig.ErrLog},
		"signature without certificate": {func(k *kpromo) { delete(k.annotations, "dev.sigstore.cosign/certificate") }, public, capiDigest, who,
			upstreamsig.ErrIdentity},
		"no base64": {func(k *kpromo) { k.annotations["dev.cosignproject.cosign/signature"] = "%" }, public, capiDigest, who,
			upstreamsig.ErrForm},
	} {
		t.Run(name, func(t *testing.T) {
			k := published(t, nil)
			c.change(&k)
			if err := k.verify(t, c.root, c.digest, c.who); !errors.Is(err, c.want) {
				t.Errorf("err = %v", err)
			} else {
				t.Log(err)
			}
		})
	}
}

func replace(from, to string) func(string) string {
	return func(s string) string { return strings.Replace(s, from, to, 1) }
}

// flipSignature changes the last byte of the signature.
func flipSignature(k *kpromo) {
	const key = "dev.cosignproject.cosign/signature"
	sig, _ := base64.StdEncoding.DecodeString(k.annotations[key])
	sig[len(sig)-1] ^= 1
	k.annotations[key] = base64.StdEncoding.EncodeToString(sig)
}
