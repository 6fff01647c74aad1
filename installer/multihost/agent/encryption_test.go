package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/installer/profile"
	"airlift/installer/secrets"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testhost"
)

// The driver and the hosts have the same names: the driver does not know the packages of the hosts.
func TestNamesOfTheDriver(t *testing.T) {
	for _, pair := range [][2]string{
		{spec.Hardened, profile.Hardened}, {spec.NoProfile, profile.None}, {spec.OwnKeys, secrets.File},
		{plan.SecretsEnable, fmt.Sprint("secrets ", secrets.Enable)}, {plan.SecretsDisable, fmt.Sprint("secrets ", secrets.Disable)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%q and %q", pair[0], pair[1])
		}
	}
}

// A control plane reports how many changes of the keys are left to each goal, by the file that its API server reads.
func TestStepsOfTheKeys(t *testing.T) {
	h, _ := testhost.ControlPlane(t, nil)
	steps := func() map[string]int {
		t.Helper()
		e := testcluster.Must(readKeys(h))(t)
		if e.Began {
			t.Error("a change that nobody began")
		}
		return e.Steps
	}
	if got := steps(); got[plan.SecretsEnable] != 2 || got[plan.SecretsDisable] != 0 {
		t.Errorf("without keys: %v", got)
	}
	manifest := h.Path("/etc/kubernetes/manifests/kube-apiserver.yaml")
	text := string(testcluster.Must(os.ReadFile(manifest))(t))
	before, after, found := strings.Cut(text, "- kube-apiserver\n")
	if !found {
		t.Fatal(text)
	}
	text = before + "- kube-apiserver\n    - --encryption-provider-config=" + secrets.File + "\n" + after
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(h.Path(secrets.File)), 0o700); err != nil {
		t.Fatal(err)
	}
	k := secrets.New()
	for _, want := range [][2]int{{0, 2}, {1, 1}, {2, 0}} { // it encrypts, it only reads, it has no key any more
		if err := os.WriteFile(h.Path(secrets.File), k.Text(), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := steps(); got[plan.SecretsEnable] != want[0] || got[plan.SecretsDisable] != want[1] {
			t.Errorf("%v, want %v", got, want)
		}
		next := testcluster.Must(k.Next(secrets.Disable))(t).Next
		if next != nil {
			k = next
		}
	}
	k = secrets.New()
	k = testcluster.Must(k.Next(secrets.Rotate))(t).Next
	if err := os.WriteFile(h.Path(secrets.File), k.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, possible := steps()[plan.SecretsEnable]; possible {
		t.Errorf("while a key is replaced: %d", got)
	}
}
