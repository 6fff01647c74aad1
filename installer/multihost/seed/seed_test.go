package seed_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"airlift/bundle/signature"
	"airlift/installer/config"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/seed"
	"airlift/installer/multihost/spec"
	"airlift/internal/documents/problems"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	_ "airlift/scripts/fixtures/seed"
)

const fiveHosts = `apiVersion: airlift/v1
kind: Cluster
name: plant-7
endpoint: {vip: 10.0.0.10, balancer: true}
profile: hardened
certificates: {autoRenew: true}
registries: {mirrors: {docker.io: [https://mirror.example]}, auth: auth.json}
hosts:
- {name: cp-1, role: control-plane, nodeIP: 10.0.0.11, match: {serial: ABC123}}
- {name: cp-2, role: control-plane, nodeIP: 10.0.0.12, match: {mac: "52:54:00:12:34:5A"}}
- {name: cp-3, role: control-plane, nodeIP: 10.0.0.13, match: {label: rack-3}, taints: []}
- {name: w-1, role: worker, nodeIP: 10.0.0.21, match: {serial: W1}, patches: patches}
- {name: w-2, role: worker, nodeIP: 10.0.0.22, match: {serial: W2}, labels: {zone: a}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {bindPort: 6444}
`

var (
	created = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	file    = seed.Bundle{ID: strings.Repeat("ab", 32), Version: "v1.37.1", Arch: "amd64", SHA256: strings.Repeat("cd", 32), Size: 1}
)

func read(t *testing.T, text string) (*spec.Cluster, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"cluster.yaml": text, "auth.json": `{"auths":{"mirror.example":{"auth":"dTpw"}}}`, "patches/kubeletconfiguration.yaml": "maxPods: 50\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return spec.Read(filepath.Join(dir, "cluster.yaml"))
}

