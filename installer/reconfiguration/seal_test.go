package reconfiguration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "airlift/scripts/fixtures/seed"
)

func privateKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// TestSeal: what Seal writes can be opened with the same key only, shows nothing of the files, and any change is found.
func TestSeal(t *testing.T) {
	key, other := privateKey(t), privateKey(t)
	rapid.Check(t, func(t *rapid.T) {
		var files []File
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`/[a-z]{1,9}`), 0, 4, rapid.ID[string]).Draw(t, "names") {
			files = append(files, File{name, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")})
		}
		sealed, err := Seal(key, files)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Seal(key, slices.Clone(files))
		if err != nil || !bytes.Equal(sealed, again) {
			t.Fatalf("the same files give other bytes: %v", err)
		}
		opened, err := Open(key, sealed)
		if err != nil || !EqualFiles(opened, files) {
			t.Fatalf("%v, %v", opened, err)
		}
		if _, err := Open(other, sealed); err == nil {
			t.Fatal("another key opens it")
		}
		for _, f := range files {
			if len(f.Data) > 8 && bytes.Contains(sealed, f.Data) {
				t.Fatal("it shows a file")
			}
		}
		i := rapid.IntRange(0, len(sealed)-1).Draw(t, "byte")
		broken := slices.Clone(sealed)
		if broken[i] ^= 1; !sameJSON(broken, sealed) {
			if got, err := Open(key, broken); err == nil {
				t.Fatalf("byte %d is damaged, and it opens: %v", i, got)
			}
		}
	})
	if _, err := Seal(key, []File{{"/a", make([]byte, MaxFiles+1)}}); err == nil {
		t.Error("too large")
	}
	if _, err := Seal([]byte("no key"), nil); err == nil {
		t.Error("no key")
	}
}

// sameJSON reports whether two texts have the same values: the case of a field's name has none.
func sameJSON(a, b []byte) bool {
	var x, y sealed
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x.Version == y.Version && x.Key == y.Key && bytes.Equal(x.Nonce, y.Nonce) && bytes.Equal(x.Data, y.Data)
}

func TestReplace(t *testing.T) {
	all := func(string) bool { return true }
	a, b, c := File{"/a", []byte("1")}, File{"/b", []byte("1")}, File{"/b", []byte("2")}
	if got := Replace([]File{b, a}, []File{c}, all); !EqualFiles(got, []File{a, c}) {
		t.Error(got)
	}
	if got := Replace([]File{a, b}, nil, func(path string) bool { return path != "/a" }); !EqualFiles(got, []File{b}) {
		t.Error(got)
	}
	if EqualFiles([]File{a}, []File{b}) || !EqualFiles([]File{a, b}, []File{b, a}) || !EqualFiles(nil, []File{}) {
		t.Error("equality")
	}
}
