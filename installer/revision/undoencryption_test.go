package revision

import (
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
	"airlift/scripts/oracle"
)

// TestFindWritten: data that is not encrypted is found where the API server stores it, and not elsewhere.
func TestFindWritten(t *testing.T) {
	const encrypted = "k8s:enc:aescbc:v1:key1:"
	for resource, keys := range map[string]map[string]string{
		"secrets":                     {"secrets/default/one": "k8s\x00one", "secrets/default/two": encrypted},
		"nodes":                       {"minions/one": "k8s\x00"},
		"endpoints":                   {"services/endpoints/default/one": "k8s\x00"},
		"services":                    {"services/specs/default/one": "k8s\x00"},
		"replicationcontrollers":      {"controllers/default/one": "k8s\x00"},
		"ingresses.networking.k8s.io": {"ingress/default/one": "k8s\x00"},
		"deployments.apps":            {"deployments/default/one": "k8s\x00"},
		"pandas.example":              {"example/pandas/default/one": "{}"},
		"all-others.apps":             {"": "other resources, which cannot be listed"},
	} {
		for _, left := range []bool{true, false} {
			stored := map[string]string{"services/endpoints/default/other": "k8s\x00", "services/specs/default/other": encrypted, "nodesets/one": "k8s\x00"}
			if resource == "endpoints" || resource == "services" {
				stored = map[string]string{"services/endpoints/default/two": encrypted, "services/specs/default/two": encrypted}
			}
			want := ""
			for key, value := range keys {
				if !left {
					value = encrypted
				}
				if !strings.HasPrefix(value, encrypted) {
					want = "/kept/" + key
				}
				stored[key] = value
			}
			if strings.HasPrefix(resource, reconfiguration.AllOthers) {
				want = keys[""]
			}
			got, err := findWritten("/kept", reconfiguration.Unsafe{Resource: resource, Provider: reconfiguration.Provider{Kind: "identity"}, Removed: true, MayBeUnused: true}, in(stored))
			if err != nil || got != want {
				t.Errorf("%s, unencrypted data is left: %t: %q, %v, not %q", resource, left, got, err, want)
			}
		}
	}
	of := reconfiguration.Unsafe{Resource: "secrets", Provider: reconfiguration.Provider{Kind: "aescbc", Name: "key1"}}
	for value, found := range map[string]bool{encrypted + "x": true, "k8s:enc:aescbc:v1:key11:x": false, "k8s\x00": false} {
		if got, err := findWritten("/kept", of, in(map[string]string{"minions/one": value})); err != nil || (got != "") != found {
			t.Errorf("%q: %q, %v", value, got, err)
		}
	}
}

// in finds in an etcd with these values below /kept.
func in(stored map[string]string) func(string, func([]byte) bool) (string, error) {
	return func(below string, matches func([]byte) bool) (string, error) {
		for _, key := range slices.Sorted(maps.Keys(stored)) {
			if at := "/kept/" + key; strings.HasPrefix(at, below) && matches([]byte(stored[key])) {
				return at, nil
			}
		}
		return "", nil
	}
}

const encryptionFile = "/etc/kubernetes/enc/config.yaml"