// signed returns a seed of five hosts as a drive has it, and its key.
func signed(t *testing.T) (s *seed.Seed, data, text []byte, key signature.PublicKey) {
	t.Helper()
	c, err := read(t, fiveHosts)
	if err != nil {
		t.Fatal(err)
	}
	s, err = seed.New(c, file, created, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = s.Encode(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "k")
	if _, err := signature.WriteKeyPair(name+".key", name+".pub", ""); err != nil {
		t.Fatal(err)
	}
	secret, err := signature.ReadSecretKey(name+".key", nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, data, s.Sign(data, secret), secret.PublicKey()
}

// What a host reads is what was written, and each changed byte is refused.
func TestAlteredSeeds(t *testing.T) {
	s, data, text, key := signed(t)
	got, err := seed.Open(data, text, key)
	if err != nil {
		t.Fatal(err)
	}
	again, err := got.Encode()
	if err != nil || string(again) != string(data) {
		t.Errorf("it changed by reading: %v\n%s\n%s", err, data, again)
	}
	for i := range data {
		changed := slices.Clone(data)
		changed[i] ^= 1 << (i % 8)
		if _, err := seed.Open(changed, text, key); fault.ExitCode(err) != fault.Bundle {
			t.Fatalf("byte %d of the seed: %v", i, err)
		}
	}
	_, rest, _ := strings.Cut(string(text), "\n") // the first line is a comment that nobody signs
	offset := len(text) - len(rest)
	for i := range rest {
		changed := slices.Clone(text)
		if changed[offset+i] ^= 1; changed[offset+i] == '\n' || text[offset+i] == '\n' {
			continue
		}
		if _, err := seed.Open(data, changed, key); err == nil {
			t.Errorf("byte %d of the signature is ignored: %q", offset+i, text[offset+i])
		}
	}
	_, _, other, otherKey := signed(t)
	for what, err := range map[string]error{
		"another key":           second(seed.Open(data, text, otherKey)),
		"another seed's":        second(seed.Open(data, other, key)),
		"no signature":          second(seed.Open(data, nil, key)),
		"an empty seed":         second(seed.Open(nil, text, key)),
		"a truncated seed":      second(seed.Open(data[:len(data)-1], text, key)),
		"more after the seed":   second(seed.Open(append(slices.Clone(data), '\n'), text, key)),
		"a seed that is a bomb": second(seed.Open(make([]byte, seed.MaxSize+1), text, key)),
	} {
		if fault.ExitCode(err) != fault.Bundle {
			t.Errorf("%s: %v (%d)", what, err, fault.ExitCode(err))
		}
	}
	if s.Token == "" || len(s.CertificateKey) != 64 {
		t.Errorf("secrets: %q %q", s.Token, s.CertificateKey)
	}
}

func second[T any](_ T, err error) error { return err }

// minisign itself accepts the signature, if it is there.
func TestMinisign(t *testing.T) {
	path, err := exec.LookPath("minisign")
	if err != nil {
		t.Log("minisign is not installed: its answer is not compared")
		return
	}
	_, data, text, key := signed(t)
	name := filepath.Join(t.TempDir(), seed.File)
	if err := errors.Join(os.WriteFile(name, data, 0o600), os.WriteFile(name+".minisig", text, 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, "-Vm", name, "-P", key.String()).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTimes(t *testing.T) {
	s, _, _, _ := signed(t)
	for now, want := range map[time.Time]struct{ early, fails bool }{
		time.Unix(0, 0):               {true, true}, // a clock without a battery
		created.Add(-time.Second):     {true, true},
		created:                       {},
		created.Add(time.Hour - 1):    {},
		created.Add(time.Hour):        {false, true},
		created.Add(100 * time.Hour):  {false, true},
		created.Add(30 * time.Minute): {},
	} {
		early, err := s.InTime(now)
		if early != want.early || (err != nil) != want.fails || err != nil && fault.Hint(err) == "" {
			t.Errorf("%s: %t, %v", now, early, err)
		}
	}
}

// A machine is in the row whose match it has, and in no other; in several rows it is none.
func TestGeneratedMachines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfNDistinct(rapid.StringMatching(`[0-9a-f]{6}`), 3, 9, rapid.ID).Draw(t, "values")
		s := &seed.Seed{}
		mac := func(v string) string { return fmt.Sprintf("52:54:00:%s:%s:%s", v[:2], v[2:4], v[4:]) }
		machines := make([]seed.Machine, len(values))
		for i, v := range values {
			h := spec.Host{Name: "h" + v, Match: &spec.Match{}}
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				h.Match.Serial, machines[i].Serial = "S"+v, " S"+v+"\n"
			case 1:
				h.Match.MAC, machines[i].MACs = mac(v), []string{"52:54:00:ff:ff:ff", strings.ToUpper(mac(v))}
			case 2:
				h.Match.Label, machines[i].Labels = "l"+v, []string{"l" + v}
			}
			s.Cluster.Hosts = append(s.Cluster.Hosts, h)
		}
		for i, m := range machines {
			if h, err := s.Find(m); err != nil || h.Name != "h"+values[i] {
				t.Fatalf("%+v is %q: %v", m, h.Name, err)
			}
		}
		both := seed.Machine{Serial: machines[0].Serial + machines[1].Serial, MACs: append(machines[0].MACs, machines[1].MACs...), Labels: append(machines[0].Labels, machines[1].Labels...)}
		if machines[0].Serial == "" || machines[1].Serial == "" {
			if h, err := s.Find(both); err == nil {
				t.Fatalf("%+v is %q", both, h.Name)
			}
		}
		if _, err := s.Find(seed.Machine{Serial: "other", MACs: []string{"52:54:00:00:00:0g"}, Labels: []string{""}}); !errors.Is(err, seed.ErrNotListed) || fault.ExitCode(err) != fault.Preflight {
			t.Fatal(err)
		}
	})
}

