// Kubeletfacts writes facts.txt of package installer/kubeletcheck: the feature gates, flags and
// configuration fields of the kubelet of each minor version. It compiles dump.go with the
// packages of each release, which takes minutes, and runs it. "go generate" calls it:
//
//	go generate ./installer/kubeletcheck
package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"airlift/scripts/oracle/upstream/compile"
	"airlift/scripts/oracle/upstream/components"
)

//go:embed dump.go
var dump string

// versions are the Kubernetes releases that Airlift installs, oldest first: of each minor
// version, the newest one that the module proxy serves.
var versions = []string{
	"v1.29.15", "v1.30.14", "v1.31.14", "v1.32.13", "v1.33.13", "v1.34.9", "v1.35.6", "v1.36.3", "v1.37.1",
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: kubeletfacts FILE")
	}
	cache, err := components.CacheDir()
	check(err)
	builder := compile.Builder{Cache: cache, Log: os.Stderr}
	var out bytes.Buffer
	before := make(map[string]string) // the lines of a dump, by "flag NAME"
	for _, version := range versions {
		recipe := components.Release{Kubernetes: version}.Command("kubelet-facts", dump)
		check(builder.Build(context.Background(), []components.Recipe{recipe}))
		text, err := exec.Command(filepath.Join(recipe.Dir(cache), recipe.Name)).Output()
		check(err)
		now, changed := make(map[string]string), make(map[string][]string)
		for line := range strings.Lines(string(text)) {
			head, entry, _ := strings.Cut(strings.TrimSpace(line), ": ")
			kind, _, _ := strings.Cut(head, " ")
			name, _, _ := strings.Cut(entry, "=")
			now[kind+" "+name] = line
			if before[kind+" "+name] != line {
				changed[head] = append(changed[head], entry)
			}
		}
		for of := range before {
			if kind, name, _ := strings.Cut(of, " "); now[of] == "" {
				changed[kind+" removed"] = append(changed[kind+" removed"], name)
			}
		}
		minor := strings.TrimPrefix(version[:strings.LastIndexByte(version, '.')], "v")
		for _, head := range slices.Sorted(maps.Keys(changed)) {
			write(&out, minor+" "+head+":", slices.Sorted(slices.Values(changed[head])))
		}
		before = now
	}
	check(os.WriteFile(os.Args[1], out.Bytes(), 0o644))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// write writes what a minor version changed in one way: a line, or more if it would be long.
func write(out *bytes.Buffer, head string, entries []string) {
	line := head
	for _, entry := range entries {
		if len(line)+1+len(entry) > 140 && line != head {
			fmt.Fprintln(out, line)
			line = head
		}
		line += " " + entry
	}
	fmt.Fprintln(out, line)
}
