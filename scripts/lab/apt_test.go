package lab

import "testing"

func TestPickMirror(t *testing.T) {
	for _, c := range []struct{ name, list, want string }{
		{"deb822 and one-line sources look the same here",
			"Packages|https://example.test/other/|bookworm|bookworm|contrib\n" +
				"DEP-11|http://example.test/icons/|bookworm|bookworm|main\n" +
				"Packages|http://example.test/debian-security/|bookworm-security|bookworm-security|main\n" +
				"Packages|http://example.test/debian/|bookworm|bookworm|main\n" +
				"Packages|http://example.test/debian/|bookworm-updates|bookworm-updates|main\n",
			"http://example.test/debian"},
		{"a source that names the suite by its age", "Packages|http://example.test/debian/|bookworm|oldstable|main\n", "http://example.test/debian"},
		{"before the first apt-get update there is no codename", "Packages|http://example.test/debian/|$(CODENAME)|bookworm|main\n", "http://example.test/debian"},
		{"another release", "Packages|http://example.test/debian/|trixie|trixie|main\n", ""},
		{"nothing", "", ""},
	} {
		uri, ok := pickMirror(c.list)
		if uri != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v", c.name, uri, ok)
		}
	}
}