// The steps are the steps of `cluster apply`, with the credentials of the seed.
func TestSteps(t *testing.T) {
	s, _, _, _ := signed(t)
	verbs := func(name string) (list []string) {
		steps, err := s.Steps(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			list = append(list, strings.Join(step.Args, " "))
			if strings.Contains(step.String(), s.Token) || strings.Contains(step.String(), s.CertificateKey) {
				t.Errorf("%s has a secret", step)
			}
		}
		return list
	}
	join, mirrors := "join --config - --node-ip ", "registry mirrors --registry-mirror docker.io=https://mirror.example --registry-auth "+plan.RegistriesDir+"/auth.json"
	init := "init --config - --embedded-registry --encrypt-secrets=true --profile hardened --control-plane-vip 10.0.0.10 --control-plane-balancer --skip-token-print --skip-certificate-key-print --upload-certs"
	for name, want := range map[string][]string{
		"cp-1": {init, mirrors, "certs auto"},
		"cp-2": {join + "10.0.0.12", mirrors, "certs auto"},
		"cp-3": {join + "10.0.0.13", mirrors, "certs auto"},
		"w-1":  {join + "10.0.0.21", mirrors},
		"w-2":  {join + "10.0.0.22", mirrors},
	} {
		if got := verbs(name); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	steps, _ := s.Steps("cp-1")
	f, err := decodeInit(t, steps[0].Stdin)
	if err != nil {
		t.Fatal(err)
	}
	tokens := f.BootstrapTokens
	if len(tokens) != 1 || tokens[0].Token != s.Token || !tokens[0].Expires.Equal(s.Expires) || !slices.Contains(tokens[0].Groups, seed.Group) || !slices.Contains(tokens[0].Groups, config.NodeTokenGroup) {
		t.Errorf("tokens: %+v", tokens)
	}
	if f.CertificateKey != s.CertificateKey || f.NodeRegistration.Name != "cp-1" || f.LocalAPIEndpoint.AdvertiseAddress != "10.0.0.11" || f.ClusterName != "plant-7" {
		t.Errorf("init: %+v", f)
	}
	steps, _ = s.Steps("w-1")
	if string(steps[0].Files[plan.PatchesDir+"/kubeletconfiguration.yaml"]) != "maxPods: 50\n" || steps[0].Dir != plan.PatchesDir || steps[0].Drop {
		t.Errorf("patches: %+v", steps[0])
	}
	var document struct {
		Discovery struct {
			BootstrapToken struct {
				Token, APIServerEndpoint string
				UnsafeSkipCAVerification bool
			}
			TLSBootstrapToken string
		}
		ControlPlane map[string]any
	}
	if err := json.Unmarshal(steps[0].Stdin, &document); err != nil {
		t.Fatal(err)
	}
	if d := document.Discovery; d.BootstrapToken.APIServerEndpoint != "10.0.0.10:6444" || d.TLSBootstrapToken != s.Token || !d.BootstrapToken.UnsafeSkipCAVerification || document.ControlPlane != nil {
		t.Errorf("join of a worker: %s", steps[0].Stdin)
	}
	steps, _ = s.Steps("cp-2")
	if err := json.Unmarshal(steps[0].Stdin, &document); err != nil || document.ControlPlane["certificateKey"] != s.CertificateKey {
		t.Errorf("join of a control plane: %s", steps[0].Stdin)
	}
	if string(steps[1].Files[plan.RegistriesDir+"/auth.json"]) == "" || !steps[1].Drop {
		t.Errorf("registries: %+v", steps[1])
	}
	meta, err := s.Meta()
	if err != nil || len(meta) != 2 || meta[0].Name != "cp-3" || meta[1].Labels["zone"] != "a" {
		t.Errorf("labels and taints: %+v, %v", meta, err)
	}
}

func decodeInit(t *testing.T, stdin []byte) (*config.Config, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(name, stdin, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.ReadInit(name)
	return cfg, err
}

// What a seed cannot do is refused before a drive is written.
func TestIncompleteClusters(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{", match: {serial: W1}", "", "host w-1 has no match"},
		{"nodeIP: 10.0.0.21, ", "", "host w-1 has no nodeIP"},
		{"match: {serial: W2}", "match: {serial: W1}", "the host in line 12 has the serial W1, too"},
		{"match: {serial: W2}", "match: {mac: 52-54-00-12-34-5a}", "has the MAC address 52:54:00:12:34:5a, too"},
		{"match: {serial: W2}", "match: {}", "has no value"},
		{"match: {serial: W2}", "match: {serial: W2, label: w2}", "has both serial and label"},
		{"match: {serial: W2}", "match: {serial: To Be Filled By O.E.M.}", "is what many machines have"},
		{"match: {serial: W2}", "match: {mac: 53:54:00:12:34:56}", "is not the MAC address"},
		{"match: {serial: W2}", "match: {label: a b}", "is not a label"},
		{"match: {serial: W2}", "match: {uuid: x}", "uuid"},
	} {
		cluster, err := read(t, strings.Replace(fiveHosts, c.from, c.to, 1))
		if err == nil {
			_, err = seed.New(cluster, file, created, time.Hour)
		}
		text := fmt.Sprint(err)
		if wrong := (*problems.Wrong)(nil); errors.As(err, &wrong) {
			text += fmt.Sprint(wrong.Problems)
		}
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(text, c.want) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
}

// The forms of the first boot have the same files, by decoders of other projects.
func TestFirstBoot(t *testing.T) {
	_, _, _, key := signed(t)
	boot := seed.Boot{Key: key, Start: seed.Start{First: 1, Last: 2, SHA256: file.SHA256}}
	files, err := boot.Files()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, f := range files {
		want[f.Path] = f.Text
		if strings.Contains(f.Text, "@") && f.Path == seed.ScriptFile {
			for _, word := range []string{"@FIRST@", "@LAST@", "@RECORD@", "@SHA256@", "@DRIVE@", "@FILE@", "@COPY@", "@INSTALLER@", "@KEY@"} {
				if strings.Contains(f.Text, word) {
					t.Errorf("%s has %s", f.Path, word)
				}
			}
		}
	}
	for _, label := range []string{"AIRLIFT", "CIDATA", "cidata"} {
		if !strings.Contains(want[seed.UnitFile], `dev-disk-by\x2dlabel-`+label+".device") {
			t.Errorf("the unit does not start with %s: %s", label, want[seed.UnitFile])
		}
	}
	text, err := boot.CloudInit()
	if err != nil || !strings.HasPrefix(string(text), "#cloud-config\n") {
		t.Fatalf("%v: %s", err, text)
	}
	var cloud struct {
		Files []struct{ Path, Permissions, Content string } `json:"write_files"`
		Run   [][]string                                    `json:"runcmd"`
	}
	if err := yaml.UnmarshalStrict(text, &cloud); err != nil {
		t.Fatal(err)
	}
	for _, f := range cloud.Files {
		if want[f.Path] != f.Content || len(f.Permissions) != 4 {
			t.Errorf("cloud-init: %+v", f)
		}
	}
	if len(cloud.Files) != 3 || len(cloud.Run) != 2 {
		t.Errorf("cloud-init: %s", text)
	}
	var ignition struct {
		Ignition struct{ Version string }
		Storage  struct {
			Files []struct {
				Path      string
				Mode      int
				Overwrite bool
				Contents  struct{ Source string }
			}
		}
		Systemd struct {
			Units []struct {
				Name, Contents string
				Enabled        bool
			}
		}
	}
	if text, err = boot.Ignition(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &ignition); err != nil {
		t.Fatal(err)
	}
	for _, f := range ignition.Storage.Files {
		content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(f.Contents.Source, "data:;base64,"))
		if err != nil || string(content) != want[f.Path] {
			t.Errorf("ignition: %+v: %v", f, err)
		}
	}
	if u := ignition.Systemd.Units; len(ignition.Storage.Files) != 2 || len(u) != 1 || !u[0].Enabled || u[0].Contents != want[seed.UnitFile] {
		t.Errorf("ignition: %s", text)
	}
	for _, wrong := range []string{"a b", "/srv/../x", "/it's", strings.Repeat("x", 17), "$(id)"} {
		boot.Drive = wrong
		if _, err := boot.Files(); fault.ExitCode(err) != fault.Usage {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// installerOf returns an installer that shows from where it runs, with bytes that do not start it in the middle.
func installerOf(middle string) (start seed.Start, text string) {
	const first, last = "#!/bin/sh\necho \"ran $*\"\nls -l \"$0\"\nexit 3\n", "# end\n"
	return seed.Start{First: int64(len(first)), Last: int64(len(last)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(first+last)))}, first + middle + last
}

// runScript runs the script of a host for some seconds, with a /run of its own.
func runScript(t *testing.T, seconds int, boot seed.Boot) (string, int) {
	t.Helper()
	_, _, _, boot.Key = signed(t)
	files, err := boot.Files()
	if err != nil {
		t.Fatal(err)
	}
	script := "mount -t tmpfs -o noexec tmpfs /run && timeout " + fmt.Sprint(seconds) + " /bin/sh -c \"$0\"; code=$?; find /run/airlift-seed -mindepth 1; grep airlift-seed /proc/mounts; exit $code"
	cmd := exec.Command("unshare", "--mount", "/bin/sh", "-c", script, files[1].Text)
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// The script passes a drive to its installer only if there is one, and runs exactly the bytes that it has checked: a copy.
func TestScript(t *testing.T) {
	rig.Root(t)
	dir := filepath.Join(t.TempDir(), "drive")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	start, installer := installerOf("if\n(the middle is no script)\n")
	if out, code := runScript(t, 1, seed.Boot{Drive: dir, Start: start}); !strings.Contains(out, "waiting for a drive") || code == 0 {
		t.Errorf("without a drive: %d: %s", code, out)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, seed.File), nil, 0o600), os.WriteFile(filepath.Join(dir, seed.Installer), []byte(installer), 0o600)); err != nil {
		t.Fatal(err)
	}
	out, code := runScript(t, 20, seed.Boot{Drive: dir, Start: start})
	if !strings.Contains(out, "ran seed run "+dir) || code != 3 || !strings.Contains(out, "-rwx------ 1 root root") || !strings.Contains(out, "/run/airlift-seed/start/"+seed.Installer) || strings.Count(out, "airlift-seed/start") != 1 {
		t.Errorf("with a drive: %d: %s", code, out)
	}
	for i := range installer { // each byte that starts it counts
		if at := int64(i); at >= start.First && at < int64(len(installer))-start.Last || i%7 != 0 {
			continue
		}
		changed := []byte(installer)
		changed[i] ^= 1
		if err := os.WriteFile(filepath.Join(dir, seed.Installer), changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := runScript(t, 20, seed.Boot{Drive: dir, Start: start}); strings.Contains(out, "ran") || code != 4 || !strings.Contains(out, "Nothing was changed") || strings.Contains(out, "/run/airlift-seed/") {
			t.Fatalf("with byte %d changed: %d: %s", i, code, out)
		}
	}
}

// What a script leaves that is killed is unmounted by the next one, also if that one finds the copy of the drive.
func TestScriptKilled(t *testing.T) {
	rig.Root(t)
	dir := t.TempDir()
	const first = "#!/bin/sh\nkill -9 $PPID\n"
	start := seed.Start{First: int64(len(first)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(first)))}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, seed.File), nil, 0o600), os.WriteFile(filepath.Join(dir, seed.Installer), []byte(first), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, _, _, key := signed(t)
	files, err := seed.Boot{Key: key, Drive: dir, Start: start}.Files()
	if err != nil {
		t.Fatal(err)
	}
	const script = `mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib
for n in 1 2 3; do /bin/sh -c "$0"; done
grep -c airlift-seed/start /proc/mounts
mkdir -p /var/lib/airlift/seed && printf '#!/bin/sh\necho "ran $*"\n' >/var/lib/airlift/seed/install
chmod 755 /var/lib/airlift/seed/install && touch /var/lib/airlift/seed/record.json
/bin/sh -c "$0"
grep -c airlift-seed /proc/mounts`
	out, _ := exec.Command("unshare", "--mount", "/bin/sh", "-c", script, files[1].Text).Output()
	if got := string(out); got != "1\nran seed run\n0\n" {
		t.Errorf("%q", got)
	}
}

// One drive that the kernel shows twice is one drive, and two drives with different seeds are refused. The drives are loop devices with ext4.
func TestScriptCountsDrives(t *testing.T) {
	rig.Root(t)
	start, installer := installerOf("")
	label := "AL-" + strings.ToUpper(rand.Text()[:8])
	drive := func(seedText string) (show func()) {
		dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
		if err := errors.Join(os.WriteFile(filepath.Join(dir, seed.File), []byte(seedText), 0o600), os.WriteFile(filepath.Join(dir, seed.Installer), []byte(installer), 0o600)); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mkfs.ext4", "-q", "-L", label, "-d", dir, image, "2M").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return func() {
			out, err := exec.Command("losetup", "--find", "--show", "--read-only", image).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Cleanup(func() { _ = exec.Command("losetup", "--detach", strings.TrimSpace(string(out))).Run() })
		}
	}
	one, two := drive("one"), drive("two")
	for _, name := range []string{"once", "twice"} {
		one()
		if out, code := runScript(t, 30, seed.Boot{Drive: label, Start: start}); code != 3 || !strings.Contains(out, "ran seed run /run/airlift-seed/drive-loop") {
			t.Errorf("%s: %d: %s", name, code, out)
		}
	}
	two()
	if out, code := runScript(t, 5, seed.Boot{Drive: label, Start: start}); code != 124 || strings.Contains(out, "ran") || !strings.Contains(out, "2 drives have different seeds: /dev/loop") || strings.Contains(out, "/run/airlift-seed/drive") {
		t.Errorf("two seeds: %d: %s", code, out)
	}
}

