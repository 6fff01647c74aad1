package reconfiguration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/config"
	_ "airlift/scripts/fixtures/seed"
)

// A tokenServer is what an API server accepts and issues, as k8s.io/kubernetes/pkg/serviceaccount does: a token has the first
// issuer and all audiences, and is accepted with any of the issuers, any of the audiences and any of the keys.
type tokenServer struct {
	issuers, audiences, keys []string
	signs                    string
}

type issuedToken struct {
	issuer, key string
	audiences   []string
}

func (s tokenServer) issues() issuedToken {
	return issuedToken{s.issuers[0], s.signs, s.audiences}
}

func (s tokenServer) accepts(t issuedToken) bool {
	return slices.Contains(s.issuers, t.issuer) && slices.Contains(s.keys, t.key) && slices.ContainsFunc(t.audiences, func(a string) bool { return slices.Contains(s.audiences, a) })
}

const certificates = "/etc/kubernetes/pki/"

// serverOf returns the API server of a configuration, as kubeadm and kube-apiserver read it.
func serverOf(args []config.Arg) tokenServer {
	s := tokenServer{signs: "sa"}
	for _, a := range args {
		name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(a.Value, certificates), ".pub"), ".key")
		switch a.Name {
		case "service-account-issuer":
			s.issuers = append(s.issuers, a.Value)
		case "api-audiences":
			s.audiences = append(s.audiences, strings.Split(a.Value, ",")...)
		case keyFile:
			s.keys = append(s.keys, name)
		case signingKeyFile:
			s.signs = name
		}
	}
	if s.issuers == nil {
		s.issuers = []string{"https://kubernetes.default.svc.cluster.local"}
	}
	if s.audiences == nil {
		s.audiences = s.issuers
	}
	if s.keys == nil {
		s.keys = []string{"sa"}
	}
	return s
}

var drawServer = rapid.Custom(func(t *rapid.T) (args []config.Arg) {
	add := func(name string, values []string) {
		for _, value := range values {
			args = append(args, config.Arg{Name: name, Value: value})
		}
	}
	some := func(of ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 0, 2, rapid.ID[string]).Draw(t, of[0])
	}
	add("service-account-issuer", some("https://kubernetes.default.svc.cluster.local", "https://one.example", "https://two.example"))
	if list := some("https://kubernetes.default.svc.cluster.local", "https://one.example", "api"); len(list) > 0 {
		add("api-audiences", []string{strings.Join(list, ",")})
	}
	add(keyFile, some(certificates+"sa.pub", certificates+"one.pub", certificates+"two.pub"))
	if list := some(certificates+"sa.key", certificates+"one.key"); len(list) > 0 {
		add(signingKeyFile, list[:1])
	}
	return args
})

// TestTokens: after a change that is not refused, the API servers accept the tokens that they issued before, and those that they
// issue. Without a warning, they accept all that they accepted, and the former ones accept what the new ones issue.
func TestTokens(t *testing.T) {
	files := map[string][]byte{}
	for _, name := range []string{"sa", "one", "two"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		files[certificates+name+".key"] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
		files[certificates+name+".pub"] = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	}
	read := func(file string) ([]byte, error) {
		if files[file] == nil {
			return nil, fmt.Errorf("%s: %w", file, os.ErrNotExist)
		}
		return files[file], nil
	}
	file := given(t, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n")
	refusals, warnings := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var was, is config.Cluster
		was.APIServer.ExtraArgs, is.APIServer.ExtraArgs = drawServer.Draw(t, "was"), drawServer.Draw(t, "is")
		former, next := serverOf(was.APIServer.ExtraArgs), serverOf(is.APIServer.ExtraArgs)
		if !former.accepts(former.issues()) || !slices.Contains(former.keys, "sa") {
			return // no such cluster works: the controller manager signs with sa.key
		}
		m := &merge{stored: was, cluster: is, file: file}
		m.checkArguments()
		refused, warned, err := CheckKeys(&was, &is, nil, read, read)
		if err != nil {
			t.Fatal(err)
		}
		refused, warned = append(refused, m.refused...), append(warned, WarnOf(&was, &is)...)
		legacy := slices.Contains(next.keys, "sa") // of the controller manager
		if works := next.accepts(former.issues()) && next.accepts(next.issues()) && legacy; works != (len(refused) == 0) {
			t.Fatalf("%v to %v: tokens work: %t, refused: %v", was.APIServer.ExtraArgs, is.APIServer.ExtraArgs, works, refused)
		}
		if len(refused) > 0 {
			refusals++
			return
		}
		keeps := func(was, is []string) bool {
			return !slices.ContainsFunc(was, func(value string) bool { return !slices.Contains(is, value) })
		}
		both := keeps(former.issuers, next.issuers) && keeps(former.audiences, next.audiences) && keeps(former.keys, next.keys) &&
			slices.Contains(former.issuers, next.issuers[0]) && slices.Contains(former.keys, next.signs)
		if both != (len(warned) == 0) {
			t.Fatalf("%v to %v: warned: %v", was.APIServer.ExtraArgs, is.APIServer.ExtraArgs, warned)
		}
		if len(warned) == 0 {
			warnings++
		}
		for _, r := range slices.Concat(refused, warned) {
			if r.From == r.To || r.Reason == "" || r.Needed == "" {
				t.Fatalf("%+v", r)
			}
		}
	})
	if refusals == 0 || warnings == 0 {
		t.Errorf("%d refused, %d without a warning", refusals, warnings)
	}
}