// encrypting returns a control plane whose API server encrypts.
func encrypting(t *testing.T, with string) *host.Host {
	t.Helper()
	h, _ := testhost.ControlPlane(t, func(c *config.Config) {
		c.APIServer.ExtraArgs = []config.Arg{{Name: "encryption-provider-config", Value: encryptionFile}}
		c.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "enc", HostPath: path.Dir(encryptionFile), MountPath: path.Dir(encryptionFile)}}
	})
	if _, err := h.WriteFile(encryptionFile, []byte(with), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// undoing returns the Undo of a change on a host.
func undoing(t *testing.T, h *host.Host, state *Record) *Undo {
	t.Helper()
	u := &Undo{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), record: state, former: state.Kept(h)}
	var err error
	if u.paths, err = u.former.Paths(); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestUndoOfEncryption: undo is refused if API servers could not read what is written. That is also so for the first step, when
// the API server has had no encryption at all.
func TestUndoOfEncryption(t *testing.T) {
	second, first, only := oracle.Keys("identity", "key1"), oracle.Keys("key1", "identity"), oracle.Keys("key1")
	for _, c := range []struct {
		name, former, now string
		refused           string
	}{
		{"the same", first, first, ""},
		{"the key is not the first one any more", second, first, ""},
		{"identity comes back", first, only, ""},
		{"the key goes, and the API server writes with it", oracle.Keys("identity"), first, "still write with it"},
		{"a key that the others do not have", oracle.Keys("key2", "key1"), first, "writes with aescbc key2"},
	} {
		h := encrypting(t, c.former)
		state := &Record{Kind: Reconfigure, From: "v1.37.1", To: "v1.37.1", Change: "0123456789abcdef", Finished: true}
		if err := state.Kept(h).Keep(encryptionFile); err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteFile(encryptionFile, []byte(c.now), 0o600); err != nil {
			t.Fatal(err)
		}
		r := undoing(t, h, state)
		now, former, err := r.encryptions()
		if err != nil {
			t.Fatal(err)
		}
		err = r.checkEncryption(t.Context(), &config.Etcd{}, now, former)
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// Before the change, the manifest had no flag.
	h := encrypting(t, second)
	state := &Record{Kind: Reconfigure, From: "v1.37.1", To: "v1.37.1", Change: "0123456789abcdef"}
	with, err := node.NewMachine(h, nil).ReadManifest("kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	pod, err := render.ControlPlane(testhost.Config(nil), os.DirFS(h.Path("/")))
	if err != nil {
		t.Fatal(err)
	}
	without, err := render.YAML(pod["kube-apiserver"])
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{without, with} {
		if _, err := h.WriteFile(node.APIServerManifest, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := state.Kept(h).Keep(node.APIServerManifest); err != nil {
			t.Fatal(err)
		}
	}
	if now, former, err := undoing(t, h, state).encryptions(); err != nil || now == nil || former != nil {
		t.Errorf("%v to %v, %v", now, former, err)
	}
}

// TestUndoWithoutAnAPIServer: the cluster must learn that this control plane does not follow a change of the encryption any more, before
// that is undone. Undo of another change goes on.
func TestUndoWithoutAnAPIServer(t *testing.T) {
	second, first := oracle.Keys("identity", "key1"), oracle.Keys("key1", "identity")
	for _, c := range []struct {
		name, now       string
		finished, fails bool
	}{
		{"an unfinished change of the encryption", first, false, false}, {"a change of the encryption", first, true, true}, {"another change", second, true, false},
	} {
		h := encrypting(t, second)
		state := &Record{Kind: Reconfigure, From: "v1.37.1", To: "v1.37.1", Change: "0123456789abcdef", WasFinished: c.finished}
		if err := state.Kept(h).Keep(encryptionFile); err != nil {
			t.Fatal(err)
		}
		admin := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
		for file, data := range map[string]string{encryptionFile: c.now, node.AdminConf: admin} {
			if _, err := h.WriteFile(file, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := undoing(t, h, state).leave(t.Context())
		if c.fails && (err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "./install reconfigure undo")) || !c.fails && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestUndoOnAWorkerWithoutTheAPI: the node has its former configuration again, and the user learns what is left.
func TestUndoOnAWorkerWithoutTheAPI(t *testing.T) {
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
	if _, err := h.WriteFile(node.KubeletConf, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	u := &Undo{Machine: node.NewMachine(h, &workflow.Console{Out: &printed}), record: &Record{Kind: Reconfigure, Change: "0123456789abcdef"}}
	if err := (u).restoreStored(t.Context()); err != nil || !strings.Contains(printed.String(), "./install reconfigure node") {
		t.Errorf("%v\n%s", err, printed.String())
	}
}