// cloudInit is a script that installs Debian's cloud-init in an overlay over the root file system of this machine, which is not changed, and lets it
// read user data. $0 is an empty directory.
const cloudInit = `set -e
mount -t tmpfs tmpfs "$0"
cd "$0"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" root
cd root
mount -t proc proc proc
mount -t tmpfs tmpfs dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/urandom c 1 9
mkdir -p var/lib/cloud/seed/nocloud
cp "$1/user-data" "$1/meta-data" var/lib/cloud/seed/nocloud
chroot . /bin/sh -e -c '
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends cloud-init >/tmp/apt.log 2>&1 || { tail /tmp/apt.log; exit 1; }
	printf "datasource_list: [NoCloud]\\nnetwork: {config: disabled}\\ncloud_init_modules: []\\ncloud_config_modules: []\\ncloud_final_modules: []\\n" >/etc/cloud/cloud.cfg.d/99_test.cfg
	cloud-init init --local
	cloud-init init
	cloud-init schema --system
	cloud-init single --name write-files
	cloud-init single --name runcmd' >&2
tar -C "$0/upper" -c etc/airlift etc/systemd/system/airlift-seed.service var/lib/cloud/instances
`

// Debian's cloud-init accepts the user data, writes the files of a host, and runs the commands that start the unit.
func TestCloudInit(t *testing.T) {
	rig.Root(t)
	_, _, _, key := signed(t)
	boot := seed.Boot{Key: key, Start: seed.Start{First: 1, Last: 2, SHA256: file.SHA256}}
	text, err := boot.CloudInit()
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(data, "user-data"), text, 0o600), os.WriteFile(filepath.Join(data, "meta-data"), []byte("instance-id: airlift-1\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", cloudInit, t.TempDir(), data)
	cmd.Stderr = &log
	archive, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	has, modes := map[string]string{}, map[string]int64{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		content, readErr := io.ReadAll(r)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		has["/"+h.Name], modes["/"+h.Name] = string(content), h.Mode
	}
	files, err := boot.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if has[f.Path] != f.Text || modes[f.Path] != int64(f.Mode) {
			t.Errorf("%s: mode %o:\n%s", f.Path, modes[f.Path], has[f.Path])
		}
	}
	const want = "'systemctl' 'daemon-reload'\n'systemctl' 'enable' '--now' '--no-block' '" + seed.Unit + "'\n"
	if got := has["/var/lib/cloud/instances/airlift-1/scripts/runcmd"]; got != "#!/bin/sh\n"+want {
		t.Errorf("the commands: %q in\n%s", got, log.String())
	}
}

