package builder_test

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/builder"
	"airlift/builder/events"
	"airlift/builder/lock"
	"airlift/builder/sbom"
	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// atPhase returns a stream of events that calls do when a phase of a platform begins.
func atPhase(platform, phase string, do func()) events.Reporter {
	return events.JSON(hook{[]byte(`"platform":"` + platform + `","phase":"` + phase + `"`), do})
}

type hook struct {
	event []byte
	do    func()
}

func (h hook) Write(p []byte) (int, error) {
	if bytes.Contains(p, h.event) {
		h.do()
	}
	return len(p), nil
}

// filesNextTo returns the contents of the files in the directory of a path, by name.
func filesNextTo(t *testing.T, path string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range list {
		if e.IsDir() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(content)
	}
	return all
}

// signedOptions are the options of a build that writes all files next to the bundle.
func signedOptions(t *testing.T, u *fakesites.Upstream) builder.Options {
	t.Helper()
	o := options(t, u)
	dir := t.TempDir()
	if _, err := signature.WriteKeyPair(filepath.Join(dir, "key"), filepath.Join(dir, "pub"), ""); err != nil {
		t.Fatal(err)
	}
	key, err := signature.ReadSecretKey(filepath.Join(dir, "key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Key, o.SBOM = &key, []sbom.Format{sbom.SPDX, sbom.CycloneDX}
	return o
}

// damageDrafts changes a byte of each file with a temporary name.
func damageDrafts(t *testing.T, output string) {
	list, err := filepath.Glob(filepath.Join(filepath.Dir(output), ".*.partial"))
	if err != nil || len(list) == 0 {
		t.Errorf("no temporary files, %v", err)
	}
	for _, path := range list {
		b, err := os.ReadFile(path)
		if err == nil {
			b[len(b)/2] ^= 1
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// A build that fails or is interrupted leaves the earlier bundle and all files next to it, also if
// that happens after the new file is complete.
func TestFailedBuildKeepsTheEarlierFiles(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := signedOptions(t, u)
	run(t, o)
	before := filesNextTo(t, o.Output)
	if len(before) != 5 {
		t.Fatalf("files: %q", slices.Collect(maps.Keys(before)))
	}
	o.CNI = "none" // another bundle
	for name, c := range map[string]struct {
		phase string
		do    func(cancel func())
		code  fault.Code
		want  string
	}{
		"damaged before it is verified":     {events.Verify, func(func()) { damageDrafts(t, o.Output) }, fault.Bundle, "reading the bundle again"},
		"interrupted before it is verified": {events.Verify, func(cancel func()) { cancel() }, fault.Interrupted, "cancel"},
		"interrupted before it is signed":   {events.Sign, func(cancel func()) { cancel() }, fault.Interrupted, "signing the bundle"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			o := o
			o.Report = atPhase("linux/amd64", c.phase, func() { c.do(cancel) })
			_, err := runOne(ctx, o)
			if fault.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("exit code %d: %v", fault.ExitCode(err), err)
			}
			if after := filesNextTo(t, o.Output); !maps.Equal(before, after) {
				t.Errorf("the files were changed, or others are there: %q", slices.Sorted(maps.Keys(after)))
			}
		})
	}

	run(t, o)
	after := filesNextTo(t, o.Output)
	if len(after) != 5 {
		t.Errorf("files: %q", slices.Sorted(maps.Keys(after)))
	}
	for name := range before {
		if after[name] == "" || after[name] == before[name] {
			t.Errorf("%s is not new", name)
		}
	}
}

// A bundle never has the files of another next to it, also if its own cannot get their names.
func TestBundleWithoutItsFiles(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := signedOptions(t, u)
	run(t, o)
	before := filesNextTo(t, o.Output)
	o.CNI = "none"
	o.Report = atPhase("linux/amd64", events.Sign, func() {
		list, err := filepath.Glob(filepath.Join(filepath.Dir(o.Output), ".install.provenance.json.*.partial"))
		if err != nil || len(list) != 1 {
			t.Fatalf("%q, %v", list, err)
		}
		if err := os.Remove(list[0]); err != nil {
			t.Fatal(err)
		}
	})
	_, err := runOne(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), o.Output+" is complete, but has no provenance") || fault.Hint(err) == "" {
		t.Errorf("%v", err)
	}
	after := filesNextTo(t, o.Output)
	if len(after) != 1 || after["install"] == "" || after["install"] == before["install"] {
		t.Errorf("files: %q", slices.Sorted(maps.Keys(after)))
	}
	f, err := bundle.Open(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// bothOptions are the options of a build for both architectures.
func bothOptions(t *testing.T, u *fakesites.Upstream) (list []builder.Options) {
	t.Helper()
	u.PushIndex("registry.k8s.io/etcd:3.5.16-0", indexOf(t, "amd64", "arm64"))
	o := options(t, u)
	o.Arches = []string{"amd64", "arm64"}
	outputs := builder.PerArch(o.Output, o.Arches)
	o.Output = outputs[0]
	other := o
	other.Arch, other.Output, other.Executables = "arm64", outputs[1], executables(t, elf.EM_AARCH64)
	return []builder.Options{o, other}
}

// If one of several architectures fails, the files of none are replaced.
func TestFailedArchitectureKeepsTheFilesOfAll(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	list := bothOptions(t, u)
	if results, err := builder.Run(t.Context(), list); err != nil || len(results) != 2 {
		t.Fatalf("%v, %v", results, err)
	}
	before := filesNextTo(t, list[0].Output)
	for n := range list {
		list[n].CNI = "none"
		list[n].Report = atPhase("linux/arm64", events.Verify, func() { damageDrafts(t, list[0].Output) })
	}
	results, err := builder.Run(t.Context(), list)
	if err == nil || len(results) > 0 {
		t.Errorf("%v, %v", results, err)
	}
	if after := filesNextTo(t, list[0].Output); len(before) != 4 || !maps.Equal(before, after) {
		t.Errorf("the files were changed, or others are there: %q", slices.Sorted(maps.Keys(after)))
	}
}

// If a file cannot get its name, the error names the files that already have their names, and their
// results are returned.
func TestResultsOfWrittenArchitectures(t *testing.T) {
	t.Parallel()
	list := bothOptions(t, fakesites.New(t, version))
	list[1].Report = atPhase("linux/arm64", events.Verify, func() {
		if err := os.MkdirAll(filepath.Join(list[1].Output, "not empty"), 0o755); err != nil {
			t.Error(err)
		}
	})
	results, err := builder.Run(t.Context(), list)
	if err == nil || !strings.Contains(err.Error(), "writing "+list[1].Output+": ") || !strings.Contains(err.Error(), list[0].Output+" is already written") ||
		len(results) != 1 || results[0].Path != list[0].Output {
		t.Fatalf("%v, %v", results, err)
	}
	files := filesNextTo(t, list[0].Output)
	if want := []string{"install-amd64", "install-amd64.provenance.json"}; !slices.Equal(slices.Sorted(maps.Keys(files)), want) {
		t.Errorf("files: %q", slices.Sorted(maps.Keys(files)))
	}
}

// Only a build that succeeds writes a lock, and not before all its bundles are complete.
func TestFailedBuildWritesNoLock(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version, "v1.29.16")
	list := bothOptions(t, u)
	u.Put("dl.k8s.io/release/stable-1.29.txt", []byte(version+"\n"))
	var locks []*lock.Lock
	refused := errors.New("refused")
	var answer error
	for n := range list {
		list[n].Version = "v1.29"
		list[n].Resolved = func(l *lock.Lock) error {
			if len(locks) == 0 { // the first: no bundle has its name yet
				if _, err := os.Stat(list[0].Output); err == nil {
					t.Error("a bundle has its name before the lock is written")
				}
			}
			locks = append(locks, l)
			return answer
		}
	}
	with := func(s events.Reporter) []builder.Options {
		changed := slices.Clone(list)
		for n := range changed {
			changed[n].Report = s
		}
		return changed
	}

	// The channel moves between two architectures.
	moved := with(atPhase("linux/arm64", events.Resolve, func() { u.Put("dl.k8s.io/release/stable-1.29.txt", []byte("v1.29.16\n")) }))
	_, err := builder.Run(t.Context(), moved)
	if err == nil || !strings.Contains(err.Error(), "v1.29 is v1.29.15 for linux/amd64, and v1.29.16 for linux/arm64") || len(locks) > 0 {
		t.Errorf("%v, %d locks", err, len(locks))
	}
	u.Put("dl.k8s.io/release/stable-1.29.txt", []byte(version+"\n"))

	damaged := with(atPhase("linux/arm64", events.Verify, func() { damageDrafts(t, list[0].Output) }))
	if _, err = builder.Run(t.Context(), damaged); err == nil || len(locks) > 0 {
		t.Errorf("%v, %d locks", err, len(locks))
	}

	// A lock that cannot be written ends the build.
	answer = refused
	if _, err = builder.Run(t.Context(), list); !errors.Is(err, refused) || len(locks) != 1 {
		t.Errorf("%v, %d locks", err, len(locks))
	}
	if files := filesNextTo(t, list[0].Output); len(files) > 0 {
		t.Errorf("files: %q", slices.Sorted(maps.Keys(files)))
	}

	answer, locks = nil, nil
	if _, err = builder.Run(t.Context(), list); err != nil || len(locks) != 2 || locks[0].Platform != "linux/amd64" || locks[1].Platform != "linux/arm64" {
		t.Errorf("%v, %+v", err, locks)
	}
}