// TestReplacedKeys: a file that gets another key is a change, also with the same name.
func TestReplacedKeys(t *testing.T) {
	pair := func() (public []byte) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalECPrivateKey(key) // kube-apiserver takes the public key from it
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
	first, second := pair(), pair()
	c := &config.Cluster{}
	c.APIServer.ExtraArgs = []config.Arg{{Name: keyFile, Value: "/keys/one.pub"}, {Name: keyFile, Value: "/keys/two.pub"}, {Name: signingKeyFile, Value: "/keys/one.key"}}
	c.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "keys", HostPath: "/srv/keys", MountPath: "/keys"}}
	c.ControllerManager.ExtraArgs = []config.Arg{{Name: privateKeyFile, Value: "/keys/one.key"}}
	c.ControllerManager.ExtraVolumes = c.APIServer.ExtraVolumes
	before := map[string][]byte{"/srv/keys/one.pub": first, "/srv/keys/two.pub": second, "/srv/keys/one.key": first}
	for _, one := range []struct {
		given           map[string][]byte
		refused, warned int
	}{
		{nil, 0, 0},
		{map[string][]byte{"/srv/keys/one.pub": first}, 0, 0},
		{map[string][]byte{"/srv/keys/one.pub": second}, 4, 0}, // both components signed with it, and still do
		{map[string][]byte{"/srv/keys/two.pub": first}, 0, 1},
		{map[string][]byte{"/srv/keys/one.key": second}, 0, 0}, // all API servers have its public key
		{map[string][]byte{"/srv/keys/one.key": pair()}, 2, 0},
		{map[string][]byte{"/srv/keys/other": pair()}, 0, 0},
	} {
		var given []File
		for file, data := range one.given {
			given = append(given, File{Path: file, Data: data})
		}
		next := func(file string) ([]byte, error) {
			if data := one.given[file]; data != nil {
				return data, nil
			}
			return before[file], nil
		}
		refused, warned, err := CheckKeys(c, c, given, func(file string) ([]byte, error) { return before[file], nil }, next)
		if err != nil || len(refused) != one.refused || len(warned) != one.warned {
			t.Errorf("%v: refused %v, warned %v, %v", given, refused, warned, err)
		}
	}
	for _, data := range []string{"", "no key"} {
		next := func(string) ([]byte, error) { return []byte(data), nil }
		if _, _, err := CheckKeys(c, c, []File{{Path: "/srv/keys/one.key"}}, func(file string) ([]byte, error) { return before[file], nil }, next); err == nil {
			t.Errorf("%q is a key", data)
		}
	}
}

// TestWarned: what is not refused, and has a warning.
func TestWarned(t *testing.T) {
	for _, one := range []struct {
		component, was, is string
		warned             int
	}{
		{"etcd.local", "", "unsafe-no-fsync=true", 1}, {"etcd.local", "unsafe-no-fsync=true", "", 0}, {"etcd.local", "", "quota-backend-bytes=1", 0},
		{"apiServer", "", "enable-bootstrap-token-auth=false", 1}, {"apiServer", "enable-bootstrap-token-auth=false", "", 0}, {"apiServer", "", "enable-bootstrap-token-auth=true", 0},
		{"apiServer", "", "token-auth-file=/a", 0}, {"apiServer", "token-auth-file=/a", "", 1}, {"apiServer", "oidc_client_id=a", "oidc-client-id=b", 1},
		{"controllerManager", "", "legacy-service-account-token-clean-up-period=1h", 1},
	} {
		var was, is config.Cluster
		for text, c := range map[string]*config.Cluster{one.was: &was, one.is: &is} {
			if name, value, has := strings.Cut(text, "="); has {
				*argsOf(c, one.component) = []config.Arg{{Name: name, Value: value}}
			}
		}
		if warned := WarnOf(&was, &is); len(warned) != one.warned {
			t.Errorf("%+v: %v", one, warned)
		}
	}
}

// TestDocumented: docs/reconfigure.md has the table of arguments.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reconfigure.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, a := range Arguments {
		var names []string
		for _, name := range a.Names {
			names = append(names, "`"+name+"`")
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s | %s |\n", a.Component, strings.Join(names, ", "), a.Rule, a.Reason, a.Needed)
	}
	const head = "| of | argument | a change is | why | what is needed |\n|---|---|---|---|---|\n"
	_, table, found := strings.Cut(string(page), head)
	table, _, _ = strings.Cut(table, "\n\n")
	if !found || table+"\n" != want.String() {
		t.Errorf("docs/reconfigure.md does not have the table of arguments:\n%s%s", head, want.String())
	}
}
