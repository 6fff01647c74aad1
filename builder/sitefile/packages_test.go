package sitefile_test

import (
	"strings"
	"testing"

	"airlift/scripts/fixtures/fakesites"
)

func TestPackages(t *testing.T) {
	dir := t.TempDir()
	fakesites.WriteFiles(t, dir, map[string]string{"debs/a.deb": "x", "status": "x"})
	const head = "apiVersion: airlift/v1\nkind: Bundle\n"
	f, err := read(t, dir, head+"packages:\n- {source: debs, release: rocky-9.4, nodes: worker, installed: status}\n- {source: debs/a.deb, release: debian-12, nodes: all}\n")
	if err != nil {
		t.Fatal(err)
	}
	p := f.Site.Packages
	if len(p) != 2 || p[0].Source != dir+"/debs" || p[0].Release != "rocky-9.4" || p[0].Nodes != "worker" || p[0].Installed != dir+"/status" || p[1].Nodes != "" || f.Site.Written[p[1].Source] != "debs/a.deb" || !strings.HasSuffix(p[1].At, ":5") {
		t.Errorf("%+v", p)
	}
	f, err = read(t, dir, head+"packages:\n- {release: debian-12}\n- {source: debs}\n- {source: none, release: Debian 12, nodes: some, installed: gone}\n- {source: debs, release: debian-12}\n")
	for _, want := range []string{":4: packages number 1 have no source", ":5: packages number 2 have no release", `:6: release "Debian 12" is not a release`, `:6: nodes "some" is not a kind of node`, "none\" does not exist", "gone\" does not exist"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if len(f.Site.Packages) != 1 {
		t.Errorf("%+v", f.Site.Packages)
	}
	if _, err := read(t, dir, head+"only: [images]\npackages:\n- {source: debs, release: debian-12}\n"); err == nil || !strings.Contains(err.Error(), "packages is not for this additional bundle") {
		t.Errorf("%v", err)
	}
}
