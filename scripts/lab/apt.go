package lab

import (
	"context"
	"os"
	"strings"

	"airlift/internal/fault"
)

// aptFormat makes apt list its package indexes, one per line. So this package need not parse
// apt's two formats of source lists, and apt's configuration is included.
const aptFormat = "$(IDENTIFIER)|$(REPO_URI)|$(CODENAME)|$(RELEASE)|$(COMPONENT)"

// debianMirror returns the mirror from which this machine gets its Debian. Other releases are
// on the same one.
func debianMirror(ctx context.Context) (uri string, err error) {
	list, err := output(ctx, "apt-get", "indextargets", "--format", aptFormat)
	if err != nil {
		return "", err
	}
	if uri, ok := pickMirror(list); ok {
		return uri, nil
	}
	return "", fault.New(fault.Preflight,
		"finding a mirror: apt has no source for Debian %s main", defaultSuite).
		Hint("add a source for Debian " + defaultSuite + " main to /etc/apt/sources.list.d")
}

// pickMirror chooses from lines in aptFormat. Updates and security fixes have other suite
// names ("bookworm-updates"), so an exact match is the main archive.
func pickMirror(list string) (uri string, ok bool) {
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 5 || f[0] != "Packages" || f[4] != "main" || (f[2] != defaultSuite && f[3] != defaultSuite) {
			continue
		}
		return strings.TrimSuffix(f[1], "/"), true
	}
	return "", false
}

// withAptProxy returns this process's environment with apt's proxy, for debootstrap, which
// does not read apt's configuration.
func withAptProxy(ctx context.Context, uri string) ([]string, error) {
	scheme, _, _ := strings.Cut(uri, "://")
	out, err := output(ctx, "apt-config", "dump", "--format", "%v%n", "Acquire::"+scheme+"::Proxy")
	if err != nil {
		return nil, err
	}
	env := os.Environ()
	if proxy := strings.TrimSpace(out); proxy != "" && !strings.Contains(proxy, "\n") && proxy != "DIRECT" {
		env = append(env, scheme+"_proxy="+proxy)
	}
	return env, nil
}
