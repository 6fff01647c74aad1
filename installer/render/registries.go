package render

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"airlift/installer/config"
	"airlift/installer/pki"
)

// RegistryDirs returns the directories in which containerd looks for a registry's
// configuration. It uses the first one that exists.
func RegistryDirs(host string) []string {
	dirs := []string{path.Join(RegistriesDir, host)}
	if i := strings.LastIndex(host, ":"); i > 0 {
		dirs = append([]string{path.Join(RegistriesDir, host[:i]+"_"+host[i+1:]+"_")}, dirs...)
	}
	return dirs
}

// RegistryFiles returns containerd's configuration of a registry, in one of its
// directories: hosts.toml and the CA certificates. Only root may read credentials.
func RegistryFiles(r config.Registry, dir string) []pki.File {
	toml := bytes.NewBufferString("# Airlift writes this file if init or join gets --registry-mirror, --registry-ca or\n" +
		"# --registry-auth for this registry. containerd reads it at each pull.\n")
	hosts := pki.File{Path: path.Join(dir, "hosts.toml"), Mode: 0o644}
	var files []pki.File
	access := func(indent, table, host string, a config.RegistryAccess) {
		if len(a.CA) > 0 {
			ca := path.Join(dir, host+".pem")
			fmt.Fprintf(toml, "%sca = %q\n", indent, ca)
			files = append(files, pki.File{Path: ca, Data: a.CA, Mode: 0o644})
		}
		if a.Authorization != "" {
			hosts.Mode = 0o600
			fmt.Fprintf(toml, "\n%s[%sheader]\n%s  Authorization = %q\n", indent, table, indent, a.Authorization)
		}
	}
	access("", "", r.Host, r.RegistryAccess)
	for _, m := range r.Mirrors {
		fmt.Fprintf(toml, "\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", m.URL)
		// As for bundle build's --mirror: a path that begins with /v2 replaces
		// the registry's own /v2.
		if strings.HasPrefix(m.URL.Path, "/v2/") {
			toml.WriteString("  override_path = true\n")
		}
		access("  ", fmt.Sprintf("host.%q.", m.URL), m.URL.Host, m.RegistryAccess)
	}
	hosts.Data = toml.Bytes()
	return append(files, hosts)
}
