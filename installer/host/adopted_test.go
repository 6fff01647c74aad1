package host_test

import (
	"fmt"
	"strings"
	"testing"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/internal/fault"
)

// TestAdoptedFiles: what adopt found is replaced without a warning, and reset restores it. Anything else is refused
// or reported, as on every node.
func TestAdoptedFiles(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{"/usr/local/bin/kubelet": "theirs", "/usr/local/bin/other": "theirs", "/etc/found": "theirs", "/etc/edited": "later", "/etc/more": "theirs"} {
		write(t, root+path, text, 0o755)
	}
	h := open(t, root)
	var warnings []string
	h.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if err := h.Records().Adopt(ledger.Adoption{Files: map[string]string{
		"/usr/local/bin/kubelet": sum("theirs"), "/etc/found": sum("theirs"), "/etc/edited": sum("theirs"),
	}}); err != nil {
		t.Fatal(err)
	}
	before := tree(t, root)
	install := func(path, text string) error {
		_, err := h.InstallBinary(t.Context(), host.Binary{Path: path, SHA256: sum(text)}, strings.NewReader(text))
		return err
	}
	if err := install("/usr/local/bin/other", "ours"); fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "was not installed by Airlift") {
		t.Errorf("an unknown binary: %v", err)
	}
	for _, version := range []string{"one", "two", "theirs", "three"} { // theirs: undo
		if err := install("/usr/local/bin/kubelet", version); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/etc/found", "/etc/edited", "/etc/more"} {
			if _, err := h.WriteFile(path, []byte(version), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h = open(t, root)
	}
	if len(warnings) != 2 || !strings.HasPrefix(warnings[0], "/etc/edited existed") || !strings.HasPrefix(warnings[1], "/etc/more existed") {
		t.Errorf("warnings: %q", warnings)
	}
	plan, err := uninstall.PlanFor(h)
	if err != nil || len(plan) != 4 {
		t.Errorf("%v, %v", plan, err)
	}
	for _, i := range plan {
		if i.Act != uninstall.Remove || i.Reason != "the original file is restored" {
			t.Errorf("%+v", i)
		}
	}
	if kept, err := uninstall.RemoveInstalled(t.Context(), h); err != nil || len(kept) > 0 {
		t.Errorf("%q, %v", kept, err)
	}
	after := tree(t, root)
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s is %q, and was %q", name, after[name], text)
		}
	}
	for name := range after {
		if before[name] == "" {
			t.Errorf("%s is left", name)
		}
	}
}

// A binary that replaced Airlift's stays, also on an adopted node.
func TestReplacedAdoptedBinary(t *testing.T) {
	root := t.TempDir()
	const path = "/usr/local/bin/kubelet"
	write(t, root+path, "theirs", 0o755)
	h := open(t, root)
	if err := h.Records().Adopt(ledger.Adoption{Files: map[string]string{path: sum("theirs")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.InstallBinary(t.Context(), host.Binary{Path: path, SHA256: sum("ours")}, strings.NewReader("ours")); err != nil {
		t.Fatal(err)
	}
	write(t, root+path, "by hand", 0o755)
	kept, err := uninstall.RemoveInstalled(t.Context(), h)
	if err != nil || len(kept) != 1 || read(t, root+path) != "by hand" {
		t.Errorf("%q, %v: %s", kept, err, read(t, root+path))
	}
}
