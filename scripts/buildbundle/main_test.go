package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/lab/site"
)

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// A bundle of the rig never uses the user's cache, for any location of the two caches.
func TestTheRigHasACacheOfItsOwn(t *testing.T) {
	home := t.TempDir()
	for name, env := range map[string][2]string{ // AIRLIFT_CACHE, XDG_CACHE_HOME
		"neither":            {"", ""},
		"as make exports it": {filepath.Join(home, ".cache", "airlift"), ""},
		"elsewhere":          {filepath.Join(home, "rig"), filepath.Join(home, "xdg")},
		"both the same":      {filepath.Join(home, "xdg", "airlift"), filepath.Join(home, "xdg")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", home)
			t.Setenv("AIRLIFT_CACHE", env[0])
			t.Setenv("XDG_CACHE_HOME", env[1])
			users, err := os.UserCacheDir()
			if err != nil {
				t.Fatal(err)
			}
			users = filepath.Join(users, "airlift", "bundle") // the default of bundle build
			arguments := filepath.Join(t.TempDir(), "arguments")
			rig := script(t, `while [ "$1" != --mirrors-file ]; do shift; done; echo "--mirror dl.k8s.io=http://127.0.0.1:1" >"$2.new"; mv "$2.new" "$2"; trap exit INT; while :; do sleep 0.05; done`)
			bundle := script(t, `printf '%s\n' "$@" >`+arguments)
			o := options{version: "v1.29.15", upstream: rig, bundle: bundle, output: filepath.Join(t.TempDir(), "install"), compression: "fastest"}
			if err := buildBundle(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(arguments)
			if err != nil {
				t.Fatal(err)
			}
			args := strings.Fields(string(text))
			at := slices.Index(args, "--cache-dir")
			want, err := site.BuildCache()
			if err != nil {
				t.Fatal(err)
			}
			if at < 0 || args[at+1] != want || want == users || strings.HasPrefix(want, users+"/") {
				t.Errorf("arguments %q; the user's cache is %s", args, users)
			}
		})
	}
}

// With --conformance, the rig serves the images of upstream's tests, and the bundle has all of them.
func TestConformanceImages(t *testing.T) {
	dir := t.TempDir()
	arguments, served := filepath.Join(dir, "arguments"), filepath.Join(dir, "served")
	rig := script(t, `if [ "$1" = images ]; then echo one:1; echo two:2; exit; fi
		echo "$@" >`+served+`
		while [ "$1" != --mirrors-file ]; do shift; done; echo "--mirror dl.k8s.io=http://127.0.0.1:1" >"$2.new"; mv "$2.new" "$2"; trap exit INT; while :; do sleep 0.05; done`)
	o := options{version: "v1.37.1", upstream: rig, bundle: script(t, `echo "$@" >`+arguments), output: filepath.Join(dir, "install"), conformance: true}
	if err := buildBundle(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{served: "--conformance=true", arguments: "--image one:1 --image two:2 --mirror"} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%q is not in %q: %v", want, text, err)
		}
	}
}
