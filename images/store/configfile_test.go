package store

import (
	"reflect"
	"testing"
	"testing/fstest"
)

func TestReadConfigFile(t *testing.T) {
	files := fstest.MapFS{
		"etc/containerd/config.toml": {Data: []byte(`version = 2
root = "/data/containerd"
disabled_plugins = ["cri"]
imports = ["conf.d/*.toml", "/etc/more/a.toml"]
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "example.com/pause:3.8"
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."quay.io"]
endpoint = ["https://example.com"]
[plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
endpoint = ["https://example.com"]
`)},
		"etc/containerd/conf.d/10.toml": {Data: []byte(`version = 3
[plugins."io.containerd.cri.v1.images".registry]
config_path = "/etc/containerd/certs.d:/etc/docker/certs.d"
`)},
		"etc/more/a.toml": {Data: []byte("imports = ['/etc/containerd/config.toml']\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'example.com/pause:3.10'\n")},
		"etc/bad.toml":    {Data: []byte("version = \n")},
	}
	for path, want := range map[string]ConfigFile{
		"/etc/containerd/config.toml": {
			Version: 3, Root: "/data/containerd", SandboxImage: "example.com/pause:3.10", DisabledPlugins: []string{"cri"},
			RegistryDirs: "/etc/containerd/certs.d:/etc/docker/certs.d", Mirrors: []string{"docker.io", "quay.io"},
		},
		"/etc/none.toml": {},
	} {
		if is, err := ReadConfigFile(files, path); err != nil || !reflect.DeepEqual(is, want) {
			t.Errorf("%s: %+v, %v; want %+v", path, is, err, want)
		}
	}
	if is, err := ReadConfigFile(files, "/etc/bad.toml"); err == nil {
		t.Errorf("a file that is not TOML: %+v", is)
	}
}

func TestConfigFileOf(t *testing.T) {
	for want, args := range map[string][]string{
		"/etc/containerd/config.toml": {"/usr/bin/containerd", "--log-level", "info"},
		"/etc/a.toml":                 {"containerd", "--config", "/etc/a.toml"},
		"/etc/b.toml":                 {"containerd", "-c=/etc/b.toml"},
	} {
		if is := ConfigFileOf(args); is != want {
			t.Errorf("%q: %s, want %s", args, is, want)
		}
	}
}
