package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

// golden is a small complete bundle: two images, three components.
const golden = "../../bundle/testdata/v1.bundle"

// command runs the bundle command with the arguments.
func command(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := newRootCmd()
	var out, progress bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&progress)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestInspectShowsWhatIsInside(t *testing.T) {
	// A path that a shell would split.
	path := filepath.Join(t.TempDir(), "the 'one' file")
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "inspect", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Kubernetes v1.29.15 for linux/amd64, pod network: flannel\n",
		"\nunpacked                               55.0 kB  100 %\n├─ installer                            3.0 kB    5 %\n├─ binaries                            29.0 kB   53 %\n",
		"│  ├─ kubelet v1.0.0                   20.0 kB   36 %\n│  │     https://example.com/kubelet\n│  │     sha256:",
		"   └─ registry.k8s.io/etcd:3.5.16-0    21.5 kB   39 %  2 layers, 10.2 kB in other images too\n",
		"10 entries; layers", "compression ratio 1.0, in parts",
		"\n  binaries    29.2 kB,   29.0 kB unpacked, 3 files, window 1.0 MB\n",
		"\n  images      ", " 7 files, window",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	// The printed command works.
	_, line, ok := strings.Cut(out, "To list the files with tar:\n")
	if !ok {
		t.Fatal(out)
	}
	t.Run("tar", func(t *testing.T) {
		rig.Tool(t, "zstd")
		list, err := exec.Command("bash", "-o", "pipefail", "-c", line).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(list), "manifest.json\ninstall\nbin/runc\nbin/kubelet\ncni/bridge\nblobs/sha256/") {
			t.Errorf("%s: %v\n%s", line, err, list)
		}
	})
}

func TestInspectJSON(t *testing.T) {
	out, err := command(t, "inspect", "-o", "json", golden)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Size    int64
		Payload struct {
			Offset, Size  int64
			DigestsSHA256 string
			Parts         []struct {
				Name                               string
				Offset, Size, UnpackedSize, Window int64
				Files                              int
			}
		}
		Manifest json.RawMessage
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.Size != int64(len(b)) || got.Payload.Offset+got.Payload.Size >= got.Size {
		t.Errorf("%+v of a file of %d bytes", got, len(b))
	}
	cmd := exec.Command("sha256sum")
	cmd.Stdin = bytes.NewReader(b[got.Payload.Offset+got.Payload.Size:][:8+32]) // of one piece
	if sum, err := cmd.Output(); err != nil || !strings.HasPrefix(string(sum), got.Payload.DigestsSHA256) {
		t.Errorf("digests: sha256sum says %s, %v; inspect %s", sum, err, got.Payload.DigestsSHA256)
	}
	// The parts cover the payload, and each has the listed size and files.
	at, files := got.Payload.Offset, ""
	for _, p := range got.Payload.Parts {
		if p.Offset != at || p.Window != 1<<20 {
			t.Errorf("%+v, want it at %d", p, at)
		}
		at += p.Size
		t.Run("zstd unpacks "+p.Name, func(t *testing.T) {
			unpack := exec.Command(rig.Tool(t, "zstd"), "-dc")
			unpack.Stdin = bytes.NewReader(b[p.Offset:][:p.Size])
			out, err := unpack.Output()
			if tarred := int64(len(out)); err != nil || tarred < p.UnpackedSize+int64(p.Files)*512 {
				t.Errorf("%d bytes, %v; inspect says %d bytes in %d files", tarred, err, p.UnpackedSize, p.Files)
			}
		})
		files += fmt.Sprint(p.Name, " ", p.Files, "; ")
	}
	if at != got.Payload.Offset+got.Payload.Size || files != "head 2; binaries 3; images 7; " {
		t.Errorf("the parts end at %d and have: %s", at, files)
	}
	var m bundle.Manifest
	if err := json.Unmarshal(got.Manifest, &m); err != nil {
		t.Fatal(err)
	}
	if err := m.Validate(); err != nil || len(m.Entries) != 10 {
		t.Errorf("%d entries, %v", len(m.Entries), err)
	}
}

func TestVerify(t *testing.T) {
	out, err := command(t, "verify", golden)
	if err != nil || !strings.Contains(out, "is complete") || !strings.Contains(out, "10 entries (52.0 kB)") {
		t.Errorf("%q, %v", out, err)
	}
	whole, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(change func([]byte) []byte) string {
		path := filepath.Join(t.TempDir(), "install")
		if err := os.WriteFile(path, change(bytes.Clone(whole)), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, path, want string
		list             string // of the damage, on standard output
	}{
		{"a flipped bit", damaged(func(b []byte) []byte { b[24_000] ^= 1; return b }), `is damaged: its payload's part "head": bytes 264 to `, "1 of 1 pieces of the payload"},
		{"cut short", damaged(func(b []byte) []byte { return b[:30_000] }), fmt.Sprintf("is an incomplete copy: it has 30000 of %d bytes; %d are missing", len(whole), len(whole)-30_000), ""},
		{"absent", filepath.Join(t.TempDir(), "none"), "no such file", ""},
		{"something else", "inspect_test.go", "is not a bundle", ""},
	} {
		out, err := command(t, "verify", c.path)
		if fault.ExitCode(err) != fault.Bundle || !strings.Contains(err.Error(), c.want) || !strings.Contains(out, c.list) || (out == "") != (c.list == "") {
			t.Errorf("%s: %q, exit code %d, %v; want 4 and %q", c.name, out, fault.ExitCode(err), err, c.want)
		}
	}
}

func TestInspectAndVerifyUsage(t *testing.T) {
	for _, args := range [][]string{{"inspect"}, {"verify"}, {"inspect", "a", "b"}, {"inspect", "-o", "xml", golden}, {"verify", "--no-such-flag", golden}} {
		if _, err := command(t, args...); fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" {
			t.Errorf("bundle %s: exit code %d, %v", strings.Join(args, " "), fault.ExitCode(err), err)
		}
	}
}