// Debian's Ignition makes the same files on a host as the user data for cloud-init, and enables the unit.
func TestIgnition(t *testing.T) {
	rig.Root(t)
	ignition := rig.Tool(t, "/usr/lib/dracut/modules.d/30ignition/ignition")
	rig.Tool(t, "setfiles") // Ignition labels what it writes
	_, _, _, key := signed(t)
	boot := seed.Boot{Key: key, Start: seed.Start{First: 1, Last: 2, SHA256: file.SHA256}}
	config, err := boot.Ignition()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	contexts := filepath.Join(root, "etc/selinux/targeted/contexts/files/file_contexts")
	err = errors.Join(os.WriteFile(filepath.Join(dir, "airlift.ign"), config, 0o600), os.MkdirAll(filepath.Dir(contexts), 0o755), os.WriteFile(contexts, nil, 0o600),
		os.WriteFile(filepath.Join(root, "etc/selinux/config"), []byte("SELINUX=disabled\nSELINUXTYPE=targeted\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{"fetch", "files"} {
		cmd := exec.CommandContext(t.Context(), ignition, "--platform", "file", "--root", root, "--config-cache", filepath.Join(dir, "cache"), "--state-file", filepath.Join(dir, "state"),
			"--neednet", filepath.Join(dir, "neednet"), "--stage", stage, "--log-to-stdout")
		cmd.Env = append(os.Environ(), "IGNITION_CONFIG_FILE="+filepath.Join(dir, "airlift.ign"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", stage, err, out)
		}
	}
	text, err := boot.CloudInit()
	if err != nil {
		t.Fatal(err)
	}
	var cloud struct {
		Files []struct{ Path, Permissions, Content string } `json:"write_files"`
	}
	if err := yaml.Unmarshal(text, &cloud); err != nil {
		t.Fatal(err)
	}
	for _, f := range cloud.Files {
		has, err := os.ReadFile(filepath.Join(root, f.Path))
		if err != nil || string(has) != f.Content {
			t.Errorf("%s: %v\n%s", f.Path, err, has)
		}
		if info, err := os.Stat(filepath.Join(root, f.Path)); err == nil && fmt.Sprintf("%04o", info.Mode()) != f.Permissions {
			t.Errorf("%s: %s, want %s", f.Path, info.Mode(), f.Permissions)
		}
	}
	if preset, err := os.ReadFile(filepath.Join(root, "etc/systemd/system-preset/20-ignition.preset")); err != nil || strings.TrimSpace(string(preset)) != "enable "+seed.Unit {
		t.Errorf("the unit is not enabled: %v, %q", err, preset)
	}
	// systemd itself enables it at the first boot.
	if out, err := exec.CommandContext(t.Context(), rig.Tool(t, "systemctl"), "--root", root, "preset", seed.Unit).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Lstat(filepath.Join(root, "etc/systemd/system/multi-user.target.wants", seed.Unit)); err != nil {
		t.Error(err)
	}
}
