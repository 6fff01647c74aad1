package secrets

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/reconfiguration"
)

// randomKeys returns keys as some history of goals leaves them.
func randomKeys(r *rand.Rand) (k *Keys) {
	for range r.IntN(8) {
		stage, err := k.Next([]Goal{Enable, Rotate, Disable}[r.IntN(3)])
		if err == nil && stage.Next != nil {
			k = stage.Next
		}
	}
	return k
}

// TestTextIsParsed: what Text writes is what Parse and the API server's rules read, in the same order.
func TestTextIsParsed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		k := randomKeys(r)
		if k == nil {
			continue
		}
		text := k.Text()
		back, err := Parse(text)
		if err != nil || !reflect.DeepEqual(back.Active, k.Active) && len(k.Active) > 0 || !slices.Equal(back.Retired, k.Retired) || back.Writes() != k.Writes() {
			t.Fatalf("%v: %+v, want %+v\n%s", err, back, k, text)
		}
		if !bytes.Equal(back.Text(), text) {
			t.Errorf("written again, it differs:\n%s", text)
		}
		first := map[bool]string{true: "- identity: {}", false: "- secretbox:"}[k.Writes() == ""]
		if _, after, _ := strings.Cut(string(text), "providers:\n"); !strings.HasPrefix(strings.TrimSpace(after), first) {
			t.Errorf("%q does not follow providers:\n%s", first, text)
		}
		if strings.Contains(string(text), "{keys") {
			t.Errorf("not plain YAML:\n%s", text)
		}
	}
}

// TestParseRefuses: an edit is an error that has no key.
func TestParseRefuses(t *testing.T) {
	k := New()
	text, secret := string(k.Text()), base64.StdEncoding.EncodeToString(k.Active[0].Secret[:])
	for _, edit := range [][2]string{
		{"secretbox", "aescbc"}, {"- secrets", "- configmaps"}, {secret, secret[:20]}, {"  - identity: {}\n", ""}, {"identity: {}", "identity: {}\n  - identity: {}"},
		{k.Active[0].Name, "key1"}, {"kind: ", "kind: X"}, {"providers:", "providers2:"}, {"- secrets", "- secrets\n  - configmaps"},
		{"  - identity: {}\n", "  - identity: {}\n" + retired + k.Active[0].Name + " " + secret + "\n"},
	} {
		edited := strings.ReplaceAll(text, edit[0], edit[1])
		_, err := Parse([]byte(edited))
		if err == nil || edited == text {
			t.Errorf("%q -> %q is accepted", edit[0], edit[1])
			continue
		}
		if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("the error has the key: %v", err)
		}
	}
}

// TestStagesAreSafe: from all keys that any history leaves, no step makes data unreadable while servers have either of its two files, keys
// are removed only after all Secrets were written again, no key is lost, and each goal is reached.
func TestStagesAreSafe(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	encryption := func(k *Keys) *reconfiguration.Encryption {
		if k == nil {
			return nil
		}
		e, err := reconfiguration.ParseEncryption(k.Text())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for range 500 {
		k, goal := randomKeys(r), []Goal{Enable, Rotate, Disable}[r.IntN(3)]
		var before []Key
		if k != nil {
			before = slices.Concat(k.Active, k.Retired)
		}
		for step := 0; ; step++ {
			stage, err := k.Next(goal)
			if err != nil {
				if goal == Disable || goal == Enable && (k == nil || len(k.Active) < 2) {
					t.Fatalf("%s: %v", goal, err)
				}
				break
			}
			if stage.Next == nil || goal == Rotate && step == 3 {
				if writes := k.Writes() != ""; writes != (goal != Disable) {
					t.Fatalf("%s ends with %+v", goal, k)
				}
				break
			}
			if step > 3 {
				t.Fatalf("%s does not end: %+v", goal, k)
			}
			for _, unsafe := range reconfiguration.CheckStep(encryption(k), encryption(stage.Next)) {
				if !stage.Rewrite || !unsafe.MayBeUnused {
					t.Fatalf("%s: %s", goal, unsafe)
				}
			}
			if stage.Rewrite && stage.Next.Writes() != k.Writes() {
				t.Fatalf("%s: the key changes with the removal", goal)
			}
			k = stage.Next
		}
		if k == nil {
			continue
		}
		names := map[string]bool{}
		for _, one := range slices.Concat(k.Active, k.Retired) {
			if names[one.Name] {
				t.Fatalf("two keys are %s", one.Name)
			}
			names[one.Name] = true
		}
		for _, one := range before {
			if !names[one.Name] {
				t.Fatalf("%s is lost", one.Name)
			}
		}
	}
}

// TestUse: the ClusterConfiguration gets what the file needs, once, and keeps what the user has.
func TestUse(t *testing.T) {
	c := &config.Cluster{}
	c.APIServer.ExtraArgs = config.Args{{Name: "profiling", Value: "false"}}
	for range 2 {
		if err := Use(c); err != nil || !IsUsed(c) || len(c.APIServer.ExtraArgs) != 3 || len(c.APIServer.ExtraVolumes) != 1 {
			t.Fatalf("%v: %+v", err, c.APIServer)
		}
	}
	if file := reconfiguration.FileOf(c, "kube-apiserver", providerFlag); file != File {
		t.Errorf("the API servers read %s", file)
	}
	if users := reconfiguration.UsersOf(c, File); !slices.Equal(users, []string{"kube-apiserver"}) {
		t.Errorf("users: %v", users)
	}
	for _, site := range []config.Component{
		{ExtraArgs: config.Args{{Name: providerFlag, Value: "/etc/site/keys.yaml"}}},
		{ExtraVolumes: []config.HostPathMount{{Name: volume, HostPath: "/srv", MountPath: "/srv"}}},
	} {
		c := &config.Cluster{APIServer: config.APIServer{Component: site}}
		if err := Use(c); err == nil || IsUsed(c) {
			t.Errorf("%+v is replaced", site)
		}
	}
}
